package leadership_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/leadership"
)

// simPeer is one peer of a simulated mesh, with what it believes.
type simPeer struct {
	id      string
	up      bool // runs; a peer that is down or asleep does nothing
	able    bool
	settled bool
	side    int // of the partition

	claim leadership.Claim // the highest it knows; on its disk
	sees  map[string]bool  // whom it takes for alive; may be old
	kept  leadership.Fence // the highest its worker has obeyed; on its disk
	obeys leadership.Claim // whose order its worker carries out
}

type simMesh struct {
	t     *rapid.T
	peers []*simPeer
}

func (m *simMesh) connected(a, b *simPeer) bool { return a.up && b.up && a.side == b.side }

// look brings a peer's view of who is alive up to date.
func (m *simMesh) look(p *simPeer) {
	for _, q := range m.peers {
		p.sees[q.id] = m.connected(p, q)
	}
}

// learn merges a claim as the record table does, and lets the worker act on it:
// the claim to lead and the order to the workers are one record.
func (m *simMesh) learn(p *simPeer, c leadership.Claim) {
	if p.claim.Fence.Less(c.Fence) {
		p.claim = c
	}
	m.order(p, c)
}

// order hands a worker an order; it may come late, twice, or from the past.
func (m *simMesh) order(p *simPeer, c leadership.Claim) {
	if c.Peer == "" || !leadership.Obey(p.kept, c.Fence) {
		return
	}
	if c.Fence.Less(p.kept) {
		m.t.Fatalf("%s obeys %v after %v", p.id, c.Fence, p.kept)
	}
	p.kept, p.obeys = c.Fence, c
}

// decide is what each peer does now and then.
func (m *simMesh) decide(p *simPeer) leadership.Decision {
	var candidates []leadership.Candidate
	for _, q := range m.peers {
		candidates = append(candidates, leadership.Candidate{ID: q.id, Able: q.able, Alive: p.sees[q.id], Settled: q.settled})
	}
	d := leadership.Leader("m", p.claim, candidates)
	if d.Claim && d.Leader == p.id {
		if !p.claim.Fence.Less(d.Fence) {
			m.t.Fatalf("%s claims %v and knows of %v", p.id, d.Fence, p.claim.Fence)
		}
		m.learn(p, leadership.Claim{Peer: p.id, Fence: d.Fence})
	}
	return d
}

// rest lets everything that was said arrive, without new disturbance.
func (m *simMesh) rest() {
	for range len(m.peers) + 3 {
		for _, p := range m.peers {
			if !p.up {
				continue
			}
			m.look(p)
			for _, q := range m.peers {
				if m.connected(p, q) {
					m.learn(q, p.claim)
				}
			}
			m.decide(p)
		}
	}
}

// check holds each connected part to its one leader.
func (m *simMesh) check() {
	for _, p := range m.peers {
		if !p.up {
			continue
		}
		able := false
		for _, q := range m.peers {
			able = able || m.connected(p, q) && q.able
		}
		before := p.claim
		d := m.decide(p)
		if p.claim != before {
			m.t.Fatalf("%s is not at rest", p.id)
		}
		if !able {
			if d.Leader != "" {
				m.t.Fatalf("%s is led by %s, where nobody is able", p.id, d.Leader)
			}
			continue
		}
		var leader *simPeer
		for _, q := range m.peers {
			if q.id == d.Leader {
				leader = q
			}
		}
		if leader == nil || !m.connected(p, leader) || !leader.able {
			m.t.Fatalf("%s is led by %q, which cannot", p.id, d.Leader)
		}
		for _, q := range m.peers {
			if !m.connected(p, q) {
				continue
			}
			if other := m.decide(q); other.Leader != d.Leader || other.Fence != d.Fence {
				m.t.Fatalf("%s and %s are in one part and led by %+v and %+v", p.id, q.id, d, other)
			}
			if q.obeys.Peer != d.Leader || q.kept != d.Fence {
				m.t.Fatalf("%s obeys %+v and not its leader %+v", q.id, q.obeys, d)
			}
		}
	}
}

func TestMesh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &simMesh{t: t}
		for i := range rapid.IntRange(1, 6).Draw(t, "peers") {
			m.peers = append(m.peers, &simPeer{id: fmt.Sprint("peer", i), up: true, able: true, settled: rapid.Bool().Draw(t, "settled"),
				sees: make(map[string]bool)})
		}
		some := func(t *rapid.T) *simPeer { return m.peers[rapid.IntRange(0, len(m.peers)-1).Draw(t, "peer")] }
		var said []leadership.Claim // every order ever given
		act := func(p *simPeer) {
			if d := m.decide(p); d.Leader == p.id {
				said = append(said, leadership.Claim{Peer: p.id, Fence: d.Fence})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"partition": func(t *rapid.T) {
				for _, p := range m.peers {
					p.side = rapid.IntRange(0, 2).Draw(t, "side")
				}
			},
			"heal": func(*rapid.T) {
				for _, p := range m.peers {
					p.side = 0
				}
			},
			"sleep or crash": func(t *rapid.T) { some(t).up = false },
			"wake":           func(t *rapid.T) { some(t).up = true }, // with what it believed before
			"restart": func(t *rapid.T) {
				p := some(t)
				p.up, p.settled, p.sees = true, false, map[string]bool{p.id: true}
			},
			"settle": func(t *rapid.T) { some(t).settled = true },
			"drain":  func(t *rapid.T) { p := some(t); p.able = !p.able },
			"look": func(t *rapid.T) {
				if p := some(t); p.up {
					m.look(p)
				}
			},
			"decide": func(t *rapid.T) {
				if p := some(t); p.up {
					act(p)
				}
			},
			"gossip": func(t *rapid.T) {
				if p, q := some(t), some(t); m.connected(p, q) {
					m.learn(q, p.claim)
				}
			},
			"an old order arrives": func(t *rapid.T) {
				if p := some(t); p.up && len(said) > 0 {
					m.learn(p, said[rapid.IntRange(0, len(said)-1).Draw(t, "which")])
				}
			},
			"rest": func(*rapid.T) {
				m.rest()
				m.check()
			},
		})
		for _, p := range m.peers {
			p.side, p.up = 0, true
		}
		m.rest()
		m.check()
	})
}

// An old leader that slept through its replacement wakes, believes that it
// leads, and gives orders before it hears anything.
func TestOldLeaderWakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &simMesh{t: t}
		n := rapid.IntRange(2, 6).Draw(t, "peers")
		for i := range n {
			m.peers = append(m.peers, &simPeer{id: fmt.Sprint("peer", i), up: true, able: true, settled: true, sees: make(map[string]bool)})
		}
		m.rest()
		var old *simPeer
		for _, p := range m.peers {
			if m.decide(p).Leader == p.id {
				old = p
			}
		}
		old.up = false
		m.rest()
		before := make(map[string]simPeer)
		for _, p := range m.peers {
			before[p.id] = *p
		}
		old.up = true
		d := m.decide(old)
		if d.Leader != old.id {
			t.Fatal("this test does not test what it says")
		}
		for _, p := range m.peers {
			if p != old {
				m.order(p, leadership.Claim{Peer: old.id, Fence: d.Fence})
				m.learn(p, old.claim)
				if was := before[p.id]; p.kept != was.kept || p.obeys != was.obeys || p.claim != was.claim {
					t.Fatalf("the old leader's word changed %s: %+v, was %+v", p.id, p, was)
				}
			}
		}
		m.rest()
		m.check()
		if now := m.decide(old); now.Leader == old.id {
			t.Fatal("the old leader leads again, though its successor is alive")
		}
	})
}
