package setback

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// parks is how many failures of an engine in a row park a model.
	parks = 5
	// wellAfter is how long a model has to be ready for its failures to be forgotten:
	// an engine that dies each minute, and serves nobody, fails in a row.
	wellAfter = 5 * time.Minute
	// maxText bounds the sentences that are kept, in bytes.
	maxText = 512
	// most bounds the failures that are counted.
	most = 1 << 20
)

// Key is one model on one peer, run one way: where a GPU does not do, the CPU may.
// Way is "" for what concerns the peer however it runs.
type Key struct{ Peer, UID, Way string }

// Failure is what a peer reported.
type Failure struct {
	// Mark names the report: it counts once, however often it is seen.
	Mark string
	// Parks: an engine failed, with a build. Refusals never park.
	Parks bool
	// Served: requests got their answers before it, so it is the first in a row.
	Served bool
	// Reason is a word of scheduler's closed list, Text its sentence; Build is the
	// commit of the engine, "" where it is not known.
	Reason, Text, Build string
}

// State is how a model stands on a peer.
type State struct {
	// Blocked: not to be tried now; Parked: nor later, by itself.
	Blocked, Parked bool
	// Reason and Text are those of the last failure, of an engine where it is Parked.
	Reason, Text string
	// Until is when it may be tried again; zero where it is Parked or never failed.
	Until time.Time
	// Failures are those in a row.
	Failures int
	// Mark is the report that was counted last.
	Mark string
}

// Parked is what is kept of a model that is parked on a peer.
type Parked struct {
	Peer     string `cbor:"1,keyasint" json:"peer"`
	Build    string `cbor:"2,keyasint,omitempty" json:"build,omitempty"`
	Reason   string `cbor:"3,keyasint" json:"reason"`
	Text     string `cbor:"4,keyasint" json:"text"`
	Failures int    `cbor:"5,keyasint" json:"failures"`
	// Way is the one way that failed; "" is all of them.
	Way string `cbor:"6,keyasint,omitempty" json:"way,omitempty"`
}

// Book is the account. All its methods may be called from any goroutine.
type Book struct {
	mu   sync.Mutex
	rows map[Key]*row
}

// row is one key's; its zero value is of what never failed.
type row struct {
	mark         string
	reason, text string
	build        string
	failures     int // in a row, refusals counted
	engine       int // of them those that park
	until        time.Time
	well         time.Time // since when it is ready
}

func (r *row) parked() bool { return r.engine >= parks }

// forget leaves the mark: a report that is still there does not count again.
func (r *row) forget() { *r = row{mark: r.mark} }

// New makes an account of no failures.
func New() *Book { return &Book{rows: map[Key]*row{}} }

// Note counts a failure, unless it is the one that was counted last. Failures of
// an engine with another build than those before, or that had served, begin a new row.
func (b *Book) Note(k Key, f Failure, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.rows[k]
	r := b.row(k)
	if known && f.Mark == r.mark {
		return
	}
	r.mark, r.well = f.Mark, time.Time{}
	if f.Parks && (f.Served || differ(f.Build, r.build)) {
		r.forget()
	}
	if r.parked() && !f.Parks { // What parked it is what there is to say.
		return
	}
	r.failures = min(r.failures+1, most)
	if f.Parks {
		r.engine = min(r.engine+1, most)
		r.build = cmp.Or(f.Build, r.build)
	}
	r.reason, r.text = f.Reason, cut(f.Text)
	r.until = now.Add(Delay(k, r.failures))
}

// Well says that the model is ready there now. Once it was for five minutes, with no
// failure in between, all is forgotten.
func (b *Book) Well(k Key, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rows[k]
	switch {
	case r == nil:
	case r.well.IsZero():
		r.well = now
	case now.Sub(r.well) >= wellAfter:
		r.forget()
	}
}

// Look says how a model stands on a peer that has a build of the engine, "" where
// it is not known. With another one than it failed with all is forgotten.
func (b *Book) Look(k Key, build string, now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rows[k]
	if r == nil {
		return State{}
	}
	if differ(build, r.build) {
		r.forget()
	}
	s := State{Parked: r.parked(), Reason: r.reason, Text: r.text, Failures: r.failures, Mark: r.mark}
	if !s.Parked {
		s.Until = r.until
	}
	s.Blocked = s.Parked || now.Before(s.Until)
	return s
}

// Forget lets a model be tried again everywhere, as if it had never failed.
func (b *Book) Forget(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, r := range b.rows {
		if k.UID == uid {
			r.forget()
		}
	}
}

// Keep drops what is kept of models that are no more.
func (b *Book) Keep(alive func(uid string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.rows {
		if !alive(k.UID) {
			delete(b.rows, k)
		}
	}
}

// Adopt takes over that a model is parked on a peer. Whoever takes over a model
// forgets first what it knew of it from earlier.
func (b *Book) Adopt(k Key, p Parked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.row(k)
	n := max(parks, min(p.Failures, most))
	*r = row{mark: r.mark, reason: p.Reason, text: cut(p.Text), build: p.Build, failures: n, engine: n}
}

// Parked lists where a model is parked, by peer.
func (b *Book) Parked(uid string) (list []Parked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, r := range b.rows {
		if k.UID == uid && r.parked() {
			list = append(list, Parked{k.Peer, r.build, r.reason, r.text, r.engine, k.Way})
		}
	}
	slices.SortFunc(list, func(a, b Parked) int { return cmp.Or(strings.Compare(a.Peer, b.Peer), strings.Compare(a.Way, b.Way)) })
	return list
}

func (b *Book) row(k Key) *row {
	r := b.rows[k]
	if r == nil {
		r = new(row)
		b.rows[k] = r
	}
	return r
}

// differ says of two builds that they are known not to be the same.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// cut shortens a text to what is kept, between two characters.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
}
