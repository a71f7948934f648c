package p2p

import (
	"bytes"
	"cmp"
	crand "crypto/rand"
	"math/rand/v2"
	"sync/atomic"

	"relay/p2p/record"
)

// A state folder that was copied makes two machines of one identity. Each finds
// the other's contact record in the place of its own. A record of an earlier
// life is met once; one that has a higher version after this machine has written
// its own again is by a machine that lives. Then the one that came to the mesh
// later, by the incarnations of the identity that they share, steps aside.

// instanceBytes is the length of what tells one life of a peer from another.
const instanceBytes = 16

// life is one run of a node.
type life struct {
	instance []byte
	// since is the incarnation with which it came to the mesh: when it had
	// compared its records with somebody for the first time, and was above all
	// that anybody had of this identity. 0 until then.
	since atomic.Uint64
	// met are the lives whose contact records were found in the place of this
	// one's, by instance, with the version that was found.
	met map[string]record.Version
	// watch is for how many seconds more records are compared each second, at the
	// start and when another life was met: of two machines that seem to be one
	// peer only one is sent what is gossiped.
	watch int
}

func newLife() *life {
	l := &life{instance: make([]byte, instanceBytes), met: map[string]record.Version{}, watch: watchFor}
	_, _ = crand.Read(l.instance) // It never fails.
	return l
}

// lookForTwin says with ErrTwin that another machine runs with this identity
// and this one is to step aside. It is called before what was overtaken is
// written again.
func (n *Node) lookForTwin() error {
	var c Contact
	s, ok := n.table.Get(KindContact, n.self.String())
	if !ok || n.Roster().Revoked(n.self) || record.Unmarshal(s.Payload, &c) != nil || len(c.Instance) == 0 || bytes.Equal(c.Instance, n.life.instance) {
		return nil
	}
	other := string(c.Instance)
	last, again := n.life.met[other]
	if len(n.life.met) >= maxMet && !again {
		clear(n.life.met)
	}
	n.life.met[other], n.life.watch = s.Version, watchFor
	if again && last.Less(s.Version) {
		since := n.life.since.Load()
		if since == 0 || c.Since != 0 && cmp.Or(cmp.Compare(c.Since, since), bytes.Compare(c.Instance, n.life.instance)) < 0 {
			return ErrTwin
		}
		n.log.Warn("another machine runs with a copy of this one's state folder; it is to step aside", "addresses", len(c.Addrs))
	}
	return n.publishContact()
}

// cameToTheMesh notes that records were compared with somebody.
func (n *Node) cameToTheMesh() {
	if n.life.since.CompareAndSwap(0, n.table.Incarnation()) {
		if err := n.publishContact(); err != nil {
			n.log.Warn("contact not published", "error", err)
		}
	}
}

// watchForTwin is called each second.
func (n *Node) watchForTwin() {
	if n.life.watch == 0 {
		return
	}
	n.life.watch--
	if alive := n.links.alive(); len(alive) > 0 {
		n.work.run(func() { n.compareWith(n.ctx, alive[rand.IntN(len(alive))]) })
	}
}

const watchFor = 15

// maxMet bounds the lives that are remembered.
const maxMet = 64
