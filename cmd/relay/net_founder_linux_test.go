package main_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestNetFounderIsLost: the machine that founded the mesh never comes back. With
// another admin the mesh goes on in everything that admins do.
func TestNetFounderIsLost(t *testing.T) {
	n := newNetwork(t)
	n.machines("attic", "den", "cellar", "shed")
	n.mesh("attic", "cellar")
	n.up("den", "--join", n.invite("attic", "--admin"))
	n.allAlive(10*time.Second, "attic", "den", "cellar")
	n.relay("attic", "model", "add", "demo")
	n.ledBy("cellar", "attic", "den", "cellar")
	n.must(n.stage.Kill(n.peers["attic"]))
	n.goOn("den", "cellar", "attic")
}

// TestNetLastAdminIsLost: it was the only admin, too. Then the recovery code
// makes another one.
func TestNetLastAdminIsLost(t *testing.T) {
	n := newNetwork(t)
	n.machines("attic", "den", "cellar", "shed")
	n.mesh("attic", "den", "cellar")
	n.relay("attic", "model", "add", "demo")
	n.ledBy("cellar", "attic", "den", "cellar")
	code := regexp.MustCompile(`recovery\s+(\S+)`).FindStringSubmatch(n.peers["attic"].Printed())
	if code == nil {
		t.Fatal("the founder printed no recovery code")
	}
	n.must(n.stage.Kill(n.peers["attic"]))
	n.eventually(goneWithin, "the founder is gone", func() error {
		if s := n.states("den"); s["attic"] != "gone" {
			return fmt.Errorf("den sees %v", s)
		}
		return nil
	})
	n.refused("den", "made on an admin's machine", "peer", "invite")
	n.refused("den", "admin", "peer", "rm", "attic")
	n.relay("den", "peer", "recover", code[1])
	n.goOn("den", "cellar", "attic")
}

// goOn wants a mesh whose founder is dead to admit shed, to revoke the founder,
// and to elect another leader.
func (n *network) goOn(admin, member, dead string) {
	n.Helper()
	n.ledBy(member, admin, member) // The dead one still counts as a member.
	n.up("shed", "--join", n.invite(admin))
	n.relay(admin, "peer", "rm", dead)
	n.allAlive(10*time.Second, admin, member, "shed")
	n.relay(admin, "model", "add", "another", n.demoFile())
	n.ledBy("shed", admin, member, "shed")
	back := n.up(dead) // It has not heard of it.
	select {
	case <-back.Ended():
	case <-time.After(10 * time.Second):
	}
	if !strings.Contains(back.Printed(), "taken this machine out of the mesh") {
		n.Errorf("the founder, revoked, is back: %s", back.Printed())
	}
}

// ledBy waits until each model that a peer sees is led by one of these.
func (n *network) ledBy(by string, leaders ...string) {
	n.Helper()
	ids := map[string]string{}
	seen, err := n.peers[by].Sees(n.Context())
	n.must(err)
	for _, name := range leaders {
		ids[seen[name].ID] = name
	}
	var status struct {
		Models []struct {
			Name   string
			Leader *struct{ Peer string }
		}
	}
	n.eventually(30*time.Second, fmt.Sprintf("the models are led by one of %v, says %s", leaders, by), func() error {
		if err := n.peers[by].Ask(n.Context(), "/v0/status", nil, &status); err != nil {
			return err
		}
		if len(status.Models) == 0 {
			return fmt.Errorf("there are no models")
		}
		for _, m := range status.Models {
			if m.Leader == nil || ids[m.Leader.Peer] == "" {
				return fmt.Errorf("%+v is led by %+v", m.Name, m.Leader)
			}
		}
		return nil
	})
}
