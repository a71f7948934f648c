package main_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/api"
	"relay/scheduler"
)

// TestNetShardsCut: the cable of a worker, and then of a coordinator, is pulled: who is
// left serves the model together, and once it is in again there is one placement.
func TestNetShardsCut(t *testing.T) {
	n := newNetworkWith(t, nil)
	all := []string{"a", "b", "c", "d"}
	n.machines(all...)
	n.mesh("a", "b", "c", "d")
	n.held("a", "b")
	n.servedOn(20*time.Second, "c", "a")
	n.relay("a", "model", "load", "m", "--force")
	for _, part := range []string{"worker", "coordinator"} {
		before := n.together("d", nil)
		cut := before[0]
		if part == "worker" {
			cut = before[1]
		}
		rest := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == cut })
		n.must(n.Cut([]string{cut}, rest))
		began := time.Now()
		after := n.together(rest[0], func(group []string) bool { return !slices.Contains(group, cut) })
		n.must(n.stage.Chat(n.Context(), n.peers[rest[len(rest)-1]], "m", "hello", 8, func(string) {}))
		t.Logf("%s, the %s of %v, was cut off: %v answered %.1f s later", cut, part, before, after, time.Since(began).Seconds())
		n.must(n.Mend([]string{cut}, rest))
		n.allAlive(60*time.Second, all...)
		n.eventually(40*time.Second, "one placement", func() error {
			var one string
			for _, name := range all {
				m, err := n.model(name)
				if err != nil {
					return err
				}
				if m.Leader == nil || len(m.Replicas) != 1 || m.Replicas[0].State != scheduler.StateReady {
					return fmt.Errorf("%s sees %+v led by %v", name, m.Replicas, m.Leader)
				}
				is := fmt.Sprint(*m.Leader, m.Replicas[0].Peer)
				for _, s := range m.Replicas[0].Shares {
					is += s.Peer + s.State
				}
				if one == "" {
					one = is
				}
				if is != one {
					return fmt.Errorf("%s has %s, a has %s", name, is, one)
				}
			}
			return nil
		})
	}
}

// together waits until a peer sees a group that serves the model m, and fits; it returns
// their names, the coordinator's first.
func (n *network) together(by string, fits func([]string) bool) (group []string) {
	n.Helper()
	n.eventually(40*time.Second, by+" sees a group that serves", func() error {
		m, err := n.model(by)
		if err != nil {
			return err
		}
		group = nil
		for _, r := range m.Replicas {
			if r.State != scheduler.StateReady || len(r.Shares) == 0 {
				continue
			}
			group = []string{n.nameOf(by, r.Peer)}
			for _, s := range r.Shares {
				if s.State != scheduler.StateReady {
					return fmt.Errorf("%s is %s", n.nameOf(by, s.Peer), s.State)
				}
				group = append(group, n.nameOf(by, s.Peer))
			}
		}
		if len(group) == 0 || fits != nil && !fits(group) {
			return fmt.Errorf("%v: %s", group, m.Placed)
		}
		return nil
	})
	return group
}

// nameOf is what a peer calls another one.
func (n *network) nameOf(by, id string) string {
	n.Helper()
	var s api.Status
	n.must(n.peers[by].Ask(n.Context(), "/v0/status", nil, &s))
	for _, p := range s.Peers {
		if p.ID == id {
			return p.Name
		}
	}
	return id
}
