package demand_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/scheduler/demand"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const uid = "qwen"

// ready are so many replicas on peers a, b, c …
func ready(n int, pressed, quiet bool) []demand.Replica {
	var list []demand.Replica
	for i := range n {
		list = append(list, demand.Replica{Peer: string(rune('a' + i)), Pressed: pressed, Quiet: quiet})
	}
	return list
}

func pressed(n int) []demand.Replica { return ready(n, true, false) }
func quiet(n int) []demand.Replica   { return ready(n, false, true) }
func steady(n int) []demand.Replica  { return ready(n, false, false) }

func TestWhatWasSaid(t *testing.T) {
	for _, tc := range []struct {
		name          string
		policy        demand.Policy
		asleep, asked bool
		want          demand.Want
	}{
		{"nothing", demand.Policy{}, false, false, demand.Want{Count: 1, Why: "nothing was said about it, so one replica where there is room"}},
		{"nothing, and it is asked for", demand.Policy{}, false, true, demand.Want{Count: 1, Evict: true, Why: "it is asked for"}},
		{"nothing, and it sleeps", demand.Policy{}, true, false, demand.Want{Why: "it sleeps until it is asked for"}},
		{"nothing, and it is woken", demand.Policy{}, true, true, demand.Want{Count: 1, Evict: true, Why: "it is asked for"}},
		{"a maximum alone", demand.Policy{Max: 3}, true, false, demand.Want{Why: "it sleeps until it is asked for"}},
		{"a minimum", demand.Policy{Min: 2}, true, false, demand.Want{Count: 2, Evict: true, Why: "at least 2 wanted"}},
		{"a pin", demand.Policy{Pinned: true}, true, false, demand.Want{Count: 1, Evict: true, Why: "it is pinned"}},
		{"both", demand.Policy{Min: 3, Pinned: true}, false, false, demand.Want{Count: 3, Evict: true, Why: "at least 3 wanted"}},
		{"a maximum below the minimum", demand.Policy{Min: 3, Max: 2}, false, false, demand.Want{Count: 3, Evict: true, Why: "at least 3 wanted"}},
		{"nonsense", demand.Policy{Min: -3, Max: -2}, false, false, demand.Want{Count: 1, Why: "nothing was said about it, so one replica where there is room"}},
	} {
		b := demand.New()
		if tc.asleep {
			b.Slept(uid)
		}
		if tc.asked {
			b.Asked(uid, start)
		}
		if w := b.Look(uid, tc.policy, 0, nil, start); w != tc.want {
			t.Errorf("%s: %+v", tc.name, w)
		}
	}
}

func TestAskedAndAsleep(t *testing.T) {
	b := demand.New()
	look := func(after time.Duration) (int, bool) {
		w := b.Look(uid, demand.Policy{}, 0, nil, start.Add(after))
		return w.Count, w.Evict
	}
	is := func(what string, after time.Duration, count int, evict bool) {
		t.Helper()
		if c, e := look(after); c != count || e != evict {
			t.Errorf("%s: %d, evicting is %v", what, c, e)
		}
	}
	is("at first", 0, 1, false)
	b.Slept(uid)
	is("asleep", time.Second, 0, false)
	is("long after", 1000*time.Hour, 0, false)
	b.Asked(uid, start.Add(time.Hour))
	is("asked for", time.Hour, 1, true)
	is("still", time.Hour+30*time.Second-1, 1, true)
	is("no more", time.Hour+30*time.Second, 1, false)
	b.Asked(uid, start.Add(2*time.Hour))
	b.Slept(uid)
	is("unloaded by hand just after it was asked for", 2*time.Hour, 0, false)
	// A minimum wakes it, and once it is taken back it stays awake.
	if w := b.Look(uid, demand.Policy{Min: 1}, 0, nil, start); w.Count != 1 {
		t.Errorf("%+v", w)
	}
	is("after a minimum", 3*time.Hour, 1, false)
	b.Slept(uid)
	b.Keep(func(uid string) bool { return uid == "other" })
	is("a new one of that name", 0, 1, false)
}

// TestLoad goes through a day step by step.
func TestLoad(t *testing.T) {
	b := demand.New()
	const s, m = time.Second, time.Minute
	for _, step := range []struct {
		name    string
		at      time.Duration
		max     int
		running int
		ready   []demand.Replica
		count   int
		less    string
	}{
		{"just seen", 0, 3, 1, pressed(1), 1, ""},
		{"not for a minute yet", m - 1, 3, 1, pressed(1), 1, ""},
		{"pressed", m, 3, 1, pressed(1), 2, ""},
		{"it loads", 3 * m, 3, 2, pressed(1), 2, ""},
		{"one of two is not pressed", 4 * m, 3, 2, append(pressed(1), demand.Replica{Peer: "b"}), 2, ""},
		{"both are", 5 * m, 3, 2, pressed(2), 3, ""},
		{"no more than the maximum", 10 * m, 3, 3, pressed(3), 3, ""},
		{"quiet, but not ten minutes since the last change", 15*m - 1, 3, 3, quiet(3), 3, ""},
		{"quiet", 15 * m, 3, 3, append(steady(1), demand.Replica{Peer: "b", Quiet: true}, demand.Replica{Peer: "c", Quiet: true}), 2, "b"},
		{"the same goes", 15*m + s, 3, 3, append(quiet(1), steady(3)[1:]...), 2, "b"},
		{"it is gone", 16 * m, 3, 2, quiet(1), 2, ""},
		{"ten minutes between two", 24 * m, 3, 2, quiet(2), 2, ""},
		{"the next", 25 * m, 3, 2, quiet(2), 1, "a"},
		{"never the last", 100 * m, 3, 1, quiet(1), 1, ""},
		{"without a maximum", 101 * m, 0, 1, pressed(1), 2, ""},
		{"that finds no place", 110 * m, 0, 1, pressed(1), 2, ""},
		{"and is given up", 111 * m, 0, 1, quiet(1), 1, ""},
		{"again", 113 * m, 0, 1, pressed(1), 2, ""},
		{"another maximum", 114 * m, 1, 2, steady(2), 1, ""},
	} {
		w := b.Look(uid, demand.Policy{Max: step.max}, step.running, step.ready, start.Add(step.at))
		if w.Count != step.count || w.Less != step.less || w.Grow != (step.count > 1) || w.Evict {
			t.Errorf("%s: %+v", step.name, w)
		}
	}
}

// What is there for the load alone is not worth unloading others for; what was
// said is, also then.
func TestLoadEvictsNobody(t *testing.T) {
	b := demand.New()
	p := demand.Policy{Min: 2, Max: 4}
	b.Look(uid, p, 2, pressed(2), start)
	w := b.Look(uid, p, 2, pressed(2), start.Add(time.Minute))
	if w != (demand.Want{Count: 3, Grow: true, Why: "at least 2 wanted; one more, since requests have waited on every replica for a minute"}) {
		t.Errorf("%+v", w)
	}
	w = b.Look(uid, p, 1, pressed(1), start.Add(time.Minute))
	if w != (demand.Want{Count: 3, Grow: true, Evict: true, Why: "at least 2 wanted; 1 more for the load"}) {
		t.Errorf("%+v", w)
	}
}

func TestSuccessors(t *testing.T) {
	b, next := demand.New(), demand.New()
	for n := range 3 {
		b.Look(uid, demand.Policy{}, 1+n, pressed(1+n), start.Add(time.Duration(n)*time.Minute))
	}
	if p := b.Past(uid); p != (demand.Past{Extra: 2}) {
		t.Fatalf("%+v", p)
	}
	next.Slept(uid) // of a time when it led before
	next.Adopt(uid, b.Past(uid))
	now := start.Add(time.Hour)
	if w := next.Look(uid, demand.Policy{}, 3, pressed(3), now); w.Count != 3 || next.Past(uid) != b.Past(uid) {
		t.Errorf("%+v of %+v", w, b.Past(uid))
	}
	if w := next.Look(uid, demand.Policy{}, 3, pressed(3), now.Add(time.Minute)); w.Count != 4 {
		t.Errorf("a minute after it took over: %+v", w)
	}
	b.Slept(uid)
	next.Adopt(uid, b.Past(uid))
	if w := next.Look(uid, demand.Policy{}, 0, nil, now); w.Count != 0 || !next.Past(uid).Asleep {
		t.Errorf("%+v", w)
	}
	next.Asked(uid, now)
	if w := next.Look(uid, demand.Policy{}, 0, nil, now); w.Count != 1 || !w.Evict {
		t.Errorf("%+v", w)
	}
	for _, nonsense := range []int{-1 << 62, 1 << 62} {
		next.Adopt(uid, demand.Past{Extra: nonsense})
		if w := next.Look(uid, demand.Policy{Min: 2, Max: 5}, 0, nil, now); w.Count < 2 || w.Count > 5 {
			t.Errorf("%d more: %+v", nonsense, w)
		}
	}
	if p := next.Past("other"); p != (demand.Past{}) {
		t.Errorf("%+v of what was never seen", p)
	}
}

// TestBounds draws policies and what is reported, sensible or not.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := demand.New(), start
		p := demand.Policy{}
		asleep, last, changed := false, -1, time.Time{}
		t.Repeat(map[string]func(*rapid.T){
			"policy": func(t *rapid.T) {
				p = demand.Policy{Min: rapid.IntRange(0, 4).Draw(t, "min"), Max: rapid.IntRange(0, 6).Draw(t, "max"), Pinned: rapid.Bool().Draw(t, "pinned")}
				last = -1
			},
			"ask":   func(t *rapid.T) { b.Asked(uid, now); asleep, last = false, -1 },
			"sleep": func(t *rapid.T) { b.Slept(uid); asleep, last = true, -1 },
			"hand over": func(t *rapid.T) {
				past := b.Past(uid)
				b = demand.New()
				b.Adopt(uid, past)
			},
			"time": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "s")) * time.Second) },
			"look": func(t *rapid.T) {
				said := p.Min > 0 || p.Pinned
				asleep = asleep && !said
				n := rapid.IntRange(0, 6).Draw(t, "ready")
				list := steady(n)
				all := n > 0
				for i := range list {
					switch rapid.IntRange(0, 3).Draw(t, "load") {
					case 0:
						list[i].Quiet = true
						all = false
					case 1:
						all = false
					default:
						list[i].Pressed = true
					}
				}
				running := n + rapid.IntRange(0, 2).Draw(t, "loading")
				w := b.Look(uid, p, running, list, now)
				least := p.Min
				if p.Pinned || !asleep {
					least = max(1, p.Min)
				}
				if w.Count < least || p.Max > 0 && w.Count > max(p.Max, least) || asleep && w.Count != 0 {
					t.Fatalf("%+v by %+v, asleep is %v", w, p, asleep)
				}
				if w.Grow != (w.Count > least) || w.Why == "" || w.Evict && asleep || said && running < least && !w.Evict {
					t.Fatalf("%+v by %+v", w, p)
				}
				if i := slices.IndexFunc(list, func(r demand.Replica) bool { return r.Peer == w.Less }); w.Less != "" && (i < 0 || n <= w.Count) {
					t.Fatalf("%+v with %+v ready", w, list)
				}
				if last >= 0 && w.Count != last {
					since := now.Sub(changed)
					switch {
					case w.Count == last+1 && (!all || n < last || running > n || since < time.Minute):
						t.Fatalf("from %d: %+v with %+v ready of %d, %s after", last, w, list, running, since)
					case w.Count == last-1 && (!slices.ContainsFunc(list, func(r demand.Replica) bool { return r.Quiet }) || since < 10*time.Minute):
						t.Fatalf("from %d: %+v with %+v ready, %s after", last, w, list, since)
					case w.Count != last+1 && w.Count != last-1:
						t.Fatalf("from %d to %d at once", last, w.Count)
					}
					changed = now
				}
				last = w.Count
				// Looking again changes nothing.
				if again := b.Look(uid, p, running, list, now); again.Count != w.Count || again.Less != w.Less || again.Evict != w.Evict {
					t.Fatalf("%+v, and again %+v", w, again)
				}
			},
		})
	})
}

// A load that never ends has every replica it may have, one after the other.
func TestGrowsToTheMaximum(t *testing.T) {
	b := demand.New()
	now, n := start, 1
	for range 100 {
		w := b.Look(uid, demand.Policy{Max: 7}, n, pressed(n), now)
		if w.Count > n+1 {
			t.Fatalf("%d more at once", w.Count-n)
		}
		n, now = w.Count, now.Add(time.Minute)
	}
	if n != 7 {
		t.Errorf("%d after 100 minutes", n)
	}
	for range 200 {
		n, now = b.Look(uid, demand.Policy{Max: 7}, n, quiet(n), now).Count, now.Add(time.Minute)
	}
	if n != 1 {
		t.Errorf("%d after 200 quiet minutes", n)
	}
}
