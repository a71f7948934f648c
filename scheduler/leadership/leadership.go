package leadership

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
	// Alive: it is not gone, as far as the one who asks can see. One is always
	// alive to oneself.
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
// one with the highest rank takes over with the next epoch, of equal ranks the
// one with the higher id. Those up for less than half a minute stand only where
// nobody has been up for longer: a peer that has just started does not know the
// mesh yet, and may be about to fall again. The order of the candidates does
// not matter.
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
	if incumbent.Fence.Epoch+1 >= MaxEpoch {
		return Decision{} // no epoch is left; see MaxEpoch
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
