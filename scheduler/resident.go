package scheduler

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"relay/scheduler/admission"
	"relay/scheduler/ways"
)

// engine is a process of this peer that serves a model, with the requests that it
// has. What changes is of worker.mu.
type engine struct {
	uid     string
	name    string // Under which its memory is reserved, and its turns on the cores are counted.
	nth     int
	number  uint64 // Of all that this peer has started.
	model   Model  // As it was started.
	process Process
	pid     atomic.Int64 // Also while it starts; 0 before.
	way     ways.Way
	queue   *admission.Queue
	cores   int // That it keeps busy while it computes; 0 where a GPU does that.
	load    time.Duration
	ready   time.Time

	inFlight int
	queued   int           // Of them those that wait for the cores.
	peak     int           // The most requests at a time since its timings were last looked at.
	used     time.Time     // When a request last ended; zero before the first.
	idle     chan struct{} // Closed when the last request ends; nil while nobody waits for that.
	rest     chan struct{} // A request ended, and none runs.
	doubt    chan struct{} // A request waited for a token in vain.
	shut     chan struct{} // Closed when nothing new is let in any more.
	since    time.Time     // Since when requests wait; zero while none does.
	pressure string        // What the mesh was told of its load.
	timings  Timings       // At the last look.
	freed    chan struct{} // Closed when its memory is given back.
	timed    bool          // The engine tells its timings.
	noted    time.Time     // When its speed was last told.
	looked   time.Time     // When its memory was last looked at.
	hung     bool          // It was ended because it did nothing.
	halved   bool          // It was to be replaced by one with half the cores.
	baseline uint64        // What it took at the first look, in bytes.
	tunnels  *tunnels      // To the workers of its group; nil where it has none.
	turns    uint64        // That were counted there at the last look.
	private  atomic.Uint64 // Memory that nobody else could have while it lives, at the last look, in bytes.
}

func newEngine(l Launch) *engine {
	return &engine{
		uid: l.UID, name: l.instance(), nth: l.Nth, model: l.Model, way: l.Way, queue: admission.New(l.Model.Slots, maxQueue),
		rest: make(chan struct{}, 1), doubt: make(chan struct{}, 1), shut: make(chan struct{}), freed: make(chan struct{}),
	}
}

// onCPU says whether it computes on the cores that are lent.
func (e *engine) onCPU() bool { return onCPU(e.way) }

func onCPU(way ways.Way) bool {
	return way.Kind == ways.CPU || way.Kind == ways.Hybrid || way.Kind == ways.Shards && len(way.Parts) > 0 && way.Parts[len(way.Parts)-1].Layers > 0
}

// waiting is how many of its requests wait: for a slot, or for the cores;
// worker.mu is held.
func (e *engine) waiting() int { return e.queue.Waiting() + e.queued }

// InFlight counts the requests on each of this peer's replicas, by uid.
func (s *Scheduler) InFlight() map[string]int {
	counts := map[string]int{}
	for _, l := range s.Workload() {
		if l.InFlight > 0 {
			counts[l.UID] = l.InFlight
		}
	}
	return counts
}

// Workload lists this peer's own replicas, by uid.
func (s *Scheduler) Workload() []Workload {
	w := s.work
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []Workload{}
	for _, uid := range slices.Sorted(maps.Keys(w.runs)) {
		r := w.runs[uid]
		l := Workload{UID: uid, State: r.told.State}
		for e := range w.engines {
			if e.uid != uid || e.ready.IsZero() {
				continue
			}
			l.InFlight += e.inFlight
			l.Waiting += e.waiting()
			l.LastServed = latest(l.LastServed, e.used)
			l.Resident = latest(l.Resident, e.ready)
			l.Links = append(l.Links, e.tunnels.use()...)
		}
		list = append(list, l)
	}
	return list
}

// latest is how many seconds ago the later of two moments was, one of them given so
// already; nil where there was none.
func latest(ago *float64, t time.Time) *float64 {
	seconds := time.Since(t).Seconds()
	if t.IsZero() || ago != nil && *ago <= seconds {
		return ago
	}
	return &seconds
}

// owned is what this peer's own engines take, with the memory of the host that
// nobody else could have while they live, and the devices on which one of them is
// starting: what that one holds is not told from what other programs do.
type owned struct {
	Own
	private  uint64
	starting map[string]bool
}

func (w *worker) own() owned {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := owned{Own: Own{Bytes: w.s.ledger.Reserved(), Engines: map[string]int{}}, starting: map[string]bool{}}
	for e := range w.engines {
		for _, part := range e.way.Parts {
			if part.Layers > 0 {
				o.Engines[part.Device]++
			}
		}
		if pid := int(e.pid.Load()); pid > 0 {
			o.PIDs = append(o.PIDs, pid)
		}
		o.private += e.private.Load()
		if e.process == nil {
			for _, part := range e.way.Parts {
				o.starting[part.Device] = true
			}
		}
	}
	for _, s := range w.shares {
		for _, part := range s.take.Parts {
			if part.Layers > 0 {
				o.Engines[part.Device]++
			}
			if s.server == nil && !s.failed {
				o.starting[part.Device] = true
			}
		}
		if pid := int(s.pid.Load()); pid > 0 {
			o.PIDs = append(o.PIDs, pid)
		}
		o.private += s.private.Load()
	}
	return o
}

// partsOf puts what is reserved by device into the order of a way's parts.
func partsOf(reserved map[string]uint64, way ways.Way) []ways.Part {
	parts := slices.Clone(way.Parts)
	for i := range parts {
		if bytes, ok := reserved[parts[i].Device]; ok {
			parts[i].Bytes = bytes
		}
	}
	return parts
}
