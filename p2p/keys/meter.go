package keys

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/keys/quota"
	"relay/p2p/record"
)

const (
	// WriteEvery is the least time between two records of one peer about the same
	// keys; the first use after a while is told at once.
	WriteEvery = 500 * time.Millisecond
	// writesAtOnce bounds the records that are written each time: what others allow
	// an author is for his other records, too.
	writesAtOnce = 8
	// activeFor is how long an entrance counts as one where a key is in use, after it
	// told of something new.
	activeFor = 10 * time.Second
	// aliveFor is how long it is remembered who is up.
	aliveFor = time.Second
	// turnEvery is how often a peer that nobody asks anything looks whether its day, or
	// the minute that it told of, is over.
	turnEvery = time.Minute
	day       = 24 * time.Hour
)

// Meter counts what the keys use at this peer, tells the others, adds up what they
// tell, and says whether a key may use more. Of what others tell it takes in what is
// about keys that there are.
//
// # How far a limit can be overshot
//
// What a peer knows of the others is as old as a record takes to come: WriteEvery at
// most until it is written (more where keys of more than eight initials are in use at
// once at one entrance: WriteEvery for each eight), and then the gossip, some
// milliseconds on a local network. Let delay be both together. All that can be
// over a limit is what nobody could know:
//
//   - Requests, within any minute: entrances × rate × delay, rate being the requests
//     each second that are asked at one entrance; and never more than entrances ×
//     limit.
//   - Requests at once: the same.
//   - Tokens a day: entrances × rate × delay, rate being the tokens each second that
//     one entrance takes, and the rest of what runs at the end of it: for each
//     request the part of its prompt and its max_tokens that was not counted yet.
//   - While the mesh is cut, each side knows its own: sides × limit, and each side
//     the above. When it heals the sums hold again, and what was too much stays
//     counted.
//
// A peer that is killed takes with it what it had not told, delay at most. One that
// is taken out of the mesh takes its records with it.
type Meter struct {
	table *record.Table
	alive func() []peer.ID
	now   func() time.Time
	log   *slog.Logger
	began time.Time
	wake  chan struct{} // There is something to be written.

	hearing hearing

	mu     sync.Mutex
	day    int64
	last   string                       // Bucket that was written last.
	failed string                       // What the last write that failed said.
	mine   map[string]*account          // By key.
	due    map[string]bool              // Buckets of keys that are to be written.
	told   map[string]map[peer.ID]*told // By key of the mesh and author.
	up     map[peer.ID]bool
	upAt   time.Duration
}

// account is what a key uses here.
type account struct {
	Used
	minute quota.Window
	// share is what may still be let in here, where sharing others are, until shareEnds.
	share     quota.Share
	sharing   int64
	shareEnds time.Duration
}

// told is what another peer says that a key has used there.
type told struct {
	Used
	minute  *quota.Window // Nil before there was anything to count.
	changed time.Duration // When it was last asked for there, as far as is known here.
	ever    bool
}

// MeterOptions is what a meter is made of. Table is needed.
type MeterOptions struct {
	Table *record.Table
	// Alive lists the peers that are up, as far as is known here; nil means all.
	Alive func() []peer.ID
	// Now is this machine's clock; nil is the real one. It decides which day it is
	// here, and nothing else.
	Now func() time.Time
	Log *slog.Logger
}

// NewMeter makes the meter of a peer, which goes on with what the peer has written
// before. Until Run it writes nothing.
func NewMeter(o MeterOptions) *Meter {
	m := &Meter{
		table: o.Table, alive: o.Alive, now: o.Now, log: o.Log, began: time.Now(), wake: make(chan struct{}, 1),
		mine: map[string]*account{}, due: map[string]bool{}, told: map[string]map[peer.ID]*told{}, hearing: hearing{seen: map[string]*heard{}},
	}
	if m.now == nil {
		m.now = time.Now
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.observe()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.table.List(KindUsage) {
		if r.Author != m.table.Self() {
			continue
		}
		used, err := decodeUsage(r.Record)
		if err != nil {
			continue // Written by a release that says more; it is written anew.
		}
		for key, u := range used {
			if u.Running != 0 || u.Minute != 0 { // Of the peer that ended.
				m.mark(key)
			}
			u.Running, u.Minute = 0, 0
			m.mine[key] = &account{Used: u}
		}
	}
	m.turn()
	for _, authors := range m.told { // Nobody knows how old that is.
		for _, t := range authors {
			t.ever, t.minute = false, nil
		}
	}
	return m
}

// Admit lets a request in, or refuses it with a *QuotaError. The standing is right
// in both cases. Whoever is let in must call the ticket's Done.
func (m *Meter) Admit(g Grant) (Ticket, Standing, error) {
	m.observeUnlessBusy()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	now := m.since()
	a := m.account(g.ID)
	m.mark(g.ID)
	limits := quota.Limits{RequestsPerMinute: int64(g.RequestsPerMinute), TokensPerDay: g.TokensPerDay, Concurrency: int64(g.Concurrency)}
	use := m.use(g.ID, a, now)
	if now >= a.shareEnds || a.sharing != use.Entrances {
		a.share, a.sharing, a.shareEnds = quota.ShareOf(limits, use), use.Entrances, now+quota.Turn
	}
	use.Share, use.ShareEnds = a.share, a.shareEnds-now
	if no := quota.Decide(limits, use); no != nil {
		a.Refused = count(a.Refused, 1)
		return nil, standing(limits, use), refused(g, no.Text, no.After)
	}
	a.Requests, a.TotalRequests, a.Running = count(a.Requests, 1), count(a.TotalRequests, 1), count(a.Running, 1)
	a.minute.Add(now, 1)
	a.share.Requests--
	a.share.AtOnce--
	return &ticket{meter: m, key: g.ID}, standing(limits, use), nil
}

// use is what is known of a key's use; the lock is held.
func (m *Meter) use(key string, a *account, now time.Duration) quota.Use {
	u := quota.Use{Now: now, Midnight: m.midnight(), Entrances: 1, Here: &a.minute, RunningHere: a.Running, Tokens: a.tokens()}
	for author, t := range m.told[key] {
		u.Tokens += m.today(author, t).tokens()
		if t.minute != nil {
			u.Elsewhere = append(u.Elsewhere, t.minute)
		}
		if !m.isUp(author) {
			continue
		}
		u.RunningElsewhere += t.Running
		if t.Running > 0 || t.ever && now-t.changed < activeFor {
			u.Entrances++
		}
	}
	return u
}

// today is what a peer has told of the day that it is now; see KindUsage.
func (m *Meter) today(author peer.ID, t *told) Used {
	if m.isUp(author) {
		return t.Used
	}
	return t.on(m.day)
}

func standing(l quota.Limits, u quota.Use) (s Standing) {
	if l.RequestsPerMinute > 0 {
		left, reset := quota.RequestsLeft(l, u)
		s.Requests = &Allowance{l.RequestsPerMinute, left, reset}
	}
	if l.TokensPerDay > 0 {
		s.Tokens = &Allowance{l.TokensPerDay, max(0, l.TokensPerDay-u.Tokens), u.Midnight}
	}
	return s
}

// Sum is what a key has used in the mesh, as far as is known here: today, and since
// it is in use.
func (m *Meter) Sum(key string) Used {
	m.observe()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	var sum Used
	if a := m.mine[key]; a != nil {
		sum = sum.plus(a.Used)
	}
	for author, t := range m.told[key] {
		sum = sum.plus(m.today(author, t))
	}
	return sum
}

// ticket is a Ticket of this meter.
type ticket struct {
	meter              *Meter
	key                string
	prompt, completion int64
	done               bool
}

func (t *ticket) Used(prompt, completion int) {
	t.meter.mu.Lock()
	defer t.meter.mu.Unlock()
	p, c := max(0, min(int64(prompt), maxCount)-t.prompt), max(0, min(int64(completion), maxCount)-t.completion)
	if t.done || p+c == 0 {
		return
	}
	t.prompt, t.completion = t.prompt+p, t.completion+c
	t.meter.turn()
	a := t.meter.account(t.key)
	a.Prompt, a.TotalPrompt = count(a.Prompt, p), count(a.TotalPrompt, p)
	a.Completion, a.TotalCompletion = count(a.Completion, c), count(a.TotalCompletion, c)
	t.meter.mark(t.key)
}

func (t *ticket) Done() {
	t.meter.mu.Lock()
	defer t.meter.mu.Unlock()
	if t.done {
		return
	}
	t.done = true
	a := t.meter.account(t.key)
	a.Running = max(0, a.Running-1)
	a.share.AtOnce++
	t.meter.mark(t.key)
}

// The lock is held by whoever calls what follows.

func (m *Meter) account(key string) *account {
	a := m.mine[key]
	if a == nil {
		a = &account{Used: Used{Day: m.day}}
		m.mine[key] = a
	}
	return a
}

// mark has the record that a key, or a bucket of them, is in written.
func (m *Meter) mark(key string) {
	m.due[bucketOf(key)] = true
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Meter) since() time.Duration { return time.Since(m.began) }

// midnight is in how long the day of this machine's clock ends.
func (m *Meter) midnight() time.Duration {
	now := m.now().UTC()
	return now.Truncate(day).Add(day).Sub(now)
}

// turn begins a day where another one has come.
func (m *Meter) turn() {
	today := m.now().Unix() / int64(day/time.Second)
	if today == m.day {
		return
	}
	m.day = today
	for key, a := range m.mine {
		if was := a.Used; was.Day != today {
			a.Used = was.on(today)
			if was.tokens()+was.Requests+was.Refused > 0 {
				m.mark(key)
			}
		}
	}
}

// look begins a day where another one has come, and has the others told where nothing
// of what was told of the last minute is true any more: who hears it much later would
// take it for what happens now.
func (m *Meter) look() {
	m.turn()
	now := m.since()
	for key, a := range m.mine {
		if a.Minute > 0 && a.minute.Sum(now) == 0 {
			m.mark(key)
		}
	}
}

func (m *Meter) isUp(author peer.ID) bool {
	if m.alive == nil {
		return true
	}
	if now := m.since(); m.up == nil || now-m.upAt >= aliveFor {
		m.up, m.upAt = map[peer.ID]bool{}, now
		for _, id := range m.alive() {
			m.up[id] = true
		}
	}
	return m.up[author]
}

// Run tells the others until ctx ends, and then all that is still to be told.
func (m *Meter) Run(ctx context.Context) {
	changes, unsubscribe := m.table.Subscribe()
	defer unsubscribe()
	turn := time.NewTimer(m.untilTurn())
	defer turn.Stop()
	pace := time.NewTimer(WriteEvery)
	defer pace.Stop()
	wake := m.wake
	for {
		select {
		case <-ctx.Done():
			m.write(len(alphabet))
			return
		case <-changes:
			m.observe()
		case <-turn.C:
			m.locked(m.look)
			turn.Reset(m.untilTurn())
		case <-pace.C:
			wake = m.wake
		case <-wake:
			m.write(writesAtOnce)
			wake = nil
			pace.Reset(WriteEvery)
		}
	}
}

// untilTurn is when Run looks next whether the day is over: at midnight, and before,
// as clocks are put right.
func (m *Meter) untilTurn() time.Duration { return min(turnEvery, m.midnight()) }

func (m *Meter) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// write writes records that are due, so many at most, each bucket in its turn. One
// that cannot be written stays due.
func (m *Meter) write(most int) {
	var failed []string
	for range most {
		bucket, used := m.next()
		if bucket == "" {
			break
		}
		payload, err := record.Marshal(usage{used})
		if err == nil {
			_, err = m.table.PutOwned(KindUsage, usageID(m.table.Self(), bucket), payload)
		}
		if err != nil {
			failed = append(failed, bucket)
			if text := err.Error(); text != m.failed {
				m.failed = text
				m.log.Warn("what keys have used could not be told", "error", err)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, bucket := range failed {
		m.due[bucket] = true
	}
	for bucket := range m.due {
		m.mark(bucket) // There is more to be written, after a while.
		break
	}
}

// next is the bucket whose turn it is and what its keys have used; it is not due any
// more.
func (m *Meter) next() (bucket string, used map[string]Used) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.due) == 0 {
		return "", nil
	}
	due := slices.Sorted(maps.Keys(m.due))
	at, found := slices.BinarySearch(due, m.last)
	if found {
		at++
	}
	bucket = due[at%len(due)]
	m.last = bucket
	delete(m.due, bucket)
	now := m.since()
	used = map[string]Used{}
	for key, a := range m.mine {
		if bucketOf(key) == bucket {
			a.Minute = a.minute.Sum(now)
			used[key] = a.Used
		}
	}
	for _, key := range m.tooMany(used) {
		delete(used, key)
		delete(m.mine, key)
	}
	return bucket, used
}

// tooMany are the keys that a record has no room for: first those that are no keys of
// the mesh any more, then those that were used least.
func (m *Meter) tooMany(used map[string]Used) []string {
	if len(used) <= maxUsed {
		return nil
	}
	live := map[string]int{LocalID: 1}
	for _, r := range m.table.List(Kind) {
		live[r.ID] = 1
	}
	list := slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		return cmp.Or(cmp.Compare(min(1, used[a].Running), min(1, used[b].Running)), cmp.Compare(live[a], live[b]),
			cmp.Compare(used[a].TotalRequests, used[b].TotalRequests), cmp.Compare(a, b))
	})
	return list[:len(list)-maxUsed]
}
