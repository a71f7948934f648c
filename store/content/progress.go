package content

import (
	"sync"
	"time"
)

// Phase says what an Add or a Pull is doing.
type Phase string

// The phases of an Add (hashing, then writing) and of a Pull, in their order.
const (
	// PhasePlan: the DAG's inner nodes are being fetched.
	PhasePlan Phase = "plan"
	// PhaseCheck: bytes that are here already are being hashed.
	PhaseCheck Phase = "check"
	// PhaseFetch: blocks are being fetched.
	PhaseFetch Phase = "fetch"
	// PhaseHash: a file is being added.
	PhaseHash Phase = "hash"
	// PhaseWait: nothing can be done until something changes; Progress.Why says
	// what. The pull then goes on by itself.
	PhaseWait Phase = "wait"
	// PhaseFinish: everything is here and is being registered.
	PhaseFinish Phase = "finish"
)

// Progress is how far an Add or a Pull is.
type Progress struct {
	Phase Phase
	// Done of Total bytes are hashed, or are here and verified. Total is -1
	// while it is not known.
	Done, Total int64
	// Fetched is how many bytes this run has received from others.
	Fetched int64
	// Rate is what came of late, in bytes a second; Left is how long the rest takes
	// at that rate, -1 while nobody can say.
	Rate float64
	Left time.Duration
	// From are those it comes from, the most first.
	From []Source
	// Why says in words what a pull in PhaseWait waits for.
	Why string
}

// Source is one holder's part in a pull.
type Source struct {
	// Name is the holder's for people; "" is whoever sends single blocks.
	Name string
	// Bytes are those of this run that were good, Rate what came of late, in bytes
	// a second.
	Bytes int64
	Rate  float64
}

// reportEvery is the shortest time between two reports of one phase.
const reportEvery = 100 * time.Millisecond

// reporter hands progress to fn, one call at a time and not too often; a change
// of phase and the end of one always get through. fn is called from a goroutine of
// its own: of several who pull one model, whoever does not take what he is told
// holds up nobody else.
type reporter struct {
	fn func(Progress)
	// direct: fn is called by whoever reports, who waits for it: it holds up only
	// its own work, or hands on to another reporter.
	direct bool

	mu      sync.Mutex
	last    Progress
	at      time.Time
	off     bool
	pending []Progress
	told    chan struct{} // Closed when nothing is pending; nil when nothing is.
}

// maxPending bounds what waits to be told: of each phase the latest.
const maxPending = 16

func (r *reporter) report(p Progress) {
	if r == nil || r.fn == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	// Several goroutines report: an earlier figure may come later.
	backwards := p.Phase == r.last.Phase && p.Done < r.last.Done
	if r.off || backwards || (p.Phase == r.last.Phase && p.Done < p.Total && now.Sub(r.at) < reportEvery) {
		return
	}
	r.last, r.at = p, now
	if r.direct {
		r.fn(p)
		return
	}
	if n := len(r.pending); n > 0 && (r.pending[n-1].Phase == p.Phase || n == maxPending) {
		r.pending = r.pending[:n-1]
	}
	r.pending = append(r.pending, p)
	if r.told == nil {
		r.told = make(chan struct{})
		go r.tell()
	}
}

func (r *reporter) tell() {
	for {
		r.mu.Lock()
		if len(r.pending) == 0 {
			close(r.told)
			r.told = nil
			r.mu.Unlock()
			return
		}
		p := r.pending[0]
		r.pending = r.pending[1:]
		r.mu.Unlock()
		r.fn(p)
	}
}

// stop returns when all is told, and fn will not be called again.
func (r *reporter) stop() {
	r.mu.Lock()
	r.off = true
	told := r.told
	r.mu.Unlock()
	if told != nil {
		<-told
	}
}
