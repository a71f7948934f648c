package main

import (
	"errors"

	"relay/p2p"
	"relay/p2p/membership"
)

// leaveOrder is an order of its owner to take this machine out of its mesh. It is on
// disk before anything is done of it, and until all of it is: a start after a
// crash goes on with it.
type leaveOrder struct {
	Mesh membership.MeshID `json:"mesh"`
	Wipe bool              `json:"wipe,omitempty"` // Then erase what it has of the mesh.
}

// leave takes this machine out of its mesh for good, and then stops the peer:
// the next start founds a mesh of its own, or joins another. With wipe what it
// has of the mesh is erased once the peer has stopped.
func (m *machine) leave(node *p2p.Node, wipe bool, down func()) error {
	order := leaveOrder{Mesh: node.Mesh, Wipe: wipe}
	if err := m.save(keyLeaving, order); err != nil {
		return err
	}
	if err := m.carryOut(node, order); err != nil {
		return err
	}
	down()
	return nil
}

// carryOut leaves the mesh, or drops the order where that is refused.
func (m *machine) carryOut(node *p2p.Node, order leaveOrder) error {
	if err := node.Leave(); err != nil {
		return errors.Join(err, m.forget(keyLeaving))
	}
	var due map[string]any
	if order.Wipe {
		due = map[string]any{keyWipe: wipeOrder{Mesh: order.Mesh}}
	}
	return m.saveAll(due, keyMesh, keyLeaving)
}

// finishLeave goes on with an order to leave that an earlier run did not live to
// carry out. Nothing else of this machine may run.
func (m *machine) finishLeave() error {
	var order leaveOrder
	if err := m.load(keyLeaving, &order); err != nil || order.Mesh == "" {
		return err
	}
	// Not settled in: by that the founder would be a member again.
	node, err := m.openNode(order.Mesh, nil)
	if err != nil {
		return err
	}
	defer node.Close()
	err = m.carryOut(node, order)
	if errors.Is(err, p2p.ErrLastAdmin) {
		m.log.Warn("this machine stays in its mesh", "error", err)
		return nil
	}
	return err
}
