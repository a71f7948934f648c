package leases

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAnyPull plays pulls with holders that come, go, lie, stall and send wrong
// leaves, in any order, and holds the promises of the package against each step.
func TestAnyPull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "leaves")
		want := NewSet(n)
		for i := range n {
			if rapid.IntRange(0, 9).Draw(t, "wanted") > 0 {
				want.Add(i)
			}
		}
		b := New(n, 1<<20, want, rapid.IntRange(0, 9).Draw(t, "start"))
		left := want.Count()
		ids := []string{"a", "b", "c"}
		offered := map[string]Set{}
		wrong := map[string]map[int]bool{"a": {}, "b": {}, "c": {}}
		got := NewSet(n)
		var now time.Duration
		check := func() {
			if b.Left() != left-both(got, want) {
				t.Fatalf("%d are left, want %d", b.Left(), left-both(got, want))
			}
			// Whatever is under way has somebody who sends it: else nobody is asked for it.
			for i := range n {
				if b.busy.Has(i) && b.open.Has(i) && !b.underWay(i) {
					t.Fatalf("leaf %d is under way from nobody", i)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "holder")
				var has Set
				if rapid.Bool().Draw(t, "part") {
					has = NewSet(n)
					for i := range n {
						if rapid.Bool().Draw(t, "has") {
							has.Add(i)
						}
					}
				}
				b.Offer(id, has)
				if offered[id] = has; has == nil {
					offered[id] = NewSet(n)
					offered[id].Fill(n)
				}
			},
			"forget": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "holder")
				b.Forget(id)
				delete(offered, id)
			},
			"ask": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "holder")
				now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
				before := map[int]bool{}
				for _, other := range ids {
					if h := b.holders[other]; other != id && h != nil && h.lease != nil {
						for i := h.lease.next; i < h.lease.To; i++ {
							before[i] = true
						}
					}
				}
				l := b.Next(id, now)
				if l == nil {
					return
				}
				if l.To-l.From < 1 || l.To-l.From > Most {
					t.Fatalf("a lease of %d leaves", l.To-l.From)
				}
				twice := 0
				for i := l.From; i < l.To; i++ {
					switch {
					case !offered[id].Has(i):
						t.Fatalf("%s is asked for leaf %d, which it does not have", id, i)
					case wrong[id][i]:
						t.Fatalf("%s is asked again for leaf %d, which it sent wrong", id, i)
					case !want.Has(i) || got.Has(i):
						t.Fatalf("%s is asked for leaf %d, which nobody needs", id, i)
					}
					if before[i] && b.twoSend(i) {
						twice++
					}
				}
				if twice > 1 {
					t.Fatalf("%d leaves are under way twice", twice)
				}
			},
			"come": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "holder")
				b.Moved(id, now, float64(rapid.IntRange(1, 500).Draw(t, "rate"))*1e6)
				if i, ok := b.Due(id); ok {
					b.Passed(id)
					b.Here(i)
					got.Add(i)
				}
			},
			"wrong": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "holder")
				if i, ok := b.Due(id); ok {
					b.Passed(id)
					b.Wrong(id, i)
					wrong[id][i] = true
					if rapid.Bool().Draw(t, "ends") {
						b.End(id)
					}
				}
			},
			"lacks": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "holder")
				if i, ok := b.Due(id); ok {
					b.Lacks(id, i)
					offered[id].Remove(i)
					b.End(id)
				}
			},
			"else": func(t *rapid.T) { // It came by another way.
				i := rapid.IntRange(0, n-1).Draw(t, "leaf")
				b.Here(i)
				got.Add(i)
			},
			"end": func(t *rapid.T) { b.End(rapid.SampledFrom(ids).Draw(t, "holder")) },
			"":    func(*rapid.T) { check() },
		})
		// Whoever is left and has all ends it, whatever went before.
		for _, id := range ids {
			b.Forget(id)
		}
		b.Offer("last", nil)
		for steps := 0; b.Left() > 0; steps++ {
			if steps > 2*n {
				t.Fatalf("%d leaves never come", b.Left())
			}
			if b.Next("last", now) == nil {
				t.Fatalf("%d leaves are asked for nowhere", b.Left())
			}
			for i, ok := b.Due("last"); ok; i, ok = b.Due("last") {
				b.Here(i)
				b.Passed("last")
			}
		}
	})
}

func (b *Book) twoSend(i int) bool {
	n := 0
	for _, h := range b.holders {
		if h.lease != nil && h.lease.next <= i && i < h.lease.To {
			n++
		}
	}
	return n > 1
}

func both(a, b Set) int {
	n := NewSet(64 * len(a))
	for w := range n {
		n[w] = a[w] & b[w]
	}
	return n.Count()
}

func full(n int) Set {
	s := NewSet(n)
	s.Fill(n)
	return s
}

// TestWhatFewHaveComesFirst: what nobody else has is asked of whoever has it.
func TestWhatFewHaveComesFirst(t *testing.T) {
	b := New(4*64, 1<<20, full(4*64), 0)
	b.Offer("whole", nil)
	some := NewSet(4 * 64)
	for i := range 3 * 64 {
		some.Add(i)
	}
	b.Offer("part", some)
	if l := b.Next("whole", 0); l == nil || l.From != 3*64 {
		t.Errorf("the whole holder is asked for %+v", l)
	}
	if l := b.Next("part", 0); l == nil || l.From != 0 {
		t.Errorf("the other for %+v", l)
	}
}

// TestSlowHoldersHaveLittle: a lease takes about as long for everybody.
func TestSlowHoldersHaveLittle(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want int
	}{{0, first}, {100e3, 1}, {5 << 20, 10}, {400e6, Most}} {
		b := New(1000, 1<<20, full(1000), 0)
		b.Offer("a", nil)
		b.Next("a", 0)
		b.Moved("a", 0, c.rate)
		if l := b.Next("a", 0); l == nil || l.To-l.From != c.want {
			t.Errorf("at %v bytes a second: %+v, want %d leaves", c.rate, l, c.want)
		}
	}
}

// TestTheEndIsTakenOver: the fast one takes the rest of what the slow one has
// under way, and everything of one who is silent.
func TestTheEndIsTakenOver(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   float64 // of the other
		silent time.Duration
		want   string
	}{
		{"slow", 1 << 20, 0, "[1 10)"}, // Its share of the ten seconds that are left.
		{"as fast", 50 << 20, 0, "none"},
		{"silent", 50 << 20, 5 * time.Second, "[5 10)"},
		{"never sent", 0, 5 * time.Second, "[0 10)"},
		{"only just asked", 0, 0, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := New(10, 1<<20, full(10), 0)
			b.Offer("other", nil)
			b.Next("other", 0)
			b.Moved("other", 0, 50<<20)
			if l := b.Next("other", 0); l == nil || l.To != 10 {
				t.Fatalf("it has %+v", l)
			}
			b.Moved("other", 0, c.rate)
			b.Offer("idle", nil)
			b.Moved("idle", 0, 50<<20)
			got := "none"
			if l := b.Next("idle", c.silent); l != nil {
				got = fmt.Sprintf("[%d %d)", l.From, l.To)
			}
			if got != c.want {
				t.Errorf("the idle one is asked for %s, want %s", got, c.want)
			}
		})
	}
}

// TestWrongLeavesAreCounted: a few, and the holder is to be dropped.
func TestWrongLeavesAreCounted(t *testing.T) {
	b := New(10, 1<<20, full(10), 0)
	b.Offer("a", nil)
	for i := range MaxWrong - 1 {
		if b.Wrong("a", i) {
			t.Errorf("dropped after %d", i+1)
		}
	}
	b.Offer("a", nil) // What it says again does not help.
	if l := b.Next("a", 0); l == nil || l.From != MaxWrong-1 {
		t.Errorf("asked for %+v", l)
	}
	if !b.Wrong("a", 5) {
		t.Error("not dropped")
	}
}
