package demand

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// askedFor is how long others are unloaded for a model after it was asked for.
	askedFor = 30 * time.Second
	// growAfter is the least time between any change and one more replica,
	// shrinkAfter between any change and one less.
	growAfter, shrinkAfter = time.Minute, 10 * time.Minute
	// maxExtra bounds what load adds, whatever was adopted.
	maxExtra = 1 << 10
)

// Policy is what somebody said about a model.
type Policy struct {
	// Min and Max bound its replicas; 0 is that nothing was said. A maximum below
	// the minimum counts as the minimum.
	Min, Max int
	// Pinned: it is to run at all times.
	Pinned bool
}

// said is how many replicas are wanted at all times; 0 where nothing was said.
func (p Policy) said() int {
	if p.Pinned {
		return max(1, p.Min)
	}
	return max(0, p.Min)
}

// Replica is one that is ready.
type Replica struct {
	Peer string
	// Pressed: requests have waited there for a minute. Quiet: there were none for
	// ten minutes.
	Pressed, Quiet bool
}

// Want is how many replicas are wanted.
type Want struct {
	Count int
	// Grow: some of Count are for the load alone. They are not worth more than what
	// is free.
	Grow bool
	// Less is the peer that is to give up its replica, where more are ready than
	// wanted and one of them is quiet; else "".
	Less string
	// Evict: idle models may be unloaded for it.
	Evict bool
	// Why is a part of a sentence.
	Why string
}

// Past is what a leader leaves to its successor.
type Past struct {
	// Asleep: it was unloaded, and nobody asked for it since.
	Asleep bool `cbor:"1,keyasint,omitempty" json:"asleep,omitempty"`
	// Extra is how many replicas were added by load.
	Extra int `cbor:"2,keyasint,omitempty" json:"extra,omitempty"`
}

// Book is the account. All its methods may be called from any goroutine.
type Book struct {
	mu   sync.Mutex
	rows map[string]*row
}

// row is one model's; its zero value is of one that is awake.
type row struct {
	Past
	asked   time.Time // last; zero where it never was, or slept since
	changed time.Time // when load changed the count last; first the time of the first look
	less    string    // who gave up its replica last
}

// New makes an account of nothing.
func New() *Book { return &Book{rows: map[string]*row{}} }

// Asked says that somebody waits for the model: it is awake from now on. Whoever
// goes on waiting says so again.
func (b *Book) Asked(uid string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.row(uid)
	r.Asleep, r.asked = false, now
}

// Slept says that the model's replicas were all unloaded: because nobody used
// them, for another model, or by hand.
func (b *Book) Slept(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.row(uid) = row{Past: Past{Asleep: true}}
}

// Adopt takes over what a former leader left, instead of what was known from
// earlier.
func (b *Book) Adopt(uid string, p Past) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.Extra = max(0, min(p.Extra, maxExtra))
	*b.row(uid) = row{Past: p}
}

// Past is what a successor has to know.
func (b *Book) Past(uid string) Past {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.rows[uid]; r != nil {
		return r.Past
	}
	return Past{}
}

// Keep drops what is kept of models that are no more.
func (b *Book) Keep(alive func(uid string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid := range b.rows {
		if !alive(uid) {
			delete(b.rows, uid)
		}
	}
}

// Look says what is wanted now of a model of which so many replicas run, loading
// ones counted, and these are ready. Without a maximum load adds as long as all
// that was added found a place.
func (b *Book) Look(uid string, p Policy, running int, ready []Replica, now time.Time) Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.row(uid)
	if r.changed.IsZero() {
		r.changed = now
	}
	base := p.said()
	if base > 0 {
		r.Asleep = false
	} else if r.Asleep {
		return Want{Why: "it sleeps until it is asked for"}
	} else {
		base = 1
	}
	most := base + maxExtra
	if p.Max > 0 {
		most = max(base, p.Max)
	}
	r.Extra = min(r.Extra, most-base)
	grew := r.load(base, most, running, ready, now)
	asked := !r.asked.IsZero() && now.Sub(r.asked) < askedFor
	w := Want{Count: base + r.Extra, Grow: r.Extra > 0}
	w.Less = r.giveUp(w.Count, ready)
	w.Evict = (p.said() > 0 || asked) && (running < base || !w.Grow)
	w.Why = why(p, asked, grew, r.Extra)
	return w
}

// load adds or takes away one replica where it is time to, and says whether it
// added one.
func (r *row) load(base, most, running int, ready []Replica, now time.Time) (grew bool) {
	count, since := base+r.Extra, now.Sub(r.changed)
	settled := len(ready) >= count && running <= len(ready)
	pressed := len(ready) > 0 && !slices.ContainsFunc(ready, func(x Replica) bool { return !x.Pressed })
	quiet := slices.ContainsFunc(ready, func(x Replica) bool { return x.Quiet })
	switch {
	case settled && pressed && count < most && since >= growAfter:
		r.Extra, r.changed = r.Extra+1, now
		return true
	// One that never found a place is given up like one that is ready.
	case (settled || running < count) && quiet && r.Extra > 0 && since >= shrinkAfter:
		r.Extra, r.changed = r.Extra-1, now
	}
	return false
}

// giveUp picks the quiet peer that is one too many: the same one until it is
// gone.
func (r *row) giveUp(count int, ready []Replica) string {
	var quiet []string
	for _, x := range ready {
		if x.Peer == r.less && len(ready) > count {
			return r.less
		}
		if x.Quiet {
			quiet = append(quiet, x.Peer)
		}
	}
	r.less = ""
	if len(ready) > count && len(quiet) > 0 {
		r.less = slices.Min(quiet)
	}
	return r.less
}

func (b *Book) row(uid string) *row {
	r := b.rows[uid]
	if r == nil {
		r = new(row)
		b.rows[uid] = r
	}
	return r
}

// why says what Count comes from.
func why(p Policy, asked, grew bool, extra int) string {
	text := "nothing was said about it, so one replica where there is room"
	switch {
	case p.Min > 0:
		text = fmt.Sprintf("at least %d wanted", p.Min)
	case p.Pinned:
		text = "it is pinned"
	case asked:
		text = "it is asked for"
	}
	switch {
	case grew:
		text += "; one more, since requests have waited on every replica for a minute"
	case extra > 0:
		text += fmt.Sprintf("; %d more for the load", extra)
	}
	return text
}
