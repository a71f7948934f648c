// Package leadership decides which peer leads a model. It is pure: the same
// claim and the same candidates give the same answer on every peer, and no
// clock, network or goroutine is involved.
package leadership

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
)

// Fence orders the commands about one model, those of every leader it ever had.
type Fence struct {
	// Epoch grows by one with each takeover; 0 means that nobody has led yet.
	Epoch uint64
	// Rank is the leader's rank for the model, so that two takeovers of one
	// epoch on two sides of a cut are ordered as well.
	Rank uint64
}

// Compare returns -1, 0 or +1 as f is lower than, equal to or higher than o.
func (f Fence) Compare(o Fence) int {
	return cmp.Or(cmp.Compare(f.Epoch, o.Epoch), cmp.Compare(f.Rank, o.Rank))
}

// Less says whether f is lower than o.
func (f Fence) Less(o Fence) bool { return f.Compare(o) < 0 }

// Obey says whether a worker that has obeyed kept may obey ordered.
func Obey(kept, ordered Fence) bool { return !ordered.Less(kept) }

// Rank is a peer's rank for a model: the first 64 bits of the sha256 of both
// (rendezvous hashing: each model has an order of peers of its own, and a peer
// that comes or goes moves only the models that it led or will lead).
func Rank(uid, peer string) uint64 {
	h := sha256.New()
	h.Write([]byte(uid))
	h.Write([]byte{0})
	h.Write([]byte(peer))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// Claim is who leads a model by the records, and under which fence. Its zero
// value means that nobody ever has.
type Claim struct {
	Peer  string
	Fence Fence
}

// Candidate is one peer as it may be elected.
type Candidate struct {
	ID string
	// Able: it may run whole models and is not draining.
	Able bool
	// Alive: it is not gone, as far as the one who asks can see.
	Alive bool
	// Settled: it has been up for half a minute.
	Settled bool
}

// Decision is the outcome of an election.
type Decision struct {
	// Leader is the peer that leads or is to lead; empty where nobody can.
	Leader string
	// Fence is the one it leads under, or is to claim.
	Fence Fence
	// Claim says that the leader has still to write its claim.
	Claim bool
}

// Leader elects: the incumbent leads while it is alive and able; else the able
// one with the highest rank takes over with the next epoch. Those up for less
// than half a minute stand only where nobody alive has been up for longer.
func Leader(uid string, incumbent Claim, candidates []Candidate) Decision {
	settled := false
	for _, c := range candidates {
		if !c.Alive || !c.Able {
			continue
		}
		if c.ID == incumbent.Peer {
			return Decision{Leader: c.ID, Fence: incumbent.Fence}
		}
		settled = settled || c.Settled
	}
	var best string
	var rank uint64
	for _, c := range candidates {
		if !c.Alive || !c.Able || settled && !c.Settled {
			continue
		}
		if r := Rank(uid, c.ID); best == "" || r > rank || r == rank && c.ID > best {
			best, rank = c.ID, r
		}
	}
	if best == "" {
		return Decision{}
	}
	return Decision{Leader: best, Fence: Fence{incumbent.Fence.Epoch + 1, rank}, Claim: true}
}
