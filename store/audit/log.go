package audit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"relay/store"
)

const (
	// MostRows is the most rows that one question is answered with.
	MostRows = 1000
	// groupEvery is how often rows are written: each time costs a sync, which others
	// who write to the same database wait for too.
	groupEvery = 250 * time.Millisecond
	// groupMost is the most rows that are written at once; in bytes they stay far below
	// what one transaction holds.
	groupMost = 256
	// strangersRate and strangersBurst bound the rows of requests that no key opened
	// the door for, each second and at once: anybody can make those.
	strangersRate, strangersBurst = 5, 50
)

// Options are what a log is made of. Space is needed; the zero value of everything
// else is a default.
type Options struct {
	// Space is the log's alone.
	Space *store.Space
	// Keep is how long a row stays; 0 is 30 days, the least is a second.
	Keep time.Duration
	// Most is about how many rows stay: once a tenth more are there, the oldest go. 0
	// is 100,000.
	Most int
	// Buffer is how many rows may wait for the disk; 0 is 4096.
	Buffer int
	// Log may be nil.
	Log *slog.Logger
}

// Validate names the setting at fault.
func (o Options) Validate() error {
	switch {
	case o.Space == nil:
		return errors.New("space: an audit log needs one")
	case o.Keep < 0 || o.Keep > 0 && o.Keep < time.Second:
		return fmt.Errorf("keep: %s is less than a second", o.Keep)
	case o.Most < 0:
		return fmt.Errorf("most: %d rows are less than none", o.Most)
	case o.Buffer < 0:
		return fmt.Errorf("buffer: %d rows are less than none", o.Buffer)
	}
	return nil
}

// Log holds the rows of one peer's door. It is safe for concurrent use.
type Log struct {
	opt       Options
	strangers *rate.Limiter
	full      chan struct{} // A group is whole.

	overrun, flood atomic.Uint64

	// writes is held while rows are written or the oldest deleted, before mu.
	writes sync.Mutex
	rows   int // About how many are on disk; guarded by writes.

	mu      sync.Mutex
	last    uint64 // The mark of the last row.
	waiting []entry
}

// entry is a row with its mark: microseconds since 1970 when it came in, or one more
// than the row before it. It is the row's key, so that rows lie in the order in which
// they came.
type entry struct {
	mark uint64
	row  Row
}

// New makes a log, which keeps rows once Run works.
func New(o Options) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Keep == 0 {
		o.Keep = 30 * 24 * time.Hour
	}
	if o.Most == 0 {
		o.Most = 100_000
	}
	if o.Buffer == 0 {
		o.Buffer = 4096
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{opt: o, strangers: rate.NewLimiter(strangersRate, strangersBurst), full: make(chan struct{}, 1)}
	var err error
	if l.rows, err = o.Space.Count(); err != nil {
		return nil, err
	}
	err = o.Space.ScanBack(func(key, _ []byte) error {
		l.last = markOf(key)
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return l, nil
}

// errEnough ends a scan that has found what it looked for.
var errEnough = errors.New("enough")

// Add takes a row in. It never waits for the disk: where that cannot keep up, the row
// is lost and counted. So it is with requests that no key opened the door for, beyond
// some each second.
func (l *Log) Add(r Row) {
	if r.Key == "" && !l.strangers.Allow() {
		l.flood.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= l.opt.Buffer {
		l.overrun.Add(1)
		return
	}
	l.last = max(l.last+1, uint64(time.Now().UnixMicro()))
	l.waiting = append(l.waiting, entry{l.last, r.Bounded()})
	if len(l.waiting) >= groupMost {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// Lost is how many rows are missing since the start: overrun because the disk could not
// keep up, flood because too many requests came without a key.
func (l *Log) Lost() (overrun, flood uint64) { return l.overrun.Load(), l.flood.Load() }

// Run writes rows in groups until ctx is done, then writes what is left and returns
// nil. A crash loses the rows of the last quarter of a second.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(groupEvery)
	defer tick.Stop()
	var failed error
	var told uint64
	for {
		done := false
		select {
		case <-ctx.Done():
			done = true
		case <-tick.C:
		case <-l.full:
			if failed != nil { // It is tried again in time.
				continue
			}
		}
		err := l.flush()
		if err != nil && failed == nil {
			l.opt.Log.Warn("audit rows cannot be written", "error", err)
		}
		failed = err
		if done && err != nil {
			l.drop()
		}
		if lost := l.overrun.Load(); lost > told && (err == nil || done) {
			l.opt.Log.Warn("audit rows were lost: the disk could not keep up", "rows", lost-told)
			told = lost
		}
		if done {
			return nil
		}
	}
}

// flush writes all that waits, group by group.
func (l *Log) flush() error {
	l.writes.Lock()
	defer l.writes.Unlock()
	for {
		l.mu.Lock()
		group := slices.Clone(l.waiting[:min(groupMost, len(l.waiting))])
		l.mu.Unlock()
		if len(group) == 0 {
			return nil
		}
		if err := l.write(group); err != nil {
			return err
		}
		// They waited in view until they were on disk, so that no reader missed them.
		l.mu.Lock()
		l.waiting = append([]entry(nil), l.waiting[len(group):]...)
		l.mu.Unlock()
	}
}

func (l *Log) write(group []entry) error {
	writes := make([]store.Write, 0, len(group))
	for _, e := range group {
		value, err := json.Marshal(e.row)
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Key: keyOf(e.mark), Value: value})
	}
	if err := l.opt.Space.ApplyFor(l.opt.Keep, writes); err != nil {
		return err
	}
	l.rows += len(group)
	return l.trim()
}

// trim deletes the oldest rows once there are a tenth more than are kept.
func (l *Log) trim() error {
	most := l.opt.Most
	if l.rows <= most+most/10 {
		return nil
	}
	var err error
	if l.rows, err = l.opt.Space.Count(); err != nil { // Some have had their time.
		return err
	}
	for l.rows > most+most/10 {
		var oldest []store.Write
		err := l.opt.Space.ScanFrom(nil, func(key, _ []byte) error {
			if len(oldest) >= min(l.rows-most, store.MaxWrites/2) {
				return errEnough
			}
			oldest = append(oldest, store.Write{Key: key, Delete: true})
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if err := l.opt.Space.Apply(oldest); err != nil {
			return err
		}
		l.rows -= len(oldest)
	}
	return nil
}

// drop gives up what cannot be written any more.
func (l *Log) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overrun.Add(uint64(len(l.waiting)))
	l.waiting = nil
}

func keyOf(mark uint64) []byte { return binary.BigEndian.AppendUint64(nil, mark) }

func markOf(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}
