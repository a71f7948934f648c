package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/p2p"
	"relay/p2p/membership"
	"relay/store"
)

// An order to leave is gone on with by the next start, whatever was done of it
// when the machine died, whether or not it had founded the mesh.
func TestLeaveGoesOn(t *testing.T) {
	for name, begin := range map[string]func(*machine, *p2p.Node) error{
		"nothing was done":     func(*machine, *p2p.Node) error { return nil },
		"the founder had left": func(_ *machine, node *p2p.Node) error { return node.Leave() },
		"another had left": func(m *machine, node *p2p.Node) error {
			key, err := membership.NewMeshKey() // Of another mesh.
			return errors.Join(err, store.WriteSecret(m.tree.MeshKey(), key.Seed()), node.Leave())
		},
	} {
		for _, wipe := range []bool{false, true} {
			dir := t.TempDir()
			s := settings{stateDir: filepath.Join(dir, "state"), apiKey: "rk-x", listen: "nonsense"} // So that it ends where a start begins.
			s.Name, s.Sandbox = "attic", "off"
			m := openTestMachine(t, s)
			pulled, own := fill(t, m, dir)
			id, _ := m.mesh()
			node, err := m.newNode(id, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(m.save(keyLeaving, leaveOrder{Mesh: id, Wipe: wipe}), begin(m, node)); err != nil {
				t.Fatal(err)
			}
			node.Close()
			m.close()

			var out, warn bytes.Buffer
			if err := up(t.Context(), s, "", &out, &warn); err == nil || !strings.Contains(err.Error(), "nonsense") {
				t.Errorf("%s, wipe %v: %v", name, wipe, err)
			}
			m = openTestMachine(t, s)
			if current, err := m.mesh(); err != nil || current != "" {
				t.Errorf("%s, wipe %v: in mesh %q, %v", name, wipe, current, err)
			}
			checkNoOrder(t, m)
			if wipe {
				checkWiped(t, m, id, pulled, own)
			} else if _, err := os.Stat(pulled); err != nil {
				t.Errorf("%s: erased without an order: %v", name, err)
			}
			m.close()
		}
	}
}

func checkNoOrder(t *testing.T, m *machine) {
	t.Helper()
	for _, key := range []string{keyLeaving, keyWipe} {
		if data, found, err := m.own.Get([]byte(key)); found || err != nil {
			t.Errorf("%s: %s, %v", key, data, err)
		}
	}
}

// An order to leave is dropped, and nothing is erased, where the last
// admin may not: by the peer that was asked, and by a start.
func TestLeaveOfTheLastAdmin(t *testing.T) {
	dir := t.TempDir()
	s := settings{stateDir: filepath.Join(dir, "state"), apiKey: "rk-x"}
	s.Name = "attic"
	m := openTestMachine(t, s)
	defer m.close()
	pulled, _ := fill(t, m, dir)
	id, _ := m.mesh()
	node, err := m.newNode(id, []string{"/ip4/127.0.0.1/tcp/0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- node.Run(ctx) }()
	<-node.Ready()
	invite, _, err := node.Invite(p2p.InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: 1, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := p2p.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p2p.Join(ctx, second, invite, "den", agent()); err != nil {
		t.Fatal(err)
	}
	if err := m.leave(node, true, func() { t.Error("it stops") }); !errors.Is(err, p2p.ErrLastAdmin) {
		t.Errorf("left: %v", err)
	}
	checkNoOrder(t, m)
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if err := m.save(keyLeaving, leaveOrder{Mesh: id, Wipe: true}); err != nil {
		t.Fatal(err)
	}
	if err := m.finishLeave(); err != nil {
		t.Errorf("the next start: %v", err)
	}
	checkNoOrder(t, m)
	if current, err := m.mesh(); err != nil || current != id {
		t.Errorf("in mesh %q, %v", current, err)
	}
	if _, err := os.Stat(pulled); errors.Is(err, fs.ErrNotExist) {
		t.Error("the pulled model is gone")
	}
}

// A machine that cannot note the order does not leave.
func TestLeaveNotesTheOrderFirst(t *testing.T) {
	open := func() *machine {
		s := settings{stateDir: t.TempDir(), apiKey: "rk-x"}
		s.Name = "attic"
		return openTestMachine(t, s)
	}
	m, forgetful := open(), open()
	defer m.close()
	if err := m.found("a mesh"); err != nil {
		t.Fatal(err)
	}
	id, _ := m.mesh()
	node, err := m.newNode(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	forgetful.close() // Its database, while the node's goes on.
	if err := forgetful.leave(node, false, func() { t.Error("it stops") }); err == nil {
		t.Error("it has left")
	}
	if _, in := node.Member(node.Self()); !in {
		t.Error("it is not a member any more")
	}
}
