package main_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/api"
	"relay/scheduler"
)

// cutLasts is longer than the longest pause between two dials of one member.
const cutLasts = 40 * time.Second

// TestNetCutMeshHeals: a mesh that is cut goes on on both sides, and within five
// seconds of healing there is one state everywhere in which nothing that was
// acknowledged is missing.
func TestNetCutMeshHeals(t *testing.T) {
	n := newNetwork(t)
	west, east := []string{"a", "b", "c"}, []string{"d", "e", "f", "g"}
	n.machines(slices.Concat(west, east, []string{"w1", "w2", "e1", "e2"})...)
	n.mesh("a", "b", "c", "e", "g")
	n.up("d", "--join", n.invite("a", "--admin", "--label", "second"))
	before := n.invite("a", "--uses", "5", "--label", "before")
	n.up("f", "--join", n.invite("a", "--label", "third"))
	n.allAlive(20*time.Second, slices.Concat(west, east)...)
	n.eventually(10*time.Second, "the invite is known in the east", func() error {
		if s, err := n.state("e"); err != nil || !strings.Contains(fmt.Sprint(s.Invites), "before") {
			return fmt.Errorf("%v: %v", err, s.Invites)
		}
		return nil
	})

	n.must(n.Cut(append(west, "w1", "w2"), append(east, "e1", "e2")))
	cut := time.Now()
	// Whom it lets in while it is revoked on the other side is lost, as the
	// manual says; so it lets nobody in.
	n.must(n.peers["f"].Freeze())
	for _, side := range [][2][]string{{west, east}, {east, west}} {
		n.eventually(10*time.Second, "the other side is gone", func() error {
			states := n.states(side[0][0])
			for _, name := range side[1] {
				if states[name] != "gone" {
					return fmt.Errorf("%s sees %v", side[0][0], states)
				}
			}
			return nil
		})
	}

	// On each side: one joins by the invite from before, by way of somebody who
	// is no admin; one by an invite of the admin who is left; a model, invites.
	file := n.demoFile()
	var models, invites []string
	for side, admin := range map[string]string{"w": "a", "e": "d"} {
		n.up(side+"1", "--join", before)
		n.up(side+"2", "--join", n.invite(admin, "--label", side+"-during"))
		m, err := api.ReadLines[scheduler.Outcome](strings.NewReader(n.relay(admin, "model", "add", side+"-model", file, "--json")), nil)
		n.must(err)
		models = append(models, m.UID)
		for i := range 20 {
			var made api.InviteAnswer
			n.must(json.Unmarshal([]byte(n.relay(admin, "peer", "invite", "--json", "--label", fmt.Sprint(side, i))), &made))
			invites = append(invites, made.ID)
		}
		n.relay(admin, "peer", "revoke", side+"0")
	}
	n.must(n.peers["f"].Thaw())
	// Taken out: one on the own side of each admin, and one across the cut.
	out := []string{"b", "f", "g"}
	n.relay("a", "peer", "rm", "b")
	n.relay("a", "peer", "rm", "f")
	n.relay("d", "peer", "rm", "g")
	for _, name := range []string{"b", "g"} {
		select {
		case <-n.peers[name].Ended():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s, revoked on its own side, goes on", name)
		}
	}

	// Long enough for the pauses between dials to have grown as long as they get.
	n.pass(cutLasts - time.Since(cut))
	n.must(n.Mend(append(west, "w1", "w2"), append(east, "e1", "e2")))
	stay := []string{"a", "c", "d", "e", "w1", "w2", "e1", "e2"}
	var one state
	took := n.eventually(30*time.Second, "one state everywhere", func() error {
		var err error
		if one, err = n.state(stay[0]); err != nil {
			return err
		}
		for _, p := range one.Peers {
			if !strings.HasSuffix(p, " alive") {
				return fmt.Errorf("%s sees %s", stay[0], p)
			}
		}
		if len(one.Peers) != len(stay) {
			return fmt.Errorf("%s sees %v", stay[0], one.Peers)
		}
		for _, name := range stay[1:] {
			if s, err := n.state(name); err != nil || !reflect.DeepEqual(s, one) {
				return fmt.Errorf("%v: %s has\n%+v, %s has\n%+v", err, name, s, stay[0], one)
			}
		}
		return nil
	})
	t.Logf("one state %.1f s after healing", took.Seconds())
	if took > 5*time.Second {
		t.Errorf("one state only %s after healing", took)
	}

	for _, uid := range models {
		if one.Models[uid] == "" {
			t.Errorf("model %s is lost: %v", uid, one.Models)
		}
	}
	for _, id := range invites {
		if one.Invites[id] == "" {
			t.Errorf("invite %s is lost", id)
		}
	}
	all := fmt.Sprint(one.Invites)
	for _, want := range []string{`"w0" member replicas 0 of 1 revoked`, `"e0" member replicas 0 of 1 revoked`, `"before" member replicas 2 of 5 good`,
		`"w-during" member replicas 1 of 1 spent`, `"e-during" member replicas 1 of 1 spent`} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not among the invites: %s", want, all)
		}
	}
	for _, name := range out {
		select {
		case <-n.peers[name].Ended():
		case <-time.After(10 * time.Second):
			t.Errorf("%s, revoked, goes on", name)
		}
		if out, err := n.stage.Up(n.Context(), name); err == nil {
			t.Errorf("%s, revoked, starts again: %s", name, out.Printed())
		}
	}
}
