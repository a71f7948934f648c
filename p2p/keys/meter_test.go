package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/keys/quota"
	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

// gossip is how long a record takes to come in the tests' mesh.
const gossip = 100 * time.Millisecond

// mesh is several peers whose records come to one another after a while, in a bubble.
type mesh struct {
	t     *testing.T
	peers []*entrance
	apart atomic.Bool // The first peer cannot be reached by the others, nor they by it.
}

// entrance is one peer: its table and its meter, which runs.
type entrance struct {
	*Meter
	mesh    *mesh
	nth     int
	key     crypto.PrivKey
	storage *recordtest.Memory
	self    peer.ID
	ahead   atomic.Int64 // Of its clock, a time.Duration.
	stop    func()

	mu     sync.Mutex
	table  *record.Table
	writes []time.Time // Of usage records.
}

// records is its table; it has another one after a restart.
func (e *entrance) records() *record.Table {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.table
}

// written says when it has written usage records.
func (e *entrance) written() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.writes)
}

func newMesh(t *testing.T, n int) *mesh {
	m := &mesh{t: t}
	for i := range n {
		key, _, err := crypto.GenerateEd25519Key(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		self, err := peer.IDFromPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		m.peers = append(m.peers, &entrance{mesh: m, nth: i, key: key, self: self, storage: recordtest.NewMemory()})
	}
	for _, e := range m.peers {
		e.start()
	}
	m.know(testID)
	t.Cleanup(func() {
		for _, e := range m.peers {
			e.stop()
		}
	})
	return m
}

// know makes keys with these ids, which every peer knows at once.
func (m *mesh) know(ids ...string) {
	for _, id := range ids {
		write(m.t, m.peers[0].records(), id, Key{Name: id, Hash: Hash(id)})
		key, _ := m.peers[0].records().Get(Kind, id)
		for _, e := range m.peers[1:] {
			if _, err := e.records().Offer(key); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// start starts a peer, or starts it again with what it has on disk.
func (e *entrance) start() {
	t := e.mesh.t
	table, err := record.NewTable(record.Options{Storage: e.storage, Key: e.key, Kinds: []record.Kind{RecordKind(), UsageKind()},
		Rights: everybody{}, Publish: e.publish})
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.table = table
	e.mu.Unlock()
	e.Meter = NewMeter(MeterOptions{Table: table, Alive: e.mesh.aliveFrom(e.nth), Now: func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx)
	}()
	e.stop = func() {
		cancel()
		<-done
	}
}

func (m *mesh) linked(a, b int) bool { return !m.apart.Load() || a != 0 && b != 0 }

func (m *mesh) aliveFrom(i int) func() []peer.ID {
	return func() (up []peer.ID) {
		for j, other := range m.peers {
			if m.linked(i, j) {
				up = append(up, other.self)
			}
		}
		return up
	}
}

func (e *entrance) publish(s record.Signed) {
	if s.Kind == KindUsage {
		e.mu.Lock()
		e.writes = append(e.writes, time.Now())
		e.mu.Unlock()
	}
	for j, other := range e.mesh.peers {
		if j != e.nth && e.mesh.linked(e.nth, j) {
			time.AfterFunc(gossip, func() {
				if _, err := other.records().Offer(s); err != nil {
					e.mesh.t.Error(err)
				}
			})
		}
	}
}

// cut parts the first peer from the others, heal brings them together and makes their
// tables equal.
func (m *mesh) cut() { m.apart.Store(true) }

func (m *mesh) heal() {
	m.apart.Store(false)
	for _, from := range m.peers {
		for _, to := range m.peers {
			for _, s := range from.records().All() {
				if _, err := to.records().Offer(s); err != nil {
					m.t.Error(err)
				}
			}
		}
	}
}

// pass lets time go by in the bubble, and what is to be done in it be done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// use makes one request that takes so many tokens and is over at once.
func (e *entrance) use(g Grant, prompt, completion int) error {
	ticket, _, err := e.Admit(g)
	if err != nil {
		return err
	}
	ticket.Used(prompt, completion)
	ticket.Done()
	return nil
}

const testID = "abcdefgh"

func TestUsageAddsUpOverPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 3)
		g := Grant{ID: testID, Name: "ci"}
		for i, e := range m.peers {
			ticket, _, err := e.Admit(g)
			if err != nil {
				t.Fatal(err)
			}
			ticket.Used(10, 0)
			ticket.Used(10, i+1)
			ticket.Used(3, 1) // Not less than before.
			ticket.Done()
			ticket.Done()
			ticket.Used(100, 100) // It is over.
		}
		pass(2*WriteEvery + 2*gossip)
		want := Used{Prompt: 30, Completion: 6, Requests: 3, TotalPrompt: 30, TotalCompletion: 6, TotalRequests: 3}
		for i, e := range m.peers {
			got := e.Sum(testID)
			got.Minute = 0
			if got != want {
				t.Errorf("peer %d: %+v", i, got)
			}
		}
		// It goes on where it was after a restart, and knows of nothing that runs.
		e := m.peers[1]
		if _, _, err := e.Admit(g); err != nil { // Nobody ends it.
			t.Fatal(err)
		}
		e.stop()
		e.start()
		pass(2*WriteEvery + 2*gossip)
		for i, e := range m.peers {
			if got := e.Sum(testID); got.TotalRequests != 4 || got.Prompt != 30 || got.Running != 0 {
				t.Errorf("after a restart, peer %d: %+v", i, got)
			}
		}
	})
}

// TestRecordsAreWrittenSeldom: the first use is told at once, a flood twice a second,
// and nothing when nobody asks.
func TestRecordsAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1)
		e := m.peers[0]
		pass(10 * time.Minute)
		if len(e.written()) != 0 {
			t.Fatalf("%d records of nothing", len(e.written()))
		}
		ticket, _, err := e.Admit(Grant{ID: testID})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(e.written()) != 1 {
			t.Fatalf("%d records of the first use", len(e.written()))
		}
		pass(time.Second)
		for i := range 1000 { // Ten seconds.
			ticket.Used(5, i)
			pass(10 * time.Millisecond)
		}
		ticket.Done()
		pass(time.Second)
		busy := len(e.written())
		pass(time.Hour)
		if after := len(e.written()) - busy; after != 1 {
			t.Errorf("%d records after it: one says that the minute is over", after)
		}
		for i, at := range e.written()[1:] {
			if at.Sub(e.written()[i]) < WriteEvery {
				t.Fatalf("two records within %s", at.Sub(e.written()[i]))
			}
		}
		if busy < 20 || busy > 23 {
			t.Errorf("%d records in ten seconds", busy)
		}
		// Stopped in the middle, it has told all.
		if err := e.use(Grant{ID: testID}, 7, 7); err != nil {
			t.Fatal(err)
		}
		if err := e.use(Grant{ID: testID}, 1, 1); err != nil {
			t.Fatal(err)
		}
		e.stop()
		e.start()
		if got := e.Sum(testID); got.tokens() != 5+999+16 {
			t.Errorf("after the stop: %+v", got)
		}
	})
}

// TestManyKeysTakeTurns: no initial waits for ever behind others.
func TestManyKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2)
		for _, c := range alphabet {
			m.know(string(c) + testID[1:])
		}
		var ids []string
		for _, c := range alphabet {
			ids = append(ids, string(c)+"bcdefgh")
		}
		rounds := 0
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); rounds++ {
			for _, id := range ids {
				if err := m.peers[0].use(Grant{ID: id}, 1, 0); err != nil {
					t.Fatal(err)
				}
			}
			pass(50 * time.Millisecond)
		}
		late := int64(4*WriteEvery/(50*time.Millisecond)) + int64(gossip/(50*time.Millisecond)) + 2
		for _, id := range ids {
			if told := m.peers[1].Sum(id).Prompt; int64(rounds)-told > late {
				t.Errorf("%s: %d of %d are told, %d may be missing", id, told, rounds, late)
			}
		}
		if n := len(m.peers[0].written()); n > 20*2*writesAtOnce+writesAtOnce {
			t.Errorf("%d records in 20 seconds", n)
		}
	})
}

// TestTodayWithClocksDaysApart: whoever is up says himself what today is; of one who
// is gone counts what is of the reader's own day.
func TestTodayWithClocksDaysApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // The bubble's clock begins at midnight UTC.
		m := newMesh(t, 3)
		m.peers[1].ahead.Store(int64(3*day + 6*time.Hour))
		m.peers[2].ahead.Store(int64(-40 * day))
		g := Grant{ID: testID, Name: "ci", TokensPerDay: 100}
		for i, e := range m.peers {
			if err := e.use(g, 10*(i+1), 0); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		sums := func(want ...int64) {
			t.Helper()
			for i, e := range m.peers {
				if got := e.Sum(testID).tokens(); got != want[i] {
					t.Errorf("peer %d: %d tokens today, want %d", i, got, want[i])
				}
			}
		}
		sums(60, 60, 60)
		pass(18 * time.Hour) // Midnight of the second: 20 of its tokens are of yesterday, for all.
		sums(40, 40, 40)
		pass(6 * time.Hour) // And of the others.
		sums(0, 0, 0)

		if err := m.peers[0].use(g, 50, 0); err != nil {
			t.Fatal(err)
		}
		if err := m.peers[2].use(g, 7, 0); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		m.cut() // The first one has gone, for the others, and they for it.
		pass(time.Minute)
		sums(50, 7, 7) // Its day is not theirs.
		m.peers[1].ahead.Store(0)
		pass(2 * turnEvery)
		sums(50, 57, 7) // Now it is the second's.
		pass(day)       // Whose is over.
		sums(0, 0, 0)
		m.heal()
		pass(time.Minute)
		sums(0, 0, 0)

		// A clock that was wrong and is put right does not keep a key out for days.
		e := m.peers[1]
		if err := e.use(g, 100, 0); err != nil {
			t.Fatal(err)
		}
		if err := e.use(g, 1, 0); err == nil {
			t.Fatal("101 of 100 tokens")
		}
		e.ahead.Store(int64(-day))
		if err := e.use(g, 1, 0); err != nil {
			t.Fatalf("on another day: %v", err)
		}
	})
}

// hammer asks at an entrance, every so often and with that many tokens by the
// request, for a while. A request runs for as long as lasts says, and its tokens come
// evenly meanwhile.
func (e *entrance) hammer(g Grant, every, lasts, while time.Duration, tokens int) (let []time.Time) {
	var open []func() bool
	for end := time.Now().Add(while); time.Now().Before(end) || len(open) > 0; <-time.After(every) {
		open = slices.DeleteFunc(open, func(step func() bool) bool { return step() })
		if !time.Now().Before(end) {
			continue
		}
		ticket, _, err := e.Admit(g)
		if no := (*QuotaError)(nil); err != nil && (!errors.As(err, &no) || no.Reason() != "quota_exceeded" || no.After <= 0) {
			e.mesh.t.Errorf("refused with %v", err)
		}
		if err != nil {
			continue
		}
		began := time.Now()
		let = append(let, began)
		open = append(open, func() (over bool) {
			done := min(1, float64(time.Since(began))/float64(max(lasts, 1)))
			ticket.Used(0, int(math.Round(done*float64(tokens))))
			if done == 1 {
				ticket.Done()
			}
			return done == 1
		})
	}
	return let
}

// all hammers at all entrances at once.
func (m *mesh) all(g Grant, every, lasts, while time.Duration, tokens int) (let [][]time.Time) {
	let = make([][]time.Time, len(m.peers))
	done := make(chan struct{})
	for i, e := range m.peers {
		go func() {
			let[i] = e.hammer(g, every, lasts, while, tokens)
			done <- struct{}{}
		}()
	}
	for range m.peers {
		<-done
	}
	return let
}

// worst is the most that begins within any stretch of that length.
func worst(let [][]time.Time, within time.Duration) (most int) {
	all := slices.SortedFunc(slices.Values(slices.Concat(let...)), time.Time.Compare)
	from := 0
	for i, at := range all {
		for !all[from].After(at.Add(-within)) {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

const delay = WriteEvery + gossip

// TestTokensOvershootWithinTheBound: three entrances that are hammered give out no
// more than the limit, what comes in delay, and what runs then.
func TestTokensOvershootWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, tokens, every, lasts = 200_000, 200, 20 * time.Millisecond, 200 * time.Millisecond
		m := newMesh(t, 3)
		g := Grant{ID: testID, Name: "ci", TokensPerDay: limit}
		m.all(g, every, lasts, time.Minute, tokens)
		used := m.peers[0].Sum(testID).tokens()
		// Each entrance has lasts/every requests under way, of tokens each. What they
		// take in a second is rate; at the end of delay all of them may have everything
		// still before them.
		running := float64(3 * lasts / every * tokens)
		rate := float64(tokens) / every.Seconds()
		bound := limit + int64(3*rate*delay.Seconds()+running)
		t.Logf("%d tokens of %d, at most %d", used, limit, bound)
		if used < limit || used > bound {
			t.Errorf("%d tokens of %d, at most %d", used, limit, bound)
		}
		for i, e := range m.peers {
			if err := e.use(g, 1, 0); err == nil || !strings.Contains(err.Error(), "midnight UTC") {
				t.Errorf("peer %d after that: %v", i, err)
			}
		}
		pass(m.peers[0].midnight() + delay)
		if err := m.peers[2].use(g, 1, 0); err != nil {
			t.Errorf("on the next day: %v", err)
		}
	})
}

// TestRequestsOvershootWithinTheBound: and no minute holds more than the limit and
// what is asked in delay, nor more than the limit at once.
func TestRequestsOvershootWithinTheBound(t *testing.T) {
	for name, g := range map[string]Grant{
		"per minute": {ID: testID, Name: "ci", RequestsPerMinute: 90},
		"at once":    {ID: testID, Name: "ci", Concurrency: 30},
		"in a burst": {ID: testID, Name: "ci", RequestsPerMinute: 3}, // Over before anybody knows.
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const every, lasts = 50 * time.Millisecond, 5 * time.Second
				m := newMesh(t, 3)
				let := m.all(g, every, lasts, 5*time.Minute, 1)
				limit, within := g.RequestsPerMinute, time.Minute
				if limit == 0 {
					limit, within = g.Concurrency, lasts
				}
				bound := limit + int(3*delay/every)
				most := worst(let, within)
				t.Logf("%d within %s, the limit is %d, at most %d", most, within, limit, bound)
				if most > bound {
					t.Errorf("%d within %s, at most %d", most, within, bound)
				}
				// Once they know of one another, each has about a third.
				for i, e := range let {
					late := slices.DeleteFunc(slices.Clone(e), func(at time.Time) bool { return at.Before(e[0].Add(2 * time.Minute)) })
					if n := worst([][]time.Time{late}, within); n > limit/3+limit/10+1 || n < limit/3-limit/10-1 {
						t.Errorf("peer %d lets in %d within %s, a third is %d", i, n, within, limit/3)
					}
				}
			})
		})
	}
}

// TestGoingFromDoorToDoorGivesNothingMore: a client that is refused and asks at the
// next peer.
func TestGoingFromDoorToDoorGivesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4)
		g := Grant{ID: testID, Name: "ci", RequestsPerMinute: 20}
		var let [][]time.Time
		for _, e := range m.peers {
			let = append(let, e.hammer(g, 100*time.Millisecond, 0, 3*time.Second, 0))
			pass(activeFor + time.Second) // It is not in use there any more.
		}
		if most := worst(let, time.Minute); most > g.RequestsPerMinute {
			t.Errorf("%d requests within a minute, %d are allowed", most, g.RequestsPerMinute)
		}
		// And the first one has all of it again, when the minute is over.
		pass(time.Minute)
		_, s, err := m.peers[0].Admit(g)
		if err != nil || s.Requests == nil || s.Requests.Remaining != 19 {
			t.Errorf("%+v, %v", s.Requests, err)
		}
	})
}

// TestACutGivesEachSideTheLimit: and no more; when it heals all is counted.
func TestACutGivesEachSideTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, tokens, every = 1000, 10, 100 * time.Millisecond
		m := newMesh(t, 3)
		g := Grant{ID: testID, Name: "ci", TokensPerDay: limit, RequestsPerMinute: 60}
		m.cut()
		let := m.all(g, every, 0, 10*time.Minute, tokens)
		perSide := int64(limit + 2*tokens*int(delay/every) + 2*tokens)
		alone, others := m.peers[0].Sum(testID).tokens(), m.peers[1].Sum(testID).tokens()
		t.Logf("%d and %d tokens of %d on the two sides", alone, others, limit)
		if alone < limit || others < limit || alone > perSide || others > perSide {
			t.Errorf("%d and %d tokens, at most %d on each side", alone, others, perSide)
		}
		for _, side := range [][][]time.Time{let[:1], let[1:]} {
			if most, bound := worst(side, time.Minute), 60+len(side)*int(delay/every); most > bound {
				t.Errorf("%d requests within a minute on one side, at most %d", most, bound)
			}
		}
		m.heal()
		pass(time.Second)
		for i, e := range m.peers {
			if got := e.Sum(testID).tokens(); got != alone+others {
				t.Errorf("healed, peer %d: %d, want %d", i, got, alone+others)
			}
			if err := e.use(g, 1, 0); err == nil {
				t.Errorf("healed, peer %d lets in more", i)
			}
		}
	})
}

// TestHealingCountsNoRequestTwice: requests of another side, hours ago, are none of
// this minute.
// TestWhatNobodyElseUsesIsThere: a request at another door costs a key no more than
// that request, a few seconds later.
func TestWhatNobodyElseUsesIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2)
		g := Grant{ID: testID, Name: "ci", RequestsPerMinute: 10}
		if err := m.peers[0].use(g, 1, 1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		let, waited := 0, time.Duration(0)
		for range 30 {
			err := m.peers[1].use(g, 1, 1)
			if err == nil {
				let++
				continue
			}
			var no *QuotaError
			if !errors.As(err, &no) || let < 9 && no.After > time.Second {
				t.Fatalf("after %d: %v", let, err)
			}
			if let == 9 {
				break
			}
			pass(no.After)
			waited += no.After
		}
		if let != 9 || waited > 5*time.Second {
			t.Errorf("%d of the 9 that were left, within %s", let, waited)
		}
	})
}

func TestHealingCountsNoRequestTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2)
		g := Grant{ID: testID, Name: "ci", RequestsPerMinute: 50}
		m.cut()
		for range 100 {
			if err := m.peers[0].use(g, 1, 1); err != nil {
				pass(time.Minute + time.Second)
			}
		}
		pass(time.Hour)
		m.heal()
		pass(time.Second)
		_, s, err := m.peers[1].Admit(g)
		if err != nil || s.Requests.Remaining != 49 {
			t.Errorf("%+v, %v", s.Requests, err)
		}
	})
}

func TestAPeerThatIsTakenOutTakesItsUseWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2)
		if err := m.peers[0].use(Grant{ID: testID}, 5, 5); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if got := m.peers[1].Sum(testID).tokens(); got != 10 {
			t.Fatalf("%d tokens", got)
		}
		out := m.peers[0].records().Self()
		m.peers[1].records().Void(func(r record.Record) bool { return r.Author == out })
		if got := m.peers[1].Sum(testID); got != (Used{}) {
			t.Errorf("%+v", got)
		}
		if len(m.peers[1].told)+len(m.peers[1].hearing.seen) != 0 {
			t.Error("something of it is kept")
		}
	})
}

func TestNoLimitIsNoStanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMesh(t, 1).peers[0]
		for range 1000 {
			if _, s, err := e.Admit(Grant{ID: LocalID, Name: LocalName}); err != nil || s != (Standing{}) {
				t.Fatalf("%+v, %v", s, err)
			}
		}
	})
}

// TestUsageRecordsKeepTheirBounds: with as many keys as there may be, and with the
// longest figures, a record is one; keys that are no more go first.
func TestUsageRecordsKeepTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMesh(t, 1).peers[0]
		payload, err := record.Marshal(Key{Name: "kept", Hash: Hash("x")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.records().PutShared(Kind, testID, payload); err != nil {
			t.Fatal(err)
		}
		if err := e.use(Grant{ID: testID}, 1, 1); err != nil {
			t.Fatal(err)
		}
		for i := range maxUsed + 50 {
			id := "a" + encoding.EncodeToString([]byte{byte(i >> 8), byte(i), 0, 0, 1})[:7]
			if err := e.use(Grant{ID: id}, 1, 1); err != nil {
				t.Fatal(err)
			}
			if err := e.use(Grant{ID: id}, 1, 1); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		r, ok := e.records().Get(KindUsage, usageID(e.records().Self(), "a"))
		if !ok {
			t.Fatal("no record")
		}
		used, err := decodeUsage(r.Record)
		if err != nil || len(used) != maxUsed {
			t.Fatalf("%d keys, %v", len(used), err)
		}
		if _, ok := used[testID]; !ok {
			t.Error("a key of the mesh has gone before those that are none")
		}
		for key := range used {
			used[key] = Used{maxCount, maxCount, maxCount, maxCount, maxCount, maxCount, maxCount, maxCount, maxCount, maxCount}
		}
		if payload, err = record.Marshal(usage{used}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.records().PutOwned(KindUsage, r.ID, payload); err != nil {
			t.Error(err)
		}
	})
}

func TestUsageRecordsThatAreNone(t *testing.T) {
	table := newTable(t)
	many := map[string]Used{}
	for i := range maxUsed + 1 {
		many["a"+encoding.EncodeToString([]byte{byte(i >> 8), byte(i), 0, 0, 1})[:7]] = Used{}
	}
	id := table.Self().String()
	for name, bad := range map[string]struct {
		id   string
		keys map[string]Used
	}{
		"too many":           {id + "/a", many},
		"less than none":     {id + "/a", map[string]Used{testID: {Prompt: -1}}},
		"more than anything": {id + "/a", map[string]Used{testID: {TotalPrompt: maxCount + 1}}},
		"of another bucket":  {id + "/b", map[string]Used{testID: {}}},
		"no key":             {id + "/a", map[string]Used{"a": {}}},
		"of no bucket":       {id + "/ab", nil},
		"of a part":          {id + "/a/b", nil},
	} {
		payload, err := record.Marshal(usage{bad.keys})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.PutOwned(KindUsage, bad.id, payload); err == nil {
			t.Errorf("%s: it was kept", name)
		}
	}
	payload, err := record.Marshal(usage{map[string]Used{LocalID: {}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.PutOwned(KindUsage, id+"/e", payload); err != nil {
		t.Error(err)
	}
}

// TestUsedAllocatesNothing: it is called with every token.
func TestUsedAllocatesNothing(t *testing.T) {
	m := NewMeter(MeterOptions{Table: newTable(t)})
	ticket, _, err := m.Admit(Grant{ID: testID, TokensPerDay: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if got := testing.AllocsPerRun(100, func() { n++; ticket.Used(n, n) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func FuzzUsage(f *testing.F) {
	for _, keys := range []map[string]Used{nil, {testID: {}}, {testID: {Day: 20000, Prompt: 5, TotalPrompt: 7}, "abbbbbbb": {Requests: 3}}} {
		payload, err := record.Marshal(usage{keys})
		if err != nil {
			f.Fatal(err)
		}
		f.Add("12D3KooWX/a", payload)
	}
	f.Fuzz(func(t *testing.T, id string, payload []byte) {
		used, err := decodeUsage(record.Record{ID: id, Payload: payload})
		if err != nil {
			return
		}
		again, err := record.Marshal(usage{used})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeUsage(record.Record{ID: id, Payload: again}); err != nil || !maps.Equal(back, used) {
			t.Fatalf("%+v and then %+v, %v", used, back, err)
		}
	})
}

// BenchmarkAdmit is one request of a key with all limits, in use at twenty peers.
func BenchmarkAdmit(b *testing.B) {
	table := newTable(b)
	write(b, table, testID, Key{Name: "ci", Hash: Hash("x")})
	m := NewMeter(MeterOptions{Table: table})
	g := Grant{ID: testID, Name: "ci", TokensPerDay: MaxTokensPerDay, RequestsPerMinute: MaxRequestsPerMinute, Concurrency: MaxConcurrency}
	for range 20 {
		key, _, err := crypto.GenerateEd25519Key(rand.Reader)
		if err != nil {
			b.Fatal(err)
		}
		author, err := peer.IDFromPrivateKey(key)
		if err != nil {
			b.Fatal(err)
		}
		payload, err := record.Marshal(usage{map[string]Used{testID: {Requests: 1, TotalRequests: 1, Minute: 1, Running: 1}}})
		if err != nil {
			b.Fatal(err)
		}
		s, err := record.Seal(record.Record{Kind: KindUsage, ID: usageID(author, "a"), Version: record.Version{1, 1, 0}, Payload: payload}, key)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := table.Offer(s); err != nil {
			b.Fatal(err)
		}
	}
	m.account(testID)
	for b.Loop() {
		m.mine[testID].minute = quota.Window{} // Or there would be none left.
		ticket, _, err := m.Admit(g)
		if err != nil {
			b.Fatal(err)
		}
		ticket.Done()
	}
}

// TestAFigureAtItsBound is told as it is, and keeps nothing else from being told.
func TestAFigureAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2)
		bad, good := Grant{ID: "aaaaaaaa", Name: "bad"}, Grant{ID: "abbbbbbb", Name: "good", TokensPerDay: 100}
		m.know(bad.ID, good.ID)
		for range 3 { // An engine says it.
			if err := m.peers[0].use(bad, math.MaxInt, math.MaxInt); err != nil {
				t.Fatal(err)
			}
		}
		m.peers[0].locked(func() {
			a := m.peers[0].account(bad.ID)
			a.Requests, a.TotalRequests, a.Refused, a.Running = maxCount, maxCount, maxCount, maxCount
		})
		if err := m.peers[0].use(bad, 1, 1); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if err := m.peers[0].use(good, 100, 0); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if _, _, err := m.peers[1].Admit(good); !errors.As(err, new(*QuotaError)) {
			t.Errorf("the other entrance does not know what was used: %v", err)
		}
		if u := m.peers[1].Sum(bad.ID); u.Prompt != maxCount || u.TotalCompletion != maxCount || u.TotalRequests != maxCount {
			t.Errorf("%+v", u)
		}
	})
}

// TestMadeUpKeysAreNotCounted: of what a member tells only what is about keys that there
// are is kept; what it told of one that came later counts from then on, and of one that
// was taken back no more.
func TestMadeUpKeysAreNotCounted(t *testing.T) {
	table, liar := newTable(t), newTable(t)
	m := NewMeter(MeterOptions{Table: table})
	for _, c := range alphabet {
		made := map[string]Used{}
		for i := range maxUsed {
			made[string(c)+encoding.EncodeToString([]byte{byte(i >> 8), byte(i), 0, 0, 1})[:7]] = Used{Day: m.day, Requests: 1, TotalRequests: 1, Running: 1, Minute: 1}
		}
		if string(c) == bucketOf(testID) {
			made = map[string]Used{testID: {Day: m.day, Requests: 5, TotalRequests: 5, Minute: 3}, "abbbbbbb": {Day: m.day, Requests: 1}}
		}
		payload, err := record.Marshal(usage{made})
		if err != nil {
			t.Fatal(err)
		}
		s, err := liar.PutOwned(KindUsage, usageID(liar.Self(), string(c)), payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Offer(s); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.Sum(testID); got != (Used{}) || len(m.told) != 0 {
		t.Errorf("%+v of no key, %d are kept", got, len(m.told))
	}
	for _, of := range m.hearing.seen {
		if len(of.used) != 0 {
			t.Fatalf("%d made-up keys are kept", len(of.used))
		}
	}
	write(t, table, testID, Key{Name: "ci", Hash: Hash("x")})
	if got := m.Sum(testID); got.Requests != 5 || len(m.told) != 1 {
		t.Errorf("%+v, %d keys are kept", got, len(m.told))
	}
	if _, _, err := m.Admit(Grant{ID: testID, RequestsPerMinute: 3}); !errors.As(err, new(*QuotaError)) {
		t.Errorf("of 3 requests a minute that were made elsewhere one more was let in: %v", err)
	}
	if _, err := table.DeleteShared(Kind, testID); err != nil {
		t.Fatal(err)
	}
	m.observe()
	if len(m.told) != 0 {
		t.Errorf("%d keys are kept", len(m.told))
	}
}

// TestRequestsDoNotWaitForRecords that are being read just now.
func TestRequestsDoNotWaitForRecords(t *testing.T) {
	m := NewMeter(MeterOptions{Table: newTable(t)})
	m.hearing.mu.Lock()
	defer m.hearing.mu.Unlock()
	ticket, _, err := m.Admit(Grant{ID: testID})
	if err != nil {
		t.Fatal(err)
	}
	ticket.Used(1, 1)
	ticket.Done()
}
