package routing

import (
	"fmt"
	"testing"
	"time"
)

// What an entrance keeps is bounded, however many talks and replicas there were.
func TestWhatIsKeptIsBounded(t *testing.T) {
	b, now := New(), time.Unix(1e9, 0)
	for i := range uint64(200_000) {
		now = now.Add(time.Millisecond)
		list := []Replica{{Peer: fmt.Sprint("peer ", i/100)}, {Peer: "stays"}}
		_, trip := b.Pick("model", Want{Prefix: []uint64{1, mix(i), mix(i + 1e9), mix(i + 2e9)}, Shared: 1}, list, now, i)
		trip.Done(Served, now, i)
		m := b.models["model"]
		if n := len(m.memory.young); n > kept || len(m.memory.old) > kept {
			t.Fatalf("after %d: %d and %d prefixes", i, n, len(m.memory.old))
		}
		if len(m.talks.list) > maxTalks || len(m.replicas) > 2*maxReplicas {
			t.Fatalf("after %d: %d talks, %d replicas", i, len(m.talks.list), len(m.replicas))
		}
	}
	b.Keep(func(string) bool { return false })
	if len(b.models) > 0 {
		t.Errorf("%d models are kept that are no more", len(b.models))
	}
}

// The talks that each replica has are counted: they are those that go on.
func TestTalksAreCounted(t *testing.T) {
	b, now := New(), time.Unix(1e9, 0)
	list := []Replica{{Peer: "a"}, {Peer: "b"}, {Peer: "c"}}
	count := func() (sum int) {
		for _, k := range b.models["model"].replicas {
			sum += k.talks
		}
		return sum
	}
	for i := range uint64(60) {
		for range 2 {
			_, trip := b.Pick("model", Want{Prefix: []uint64{mix(i)}}, list, now, i)
			trip.Done(Served, now, i)
		}
	}
	if n := count(); n != 60 {
		t.Errorf("%d talks of 60", n)
	}
	now = now.Add(mostLive + time.Second)
	b.Pick("model", Want{Prefix: []uint64{1}}, list, now, 0)
	if n := count(); n != 1 {
		t.Errorf("%d talks go on, of one", n)
	}
}

// A replica that fails is left alone for longer each time, up to a bound, and not by all
// entrances for as long; one answer makes up for all.
func TestBackOff(t *testing.T) {
	b, now := New(), time.Unix(1e9, 0)
	list := []Replica{{Peer: "a"}}
	fails := func(chance uint64) time.Duration {
		_, trip := b.Pick("model", Want{}, list, now, 0)
		trip.Done(Failed, now, chance)
		trip.Done(Failed, now, chance) // Counts once.
		k := b.models["model"].replicas["a"]
		return k.restUntil.Sub(now)
	}
	for i, least := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		least *= time.Second
		if d := fails(uint64(i)); d < least || d > least*3/2 {
			t.Errorf("failure %d: left alone for %s, from %s on", i+1, d, least)
		}
	}
	for range 100 {
		fails(1)
	}
	if d := fails(1); d > 90*time.Second {
		t.Errorf("left alone for %s", d)
	}
	_, trip := b.Pick("model", Want{}, list, now, 0)
	trip.Done(Served, now, 0)
	if one, other := fails(3), func() time.Duration {
		_, trip := b.Pick("model", Want{}, list, now, 0)
		trip.Done(Served, now, 0)
		return fails(4)
	}(); one > 3*time.Second/2 || one == other {
		t.Errorf("after an answer it is left alone for %s, elsewhere for %s", one, other)
	}
}

// What fails at the same time has failed once, and what served then is not blamed for
// what another one did in its place.
func TestOneFallIsOneFailure(t *testing.T) {
	b, now := New(), time.Unix(1e9, 0)
	list := []Replica{{Peer: "a", Mark: "1"}}
	begin := func(n int) (trips []*Trip) {
		for range n {
			_, trip := b.Pick("model", Want{}, list, now, 0)
			trips = append(trips, trip)
		}
		return trips
	}
	rests := func() time.Duration { return b.models["model"].replicas["a"].restUntil.Sub(now) }
	for _, trip := range begin(20) {
		trip.Done(Failed, now, 0)
	}
	if d := rests(); d < rest || d > rest*3/2 {
		t.Errorf("left alone for %s after twenty streams broke", d)
	}
	late := begin(2)
	late[0].Done(Failed, now, 0)
	if d := rests(); d < 2*rest {
		t.Errorf("left alone for %s when it failed again", d)
	}
	list[0].Mark = "2"
	if begin(1); rests() > 0 {
		t.Errorf("another one rests for %s for what the last one failed at", rests())
	}
	late[1].Done(Failed, now, 0)
	if rests() > 0 {
		t.Errorf("another one rests for %s as a stream of the last one broke", rests())
	}
	begin(1)[0].Done(Failed, now, 0)
	if d := rests(); d < rest || d > rest*3/2 {
		t.Errorf("left alone for %s when it failed for the first time", d)
	}
}

// What one says of itself makes the others look no fuller, nor has it more slots than the
// model has, and a crowd is forgotten soon.
func TestOneCrowdIsNotEverywhere(t *testing.T) {
	now := time.Unix(1e9, 0)
	for chance := range uint64(50) {
		b := New()
		list := []Replica{{Peer: "a", Local: true, Slots: 2, Load: Load{Running: 2, Waiting: 2, Slots: 2}}, {Peer: "b", Slots: 2}, {Peer: "c", Slots: 2}}
		tell := func(at int, l Load) {
			_, trip := b.Pick("model", Want{}, []Replica{list[at]}, now, 0)
			trip.Heard(l, now)
			trip.Done(Served, now, 0)
		}
		tell(1, Load{Running: 1000, Waiting: 500, Slots: 1000})
		tell(2, Load{Slots: 2})
		if d, _ := b.Pick("model", Want{}, list, now.Add(time.Second), chance); d.Pick != 2 || d.Each[1].Wait == 0 {
			t.Fatalf("at once, by %d: %+v", chance, d)
		}
		for _, later := range []time.Duration{10 * time.Second, time.Minute} {
			if d, trip := b.Pick("model", Want{}, list, now.Add(later), chance); d.Each[2].Wait > 0 {
				t.Fatalf("after %s, by %d: %+v", later, chance, d)
			} else {
				trip.Done(Dropped, now.Add(later), 0)
			}
		}
		if d, _ := b.Pick("model", Want{}, list[:2], now.Add(30*time.Second), chance); d.Pick != 1 {
			t.Fatalf("the only other one, by %d: %+v", chance, d)
		}
	}
}

// A replica that did nothing for a request has no work of it.
func TestWhatIsNotDoneIsNoWork(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		end   End
		heard bool
		none  bool
	}{{Served, true, false}, {Refused, true, true}, {Failed, false, true}, {Failed, true, false}, {NotAsked, false, true}} {
		b := New()
		_, trip := b.Pick("model", Want{Tokens: 1000}, []Replica{{Peer: "a"}}, now, 0)
		if c.heard {
			trip.Heard(Load{Running: 1, Slots: 2}, now)
		}
		trip.Done(c.end, now, 0)
		if work := b.models["model"].replicas["a"].workAt(now); (work == 0) != c.none {
			t.Errorf("%+v: %v s of work", c, work)
		}
	}
}

// Two entrances that know of the same talks give them the same seats, in whatever order
// they heard of them, and as many at each replica.
func TestSeats(t *testing.T) {
	var among []*replica
	for i := range 3 {
		among = append(among, &replica{hash: hashOf(fmt.Sprint(i))})
	}
	now := time.Unix(1e9, 0)
	var one, other talks
	for i := range uint64(50) {
		one.of(mix(i), now)
		other.of(mix(49-i), now)
	}
	seats := map[*replica]int{}
	for i := range uint64(50) {
		a, b := one.seat(one.of(mix(i), now), among), other.seat(other.of(mix(i), now), among)
		if a != b {
			t.Errorf("talk %d sits at two replicas", i)
		}
		seats[a]++
	}
	for r, n := range seats {
		if n < 16 || n > 17 {
			t.Errorf("%d of 50 sit at %d of 3", n, r.hash)
		}
	}
}

// sea is an entrance that knows 50 replicas and 200 talks.
func sea() (b *Book, list []Replica, want func(i uint64) Want, now time.Time) {
	b, now = New(), time.Unix(1e9, 0)
	for i := range 50 {
		list = append(list, Replica{Peer: fmt.Sprint("peer ", i), Slots: 4, Context: 1 << 15, Decode: 40 + float64(i), Prefill: 1000, RTT: time.Millisecond})
	}
	want = func(i uint64) Want {
		w := Want{Prefix: []uint64{7}, Shared: 1, Tokens: 2000}
		for j := range uint64(15) {
			w.Prefix = append(w.Prefix, mix(i%200*100+j+1))
		}
		return w
	}
	for i := range uint64(200) {
		_, trip := b.Pick("model", want(i), list, now, i)
		trip.Done(Served, now, i)
	}
	return b, list, want, now
}

// A decision among 50 replicas makes few objects.
func TestDecisionsAreCheap(t *testing.T) {
	b, list, want, now := sea()
	w := want(3)
	if n := testing.AllocsPerRun(100, func() {
		_, trip := b.Pick("model", w, list, now, 1)
		trip.Done(Served, now, 1)
	}); n > 6 {
		t.Errorf("a decision makes %v objects", n)
	}
}

// The cost of a decision among 50 replicas.
//
//	go test ./scheduler/routing -run '^$' -bench Pick
func BenchmarkPick(b *testing.B) {
	for _, goesOn := range []bool{true, false} {
		name := "a new talk"
		if goesOn {
			name = "a talk that goes on"
		}
		b.Run(name, func(b *testing.B) {
			book, list, want, now := sea()
			w := want(3)
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if !goesOn { // Some 200 are there at a time.
					w, now = Want{Prefix: []uint64{7, mix(i)}, Shared: 1, Tokens: 2000}, now.Add(mostLive/200)
				}
				_, trip := book.Pick("model", w, list, now, i)
				trip.Done(Served, now, 0)
			}
		})
	}
}

// The next turn of a talk may come before the end of the last one is told, and one that
// was not answered leaves nothing behind.
func TestTurnsOverlap(t *testing.T) {
	now := time.Unix(1e9, 0)
	list := []Replica{{Peer: "a", Slots: 2}, {Peer: "b", Slots: 2}, {Peer: "c", Slots: 2}}
	for talk := range uint64(50) {
		b := New()
		first := Want{Prefix: []uint64{1, 100 + talk}, Shared: 1, Tokens: 500}
		second := Want{Prefix: []uint64{1, 100 + talk, 3, 4}, Shared: 1, Tokens: 900}
		d, _ := b.Pick("model", first, list, now, 0)
		if next, trip := b.Pick("model", second, list, now, 0); next.Pick != d.Pick {
			t.Errorf("talk %d: at %d, then at %d", talk, d.Pick, next.Pick)
		} else {
			trip.Done(Failed, now, 0)
		}
		m := b.models["model"]
		if s := m.memory.of(4); s != 0 {
			t.Errorf("what failed is taken for read, by %b", s)
		}
	}
}
