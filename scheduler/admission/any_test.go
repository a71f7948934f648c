package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// crowd is a queue with all that ever asked there.
type crowd struct {
	*Queue
	now    time.Duration
	places []*Place
}

func (c *crowd) with(is func(*Place) bool) (list []*Place) {
	for _, p := range c.places {
		if is(p) {
			list = append(list, p)
		}
	}
	return list
}

func anyRequest(t *rapid.T, slots, keys int, now time.Duration) Request {
	r := Request{
		Key: fmt.Sprint("k", rapid.IntRange(1, keys).Draw(t, "key")), Batch: rapid.Bool().Draw(t, "batch"), Slots: 1, Came: now,
		Continues: rapid.IntRange(1, 4).Draw(t, "continues") == 1,
	}
	if rapid.IntRange(1, 4).Draw(t, "several") == 1 {
		r.Slots = rapid.IntRange(0, slots+2).Draw(t, "slots")
	}
	return r
}

// TestWhateverHappens: what holds after everything that may happen at a queue.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots, most, keys := rapid.IntRange(1, 6).Draw(t, "slots"), rapid.IntRange(0, 12).Draw(t, "most"), rapid.IntRange(1, 5).Draw(t, "keys")
		c := &crowd{Queue: New(slots, most)}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			c.now += time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Second
			ran := c.with((*Place).Runs)
			switch what := rapid.IntRange(1, 10).Draw(t, "what"); {
			case what <= 5 || len(c.places) == 0:
				c.places = append(c.places, c.Ask(anyRequest(t, slots, keys, c.now), c.now))
			case what == 6:
				if p, ok := c.Try(anyRequest(t, slots, keys, c.now), c.now); ok {
					c.places = append(c.places, p)
				}
			case what == 7:
				c.Undo(rapid.SampledFrom(c.places).Draw(t, "leaves unserved"), c.now)
			default:
				c.Leave(rapid.SampledFrom(c.places).Draw(t, "leaves"), c.now)
			}
			c.check(t, ran)
		}
		for _, p := range c.places {
			c.Leave(p, c.now)
		}
		if c.Running() != 0 || c.Waiting() != 0 || len(c.keys) != 0 || len(c.running) != 0 || c.first != 0 {
			t.Fatalf("all have left, and %d slots are taken, %d wait, %d keys and %d places are known", c.Running(), c.Waiting(), len(c.keys), len(c.running))
		}
	})
}

// check holds the queue to what it promises; ran are those that ran before the last step.
func (c *crowd) check(t *rapid.T, ran []*Place) {
	taken, held := 0, map[keyOf]int{}
	for _, p := range c.with((*Place).Runs) {
		taken += c.take(p.request)
		held[p.request.keyOf()] += c.take(p.request)
	}
	waiting := c.with((*Place).Waits)
	if taken > c.slots || taken != c.Running() {
		t.Fatalf("%d of %d slots are taken, it says %d", taken, c.slots, c.Running())
	}
	if len(waiting) > c.most || len(waiting) != c.Waiting() {
		t.Fatalf("%d wait of at most %d, it says %d", len(waiting), c.most, c.Waiting())
	}
	normalWaits := slices.ContainsFunc(waiting, func(p *Place) bool { return !p.request.Batch })
	for _, p := range c.places {
		select {
		case <-p.Moved():
			if p.Waits() {
				t.Fatalf("%+v waits and is told that it does not", p.request)
			}
		default:
			if p.Runs() {
				t.Fatalf("%+v runs and is not told", p.request)
			}
		}
		if !p.Runs() || slices.Contains(ran, p) {
			continue
		}
		// It came in at this step.
		if p.request.Batch && (normalWaits || c.slots > 1 && taken == c.slots) {
			t.Fatalf("batch %+v came in, and %d of %d slots are taken, normal waits: %v", p.request, taken, c.slots, normalWaits)
		}
		for _, o := range waiting {
			if o.request.keyOf() == p.request.keyOf() && o.before(p) {
				t.Fatalf("%+v came in before %+v", p.request, o.request)
			}
		}
	}
	// No slot is kept from those who could have it.
	for _, p := range waiting {
		free := c.slots - taken
		if p.request.Batch {
			free--
		}
		if c.slots > 1 && free > 0 && !slices.ContainsFunc(waiting, func(p *Place) bool { return c.take(p.request) > 1 }) && (!p.request.Batch || !normalWaits) {
			t.Fatalf("%+v waits, and %d of %d slots are taken", p.request, taken, c.slots)
		}
	}
}

// TestKeysShare: keys that always ask have their share of the slots, and of the turns,
// however many requests each of them sends and however long they take.
func TestKeysShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots, keys, batch := rapid.IntRange(1, 6).Draw(t, "slots"), rapid.IntRange(2, 5).Draw(t, "keys"), rapid.Bool().Draw(t, "batch")
		c := &crowd{Queue: New(slots, 1000)}
		ask := func(key string) {
			c.places = append(c.places, c.Ask(Request{Key: key, Batch: batch, Came: c.now}, c.now))
		}
		// One that nobody is to be late for.
		first := c.Ask(Request{Slots: slots, Key: "first"}, 0)
		for k := range keys {
			for range rapid.IntRange(slots+1, 40).Draw(t, "backlog") {
				ask(fmt.Sprint("k", k))
			}
		}
		c.Leave(first, c.now)
		turns := map[string]int{}
		for _, p := range c.with((*Place).Runs) {
			turns[p.request.Key]++
		}
		for range 60 {
			c.now += time.Duration(rapid.IntRange(0, 2).Draw(t, "pause")) * time.Second
			running := c.with((*Place).Runs)
			p := rapid.SampledFrom(running).Draw(t, "leaves")
			ask(p.request.Key)
			c.Leave(p, c.now)
			c.places = slices.DeleteFunc(c.places, func(o *Place) bool { return o == p })
			has := map[string]int{}
			for _, p := range c.with((*Place).Runs) {
				has[p.request.Key]++
				if !slices.Contains(running, p) {
					turns[p.request.Key]++
				}
			}
			least, most, fewest, turnsMost := slots, 0, 1<<30, 0
			for k := range keys {
				n := has[fmt.Sprint("k", k)]
				least, most = min(least, n), max(most, n)
				n = turns[fmt.Sprint("k", k)]
				fewest, turnsMost = min(fewest, n), max(turnsMost, n)
			}
			if most > least+1 {
				t.Fatalf("of %d slots the keys have %v", slots, has)
			}
			if one := slots == 1 || batch && slots == 2; one && turnsMost > fewest+1 {
				t.Fatalf("keys had turns: %v", turns)
			}
		}
	})
}

// TestNobodyStarves: a request of a key that has no slots comes in before any key that
// waited already had its turn twice, and before any that came later had one, whatever
// else comes and however many slots it takes.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots, batch := rapid.IntRange(1, 6).Draw(t, "slots"), rapid.Bool().Draw(t, "batch")
		c := &crowd{Queue: New(slots, 1000)}
		another := 0
		ask := func() {
			r := Request{Key: fmt.Sprint("k", rapid.IntRange(1, 4).Draw(t, "key")), Batch: batch, Came: c.now, Slots: rapid.IntRange(1, slots).Draw(t, "slots")}
			if rapid.Bool().Draw(t, "new key") {
				another++
				r.Key = fmt.Sprint("new", another)
			}
			c.places = append(c.places, c.Ask(r, c.now))
		}
		for range rapid.IntRange(slots, 20).Draw(t, "before") {
			c.now += time.Duration(rapid.IntRange(0, 1).Draw(t, "pause")) * time.Second
			ask()
		}
		waited := map[string]bool{}
		for _, p := range c.with((*Place).Waits) {
			waited[p.request.Key] = true
		}
		target := c.Ask(Request{Key: "target", Batch: batch, Came: c.now, Slots: rapid.IntRange(1, slots).Draw(t, "slots")}, c.now)
		turns := map[string]int{}
		for target.Waits() {
			for range rapid.IntRange(0, 2).Draw(t, "more") {
				ask()
			}
			c.now += time.Duration(rapid.IntRange(0, 1).Draw(t, "pause")) * time.Second
			running := c.with((*Place).Runs)
			c.Leave(rapid.SampledFrom(running).Draw(t, "leaves"), c.now)
			for _, p := range c.with((*Place).Runs) {
				if slices.Contains(running, p) {
					continue
				}
				if turns[p.request.Key]++; target.Waits() && (turns[p.request.Key] > 1 || !waited[p.request.Key]) {
					t.Fatalf("key %s had %d turns meanwhile, waited: %v", p.request.Key, turns[p.request.Key], waited[p.request.Key])
				}
			}
		}
	})
}
