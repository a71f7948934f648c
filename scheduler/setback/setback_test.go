package setback_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"relay/scheduler/setback"
)

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	attic = setback.Key{Peer: "attic", UID: "qwen"}
	den   = setback.Key{Peer: "den", UID: "qwen"}
)

// crash is the report of an engine of build "old", of its own each.
func crash(n int) setback.Failure {
	return setback.Failure{Mark: fmt.Sprint("crash ", n), Parks: true, Reason: "engine_failed", Text: fmt.Sprintf("it died for the %d. time", n), Build: "old"}
}

func refusal(n int) setback.Failure {
	return setback.Failure{Mark: fmt.Sprint("refusal ", n), Reason: "no_capacity", Text: fmt.Sprintf("needs %d GiB", n)}
}

func TestFiveInARowPark(t *testing.T) {
	b := setback.New()
	for n := 1; n <= 5; n++ {
		if s := b.Look(attic, "old", start); s.Parked || s.Failures != n-1 {
			t.Fatalf("after %d: %+v", n-1, s)
		}
		b.Note(attic, crash(n), start)
		b.Note(attic, crash(n), start.Add(time.Hour)) // the same report
	}
	want := setback.State{Blocked: true, Parked: true, Reason: "engine_failed", Text: "it died for the 5. time", Failures: 5, Mark: "crash 5"}
	if s := b.Look(attic, "old", start.Add(1000*time.Hour)); s != want {
		t.Errorf("after 5: %+v", s)
	}
	if s := b.Look(den, "old", start); s != (setback.State{}) {
		t.Errorf("elsewhere: %+v", s)
	}
	if s := b.Look(attic, "", start); !s.Parked {
		t.Errorf("with a build that is not known: %+v", s)
	}
	b.Note(attic, refusal(1), start)
	if s := b.Look(attic, "old", start); s.Text != want.Text || !s.Parked {
		t.Errorf("a refusal hid why it is parked: %+v", s)
	}
	if s := b.Look(attic, "new", start); s.Blocked || s.Failures != 0 || s.Text != "" {
		t.Errorf("with another build: %+v", s)
	}
	if p := b.Parked("qwen"); p != nil {
		t.Errorf("with another build: %+v", p)
	}
}

// TestServedInBetween: an engine that dies of some requests and serves the others is not
// parked, nor left alone for longer each time.
func TestServedInBetween(t *testing.T) {
	b := setback.New()
	for n := 1; n <= 20; n++ {
		f := crash(n)
		f.Served = n%4 != 0
		b.Note(attic, f, start)
		b.Note(attic, f, start) // the same report
		want := 1
		if !f.Served {
			want = 2
		}
		if s := b.Look(attic, "old", start); s.Parked || s.Failures != want {
			t.Fatalf("after %d: %+v", n, s)
		}
	}
	for n := 21; n <= 24; n++ {
		b.Note(attic, crash(n), start)
	}
	if s := b.Look(attic, "old", start); !s.Parked {
		t.Errorf("after five in a row: %+v", s)
	}
}

func TestRefusalsNeverPark(t *testing.T) {
	b := setback.New()
	now := start
	for n := 1; n <= 100; n++ {
		b.Note(attic, refusal(n), now)
		s := b.Look(attic, "old", now)
		if s.Parked || !s.Blocked || s.Failures != n || s.Until.Sub(now) != setback.Delay(attic, n) {
			t.Fatalf("after %d: %+v", n, s)
		}
		if now = s.Until; b.Look(attic, "old", now).Blocked || !b.Look(attic, "old", now.Add(-1)).Blocked {
			t.Fatalf("after %d it is not let go when it is said", n)
		}
	}
	// Nor do they break a row of crashes, or count in it.
	for n := 1; n <= 5; n++ {
		if s := b.Look(attic, "old", now); s.Parked {
			t.Fatalf("after %d crashes: %+v", n-1, s)
		}
		b.Note(attic, crash(n), now)
		b.Note(attic, refusal(-n), now)
	}
	if s := b.Look(attic, "old", now); !s.Parked || s.Text != "it died for the 5. time" {
		t.Errorf("after 5 crashes: %+v", s)
	}
}

func TestAnotherBuildBeginsAnew(t *testing.T) {
	b := setback.New()
	for n := 1; n <= 4; n++ {
		b.Note(attic, crash(n), start)
	}
	f := crash(5)
	f.Build = "new"
	b.Note(attic, f, start)
	if s := b.Look(attic, "new", start); s.Parked || s.Failures != 1 || s.Mark != f.Mark {
		t.Errorf("%+v", s)
	}
}

func TestForgotten(t *testing.T) {
	four := func() *setback.Book {
		b := setback.New()
		for n := 1; n <= 4; n++ {
			b.Note(attic, crash(n), start)
		}
		return b
	}
	failures := func(b *setback.Book) int { return b.Look(attic, "old", start).Failures }
	b := four()
	b.Well(attic, start)
	b.Well(attic, start.Add(5*time.Minute-1))
	if n := failures(b); n != 4 {
		t.Errorf("%d before five minutes", n)
	}
	b.Well(attic, start.Add(5*time.Minute))
	if n := failures(b); n != 0 {
		t.Errorf("%d after five minutes", n)
	}
	b = four()
	b.Well(attic, start)
	b.Note(attic, crash(5), start.Add(time.Second))
	b.Well(attic, start.Add(time.Hour))
	if n := failures(b); n != 5 {
		t.Errorf("%d though it failed in between", n)
	}
	b.Well(den, start) // which never failed
	// By a person: and the report that is still there does not count again.
	b.Forget("other")
	if n := failures(b); n != 5 {
		t.Errorf("%d after another was forgotten", n)
	}
	b.Forget("qwen")
	b.Note(attic, crash(5), start)
	if s := b.Look(attic, "old", start); s.Blocked || s.Failures != 0 || s.Text != "" {
		t.Errorf("after it was forgotten: %+v", s)
	}
	b.Note(attic, crash(6), start)
	if n := failures(b); n != 1 {
		t.Errorf("%d after one more", n)
	}
	b.Keep(func(uid string) bool { return uid == "qwen" })
	if n := failures(b); n != 1 {
		t.Errorf("%d though it is alive", n)
	}
	b.Keep(func(uid string) bool { return uid != "qwen" })
	if s := b.Look(attic, "old", start); s != (setback.State{}) {
		t.Errorf("of a model that is no more: %+v", s)
	}
}

// A report without a mark cannot be told from the one before.
func TestWithoutMark(t *testing.T) {
	b := setback.New()
	b.Note(attic, setback.Failure{Parks: true}, start)
	b.Note(attic, setback.Failure{Parks: true}, start)
	if s := b.Look(attic, "", start); s.Failures != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSuccessors(t *testing.T) {
	b := setback.New()
	long := setback.Failure{Parks: true, Reason: "engine_failed", Text: strings.Repeat("ä", 1000), Build: "old"}
	for n := range 7 {
		long.Mark = fmt.Sprint(n)
		b.Note(attic, long, start)
		b.Note(den, crash(n), start)
		b.Note(setback.Key{Peer: "attic", UID: "other"}, crash(n), start)
	}
	b.Note(setback.Key{Peer: "once", UID: "qwen"}, crash(1), start)
	list := b.Parked("qwen")
	if len(list) != 2 || list[0].Peer != "attic" || list[1] != (setback.Parked{Peer: "den", Build: "old", Reason: "engine_failed", Text: "it died for the 6. time", Failures: 7}) {
		t.Fatalf("%+v", list)
	}
	if text := list[0].Text; len(text) > 512 || len(text) < 500 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ä…") {
		t.Errorf("%d bytes are kept: %q", len(text), text)
	}
	next := setback.New()
	for n := range 3 { // of a time when it led before
		next.Note(den, crash(n), start)
	}
	next.Forget("qwen")
	for _, p := range list {
		next.Adopt(setback.Key{Peer: p.Peer, UID: "qwen"}, p)
	}
	if got := next.Parked("qwen"); !reflect.DeepEqual(got, list) {
		t.Errorf("%+v were adopted as %+v", list, got)
	}
	if s := next.Look(den, "old", start); !s.Parked || !s.Blocked || s.Text != list[1].Text {
		t.Errorf("%+v", s)
	}
	if s := next.Look(den, "new", start); s.Blocked {
		t.Errorf("with another build: %+v", s)
	}
	next.Adopt(den, setback.Parked{Failures: -1 << 62})
	if s := next.Look(den, "old", start); !s.Parked || s.Failures != 5 {
		t.Errorf("nonsense was adopted as %+v", s)
	}
}

func TestDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := setback.Key{Peer: rapid.String().Draw(t, "peer"), UID: rapid.String().Draw(t, "uid")}
		n := rapid.OneOf(rapid.IntRange(1, 20), rapid.Int(), rapid.SampledFrom([]int{math.MinInt, math.MaxInt})).Draw(t, "failures")
		middle := 300 * time.Second
		if n <= 9 {
			middle = min(middle, time.Second<<(max(n, 1)-1))
		}
		d := setback.Delay(k, n)
		if d < middle*3/4 || d > middle*5/4 || d != setback.Delay(k, n) {
			t.Fatalf("%s, not around %s", d, middle)
		}
	})
	// It differs, over all of what it may be, for models that fail together and for
	// one that fails again.
	for name, key := range map[string]func(i int) (setback.Key, int){
		"peers":    func(i int) (setback.Key, int) { return setback.Key{Peer: fmt.Sprint("peer", i), UID: "qwen"}, 20 },
		"models":   func(i int) (setback.Key, int) { return setback.Key{Peer: "attic", UID: fmt.Sprint("model", i)}, 20 },
		"failures": func(i int) (setback.Key, int) { return attic, 20 + i },
	} {
		tenths := map[time.Duration]int{}
		for i := range 1000 {
			tenths[(setback.Delay(key(i))-225*time.Second)/(15*time.Second)]++
		}
		if least := slices.Min(slices.Collect(maps.Values(tenths))); len(tenths) != 10 || least < 60 {
			t.Errorf("%s: by tenths %v", name, tenths)
		}
	}
}

// TestRows compares the book with the rows written out as lists.
func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now, mark := setback.New(), start, 0
		var row []setback.Failure // since anything was forgotten
		var last setback.Failure
		crashes := func() (n int) {
			for _, f := range row {
				if f.Parks {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"crash": func(t *rapid.T) {
				mark++
				last = crash(mark)
				b.Note(attic, last, now)
				row = append(row, last)
			},
			"refusal": func(t *rapid.T) {
				mark++
				last = refusal(mark)
				b.Note(attic, last, now)
				if crashes() < 5 {
					row = append(row, last)
				}
			},
			"again": func(t *rapid.T) {
				if last.Text != "" {
					b.Note(attic, last, now)
				}
			},
			"elsewhere": func(t *rapid.T) {
				mark++
				b.Note(den, crash(mark), now)
			},
			"retry": func(t *rapid.T) { b.Forget("qwen"); row = nil },
			"update": func(t *rapid.T) {
				if crashes() > 0 {
					row = nil
				}
				b.Look(attic, "new", now)
			},
			"well": func(t *rapid.T) {
				b.Well(attic, now)
				now = now.Add(5 * time.Minute)
				b.Well(attic, now)
				row = nil
			},
			"time": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "s")) * time.Second) },
			"": func(t *rapid.T) {
				s := b.Look(attic, "old", now)
				if s.Failures != len(row) || s.Parked != (crashes() >= 5) || s.Parked && !s.Blocked {
					t.Fatalf("%+v after %+v", s, row)
				}
				if s.Blocked && !s.Parked && !(now.Before(s.Until) && s.Until.Sub(now) <= 375*time.Second) {
					t.Fatalf("blocked for %s after %+v", s.Until.Sub(now), row)
				}
				if len(row) > 0 && s.Text != row[len(row)-1].Text {
					t.Fatalf("%+v after %+v", s, row)
				}
			},
		})
	})
}
