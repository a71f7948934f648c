package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/api"
	"relay/cmd/lab"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

// network is real peers on machines of a lab: the TestNet tests, which need
// root. `make test-net` runs them alone.
type network struct {
	*testing.T
	*lab.Lab
	stage *stage.Stage
	peers map[string]*stage.Peer
}

// newNetwork makes a network without machines. Peers on it have no engine, as
// models are not what is tested.
func newNetwork(t *testing.T) *network {
	t.Helper()
	return newNetworkWith(t, withoutEngine)
}

// newNetworkWith makes one whose peers have an environment of their own.
func newNetworkWith(t *testing.T, env func(peer string) []string) *network {
	t.Helper()
	if err := lab.Needs(); err != nil {
		t.Skip(err)
	}
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &network{T: t, Lab: l, peers: map[string]*stage.Peer{}}
	n.stage = newStage(t, stage.Options{On: l.On, Dial: l.Dial, Env: env})
	t.Cleanup(n.tell)
	return n
}

// tell shows what the peers of a failed test printed, and their logs.
func (n *network) tell() {
	if !n.Failed() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.peers)) {
		log, _ := os.ReadFile(n.stage.Dir + "/" + name + "/log/relay.log")
		n.Logf("--- %s\n%s\n%s", name, tail(n.peers[name].Printed(), 1000), tail(string(log), 3000))
	}
}

func (n *network) must(errs ...error) {
	n.Helper()
	if err := errors.Join(errs...); err != nil {
		n.Fatal(err)
	}
}

// machines puts machines on the switch.
func (n *network) machines(names ...string) {
	n.Helper()
	for _, name := range names {
		n.must(n.Add(name))
	}
}

// up starts a peer on its machine.
func (n *network) up(name string, args ...string) *stage.Peer {
	n.Helper()
	p, err := n.stage.Up(n.Context(), name, args...)
	n.must(err)
	n.peers[name] = p
	return p
}

// invite makes an invite on a peer.
func (n *network) invite(by string, flags ...string) string {
	n.Helper()
	text, err := n.stage.Invite(n.Context(), n.peers[by], flags...)
	n.must(err)
	return text
}

// relay runs a command on a peer's machine, and wants it to succeed.
func (n *network) relay(on string, args ...string) string {
	n.Helper()
	out, err := n.stage.Relay(n.Context(), n.peers[on], args...)
	n.must(err)
	return out
}

// refused runs a command that must fail, saying what.
func (n *network) refused(on, saying string, args ...string) {
	n.Helper()
	out, err := n.stage.Relay(n.Context(), n.peers[on], args...)
	if err == nil || !regexp.MustCompile(saying).MatchString(out) {
		n.Errorf("relay %s on %s: %v: %s", strings.Join(args, " "), on, err, out)
	}
}

// mesh founds a mesh on the first machine, and has the others join it.
func (n *network) mesh(founder string, others ...string) {
	n.Helper()
	n.up(founder)
	invite := n.invite(founder, "--uses", fmt.Sprint(max(1, len(others))))
	for _, name := range others {
		n.up(name, "--join", invite)
	}
	n.allAlive(20*time.Second, append([]string{founder}, others...)...)
}

// demoFile puts the demo model where a person could have it.
func (n *network) demoFile() string {
	n.Helper()
	path := filepath.Join(n.stage.Dir, "model.gguf")
	n.must(os.WriteFile(path, demo.GGUF(), 0o600))
	return path
}

// allAlive wants each of the peers to see exactly these, all alive.
func (n *network) allAlive(within time.Duration, names ...string) {
	n.Helper()
	want := map[string]string{}
	for _, name := range names {
		want[name] = "alive"
	}
	n.eventually(within, fmt.Sprintf("%v see one another", names), func() error {
		for _, name := range names {
			if got := n.states(name); !maps.Equal(got, want) {
				return fmt.Errorf("%s sees %v", name, got)
			}
		}
		return nil
	})
}

// states is how a peer sees the members now, by name.
func (n *network) states(by string) map[string]string {
	n.Helper()
	seen, err := n.peers[by].Sees(n.Context())
	n.must(err)
	states := map[string]string{}
	for name, s := range seen {
		states[name] = s.State
	}
	return states
}

func (n *network) eventually(within time.Duration, what string, f func() error) time.Duration {
	n.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(n.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return time.Since(began)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.Fatalf("not within %s: %s: %v", within, what, err)
		}
	}
}

// pass lets time go by, where that is what happens.
func (n *network) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-n.Context().Done():
	}
}

// state is what peers of one mesh agree about once they are in step.
type state struct {
	Mesh    api.MeshStatus
	Peers   map[string]string // Id: name, role, trust, state.
	Models  map[string]string // Uid: name, CID, leader, holders.
	Invites map[string]string // Id: label, uses, state.
}

// state is what the commands on a peer's machine show.
func (n *network) state(on string) (state, error) {
	var status api.Status
	var peers []scheduler.PeerState
	var invites []api.InviteShown
	for _, q := range []struct {
		answer any
		args   []string
	}{{&status, []string{"status"}}, {&peers, []string{"peer", "ls"}}, {&invites, []string{"peer", "invites"}}} {
		// `relay status` fails while a model is served nowhere, which is the case here.
		out, err := n.stage.Quietly(n.Context(), n.peers[on], append(q.args, "--json")...)
		if json.Unmarshal([]byte(out), q.answer) != nil {
			return state{}, fmt.Errorf("relay %v on %s: %v: %s", q.args, on, err, out)
		}
	}
	slices.Sort(status.Mesh.Admins)
	s := state{Mesh: status.Mesh, Peers: map[string]string{}, Models: map[string]string{}, Invites: map[string]string{}}
	for _, p := range peers {
		s.Peers[p.ID] = fmt.Sprint(p.Name, " ", p.Role, " ", p.Trust, " ", p.State)
	}
	for _, m := range status.Models {
		slices.Sort(m.Holders)
		leader := "nobody"
		if m.Leader != nil {
			leader = fmt.Sprintf("%s %d", m.Leader.Peer, m.Leader.Epoch)
		}
		s.Models[m.UID] = fmt.Sprint(m.Name, " ", m.CID, " led by ", leader, " held by ", m.Holders)
	}
	for _, i := range invites {
		s.Invites[i.ID] = fmt.Sprintf("%q %s %s %d of %d %s", i.Label, i.Role, i.Trust, i.Used, i.Uses, i.State)
	}
	return s, nil
}
