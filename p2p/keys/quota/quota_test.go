package quota

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestNoMinuteHoldsMore: whatever was let in by a window's sum, no minute holds more
// than the limit, wherever it begins.
func TestNoMinuteHoldsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 20).Draw(t, "limit")
		var w Window
		var let []time.Duration
		now := time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "from"))
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += time.Duration(rapid.Int64Range(0, int64(8*time.Second)).Draw(t, "pause"))
			l := Limits{RequestsPerMinute: limit}
			no := Decide(l, Use{Now: now, Entrances: 1, Here: &w})
			if no == nil {
				w.Add(now, 1)
				let = append(let, now)
				continue
			}
			if no.After <= 0 || no.After > Minute+time.Second {
				t.Fatalf("asked to wait for %s", no.After)
			}
			if again := Decide(l, Use{Now: now + no.After, Entrances: 1, Here: &w}); again != nil {
				t.Fatalf("told to ask again in %s, and then to wait for %s", no.After, again.After)
			}
		}
		for i, from := range let {
			held := int64(0)
			for _, at := range let[i:] {
				if at < from+Minute {
					held++
				}
			}
			if held > limit {
				t.Fatalf("%d within a minute, %d are allowed", held, limit)
			}
		}
	})
}

// TestAWindowForgets: it counts what its slots say, and nothing of what is older
// than a minute and a second.
func TestAWindowForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		type event struct {
			second, n int64
		}
		var events []event
		second := int64(0)
		for range rapid.IntRange(0, 100).Draw(t, "events") {
			second += rapid.Int64Range(0, 100).Draw(t, "later")
			n := rapid.Int64Range(0, 5).Draw(t, "n")
			w.Add(time.Duration(second)*time.Second, n)
			events = append(events, event{second, n})
		}
		at := second + rapid.Int64Range(0, 100).Draw(t, "ahead")
		want := int64(0)
		for _, e := range events {
			if at-e.second < seconds {
				want += e.n
			}
		}
		now := time.Duration(at) * time.Second
		if got := w.Sum(now); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
		empty := w.empty(now)
		if (empty == 0) != (want == 0) || w.Sum(now+empty) != 0 || empty > 0 && w.Sum(now+empty-1) == 0 {
			t.Fatalf("%d now, none in %s", want, empty)
		}
	})
}

// TestSharesStayWithinTheLimit: what entrances that know of one another let in is the
// limit at most, and where only one goes on asking it has all of it in the end.
func TestSharesStayWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{RequestsPerMinute: rapid.Int64Range(1, 50).Draw(t, "per minute"), Concurrency: rapid.Int64Range(1, 50).Draw(t, "at once")}
		n := rapid.IntRange(1, 8).Draw(t, "entrances")
		windows, running, shares := make([]Window, n), make([]int64, n), make([]Share, n)
		use := func(i int) Use {
			u := Use{Entrances: int64(n), Here: &windows[i], RunningHere: running[i], Share: shares[i], ShareEnds: Turn}
			for j := range n {
				if j != i {
					u.Elsewhere = append(u.Elsewhere, &windows[j])
					u.RunningElsewhere += running[j]
				}
			}
			return u
		}
		ask := func(i int) *Refusal {
			no := Decide(l, use(i))
			if no == nil {
				windows[i].Add(0, 1)
				running[i]++
				shares[i].Requests--
				shares[i].AtOnce--
			}
			return no
		}
		sums := func() (made, atOnce int64) {
			for i := range n {
				made, atOnce = made+windows[i].Sum(0), atOnce+running[i]
			}
			return made, atOnce
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "at")
			if rapid.Bool().Draw(t, "a turn begins") {
				shares[i] = ShareOf(l, use(i))
			}
			ask(i)
			if made, atOnce := sums(); made > l.RequestsPerMinute || atOnce > l.Concurrency {
				t.Fatalf("%d requests and %d at once, the limits are %+v", made, atOnce, l)
			}
		}
		for range 100 { // One entrance alone goes on.
			shares[0] = ShareOf(l, use(0))
			for ask(0) == nil {
			}
		}
		if made, atOnce := sums(); made != l.RequestsPerMinute && atOnce != l.Concurrency {
			t.Fatalf("%d requests and %d at once in the end, the limits are %+v", made, atOnce, l)
		}
	})
}

func TestWhatARefusalSays(t *testing.T) {
	var here, there Window
	here.Add(0, 6)
	there.Add(30*time.Second, 4)
	now := 40 * time.Second
	for _, tc := range []struct {
		limits Limits
		use    Use
		text   string
		after  time.Duration
	}{
		{Limits{TokensPerDay: 100}, Use{Tokens: 99}, "", 0},
		{Limits{TokensPerDay: 100}, Use{Tokens: 120, Midnight: time.Hour},
			"has used 120 of its 100 tokens a day, at all peers together; there are more after midnight UTC", time.Hour},
		{Limits{RequestsPerMinute: 10}, Use{Now: now, Entrances: 1, Here: &here, Elsewhere: []*Window{&there}},
			"has made 6 requests here and 4 elsewhere within a minute, of 10 that it may make", 21 * time.Second},
		{Limits{RequestsPerMinute: 12}, Use{Now: now, Entrances: 2, Here: &here, Elsewhere: []*Window{&there}, ShareEnds: time.Second / 2},
			"has made 6 requests here and 4 elsewhere within a minute, of 12 that it may make; what is left is shared anew each second by the 2 peers where it is in use", time.Second / 2},
		{Limits{Concurrency: 1}, Use{Entrances: 3, RunningElsewhere: 1}, "has 0 requests under way here and 1 elsewhere, of 1 that it may have at once", time.Second},
		{Limits{Concurrency: 3}, Use{Entrances: 3, RunningHere: 1, ShareEnds: time.Second / 4},
			"has 1 request under way here and 0 elsewhere, of 3 that it may have at once; what is left is shared anew each second by the 3 peers where it is in use", time.Second / 4},
		{Limits{Concurrency: 2}, Use{Entrances: 3, RunningElsewhere: 1, Share: Share{AtOnce: 1}}, "", 0},
		{Limits{}, Use{RunningHere: 1 << 40, Tokens: 1 << 40}, "", 0},
	} {
		no := Decide(tc.limits, tc.use)
		switch {
		case tc.text == "" && no != nil:
			t.Errorf("%+v: %+v", tc.limits, no)
		case tc.text != "" && (no == nil || no.Text != tc.text || no.After != tc.after):
			t.Errorf("%+v: %+v", tc.limits, no)
		}
	}
}
