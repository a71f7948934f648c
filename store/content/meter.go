package content

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// meter counts what a pull receives, and from whom, and holds it to a limit.
type meter struct {
	limit atomic.Pointer[rate.Limiter]
	got   atomic.Int64 // bytes in all

	mu      sync.Mutex
	sources map[string]*flow // by id
}

// flow is what came from one source.
type flow struct {
	name  string
	bytes int64 // good ones
	// since is what came after mark, and rate what came before, in bytes a second.
	since int64
	mark  time.Time
	rate  float64
}

const (
	// rateEvery is how often a rate is worked out anew, and firstRate how soon for
	// the first time; after rateStale without a byte it is what came since.
	rateEvery = 250 * time.Millisecond
	firstRate = 20 * time.Millisecond
	rateStale = 2 * time.Second
	// rateWeight is how much the latest figure counts.
	rateWeight = 0.4
)

// setLimit holds what comes to that many bytes a second; 0 leaves it as it is.
func (m *meter) setLimit(perSecond int64) {
	if perSecond <= 0 {
		return
	}
	m.limit.Store(rate.NewLimiter(rate.Limit(perSecond), int(min(max(perSecond/4, pieceBytes/4), 4*pieceBytes))))
}

// wait returns when n more bytes may come; passing is called each time that some
// may. A limit that changes meanwhile counts from the next portion on.
func (m *meter) wait(ctx context.Context, n int, passing func()) error {
	for n > 0 {
		l := m.limit.Load()
		if l == nil {
			return nil
		}
		some := min(n, l.Burst(), max(1<<10, int(l.Limit()/2)))
		if err := l.WaitN(ctx, some); err != nil {
			return err
		}
		passing()
		n -= some
	}
	return nil
}

// most is how many holders a limit keeps busy, maxHands at most.
func (m *meter) most() int {
	if l := m.limit.Load(); l != nil {
		return min(max(1, int(l.Limit())/(64<<10)), maxHands)
	}
	return maxHands
}

// limited says whether there is a limit.
func (m *meter) limited() bool { return m.limit.Load() != nil }

func (m *meter) flow(id, name string, now time.Time) *flow {
	f := m.sources[id]
	if f == nil {
		if m.sources == nil {
			m.sources = map[string]*flow{}
		}
		f = &flow{name: name, mark: now}
		m.sources[id] = f
	}
	return f
}

// begin says that a source is asked now: the time before counts for nothing.
func (m *meter) begin(id, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if f := m.flow(id, name, now); now.Sub(f.mark) > rateEvery {
		f.since, f.mark = 0, now
	}
}

// came counts n bytes from a source and returns how fast they come of late.
func (m *meter) came(id, name string, n int) (perSecond float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	f := m.flow(id, name, now)
	f.since += int64(n)
	passed := now.Sub(f.mark)
	switch latest := float64(f.since) / passed.Seconds(); {
	case f.rate == 0 && passed >= firstRate:
		f.rate, f.since, f.mark = latest, 0, now
	case passed >= rateEvery:
		f.rate += rateWeight * (latest - f.rate)
		f.since, f.mark = 0, now
	}
	return f.rate
}

// good counts bytes of a source that were verified.
func (m *meter) good(id, name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flow(id, name, time.Now()).bytes += int64(n)
}

// now is how fast all comes, and what each source has sent, the most first.
func (m *meter) now() (perSecond float64, from []Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, f := range m.sources {
		s := Source{Name: f.name, Bytes: f.bytes, Rate: f.rate}
		if passed := now.Sub(f.mark); passed > rateStale {
			s.Rate = float64(f.since) / passed.Seconds()
		}
		perSecond += s.Rate
		from = append(from, s)
	}
	slices.SortFunc(from, func(a, b Source) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	return perSecond, from
}
