package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// line is a queue at which letters ask: one letter is one key, a capital one of batch.
type line struct {
	*Queue
	now    time.Duration
	places map[string]*Place
	came   []string
}

func newLine(slots, most int) *line {
	return &line{Queue: New(slots, most), places: map[string]*Place{}}
}

// request is that of a name: its first letter is the key, "3" at its end has it take three
// slots, and "+" says that it continues.
func (l *line) request(name string) Request {
	r := Request{Key: strings.ToLower(name[:1]), Batch: name[0] < 'a', Came: l.now, Slots: 1, Continues: strings.Contains(name, "+")}
	fmt.Sscanf(name[len(name)-1:], "%d", &r.Slots)
	return r
}

// ask has requests ask one after the other, a second apart.
func (l *line) ask(names ...string) {
	for _, name := range names {
		l.now += time.Second
		l.places[name] = l.Ask(l.request(name), l.now)
		l.came = append(l.came, name)
	}
}

// leave has requests end.
func (l *line) leave(names ...string) {
	for _, name := range names {
		l.now += time.Second
		l.Leave(l.places[name], l.now)
	}
}

// String says who runs, who waits and who was put out.
func (l *line) String() string {
	var parts [3][]string
	for _, name := range l.came {
		switch p := l.places[name]; {
		case p.Runs():
			parts[0] = append(parts[0], name)
		case p.Waits():
			parts[1] = append(parts[1], name)
		default:
			parts[2] = append(parts[2], name)
		}
	}
	text := strings.Join(parts[0], " ") + " | " + strings.Join(parts[1], " ")
	if len(parts[2]) > 0 {
		text += " | " + strings.Join(parts[2], " ")
	}
	return text
}

// TestWhoIsNext: the names of requests are a key, a capital letter where that is of batch,
// then which of its requests it is, "+" where that continues, and how many slots it takes
// where that is not one.
func TestWhoIsNext(t *testing.T) {
	for _, tc := range []struct {
		about string
		slots int
		do    func(l *line)
		want  string
	}{
		{"one slot, in order", 1, func(l *line) { l.ask("a", "b", "c"); l.leave("a") }, "b | c | a"},
		{"keys take turns, however many one sends", 1, func(l *line) { l.ask("a", "ax", "ay", "az", "b", "bx"); l.leave("a", "ax") }, "b | ay az bx | a ax"},
		{"who comes anew does not come before whoever waited longer", 1, func(l *line) { l.ask("a", "b", "c", "ax"); l.leave("a") }, "b | c ax | a"},
		{"the key with the fewest slots first", 4, func(l *line) { l.ask("a", "ax", "b", "ay", "az", "bx"); l.leave("a") }, "ax b ay bx | az | a"},
		{"of two with as many the one whose turn is longer ago", 3, func(l *line) { l.ask("a", "b", "c", "ax", "bx"); l.leave("c") }, "a b ax | bx | c"},
		{"normal before batch", 1, func(l *line) { l.ask("a", "B", "c"); l.leave("a") }, "c | B | a"},
		{"batch leaves the last free slot", 3, func(l *line) { l.ask("A", "B", "C") }, "A B | C"},
		{"which a normal one takes", 3, func(l *line) { l.ask("A", "B", "C", "d") }, "A B d | C"},
		{"and which is left again", 3, func(l *line) { l.ask("A", "B", "C", "d"); l.leave("A") }, "B d | C | A"},
		{"until there is another one", 3, func(l *line) { l.ask("A", "B", "C", "d"); l.leave("A", "d") }, "B C |  | A d"},
		{"batch has the only slot when nothing else runs", 1, func(l *line) { l.ask("A", "B"); l.leave("A") }, "B |  | A"},
		{"but not before a normal one that waits", 1, func(l *line) { l.ask("A", "B", "c"); l.leave("A") }, "c | B | A"},
		{"several slots for several answers", 4, func(l *line) { l.ask("a3", "b2") }, "a3 | b2"},
		{"beside what runs where there are as many", 4, func(l *line) { l.ask("a", "b3", "c") }, "a b3 | c"},
		{"nobody overtakes who waits for several", 4, func(l *line) { l.ask("a3", "b2", "c"); l.leave("a3") }, "b2 c |  | a3"},
		{"while there is not enough for it", 4, func(l *line) { l.ask("a3", "b2", "c") }, "a3 | b2 c"},
		{"when it leaves the next one comes in", 4, func(l *line) { l.ask("a3", "b2", "c"); l.leave("b2") }, "a3 c |  | b2"},
		{"more than there are is all", 2, func(l *line) { l.ask("a9", "b"); l.leave("a9") }, "b |  | a9"},
		{"but not as batch", 2, func(l *line) { l.ask("A9", "b") }, "A9 b | "},
		{"which waits for them", 3, func(l *line) { l.ask("a", "B9", "c"); l.leave("a", "c") }, "B9 |  | a c"},
		{"batch passes batch that normal ones keep out", 4, func(l *line) { l.ask("a", "B3", "C", "D", "E") }, "a C D | B3 E"},
		{"but not batch that batch keeps out", 4, func(l *line) { l.ask("A", "B3", "C") }, "A | B3 C"},
		{"which comes in when the normal ones have left and what passed it", 4, func(l *line) { l.ask("a", "B3", "C", "D", "E"); l.leave("a", "C", "D") }, "B3 | E | a C D"},
		{"batch does not take what a normal one waits for", 4, func(l *line) { l.ask("a", "b4", "C") }, "a | b4 C"},
		{"a key has its batch and its normal requests apart", 3, func(l *line) { l.ask("a", "A", "Ax", "b"); l.leave("a") }, "A b | Ax | a"},
		{"what continues first", 1, func(l *line) { l.ask("a", "b", "c", "d+"); l.leave("a") }, "d+ | b c | a"},
		{"also of the key that has the slots", 2, func(l *line) { l.ask("a", "ax", "b", "ay+"); l.leave("a") }, "ax ay+ | b | a"},
		{"before what its key asked sooner", 1, func(l *line) { l.ask("a", "b", "bx", "by+"); l.leave("a") }, "by+ | b bx | a"},
		{"of two in order", 2, func(l *line) { l.ask("a", "ax", "b", "c+", "d+"); l.leave("a") }, "ax c+ | b d+ | a"},
		{"batch that continues before batch", 1, func(l *line) { l.ask("a", "B", "C+"); l.leave("a") }, "C+ | B | a"},
		{"and after all that is not batch", 1, func(l *line) { l.ask("a", "B+", "c"); l.leave("a") }, "c | B+ | a"},
		{"no more come first than there are slots", 1, func(l *line) { l.ask("a", "b", "c+", "d+", "e+"); l.leave("a", "c+") }, "b | d+ e+ | a c+"},
		{"one that left is not let in", 1, func(l *line) { l.ask("a", "b", "c"); l.leave("b", "a") }, "c |  | a b"},
		{"leaving twice is leaving once", 1, func(l *line) { l.ask("a", "b", "c"); l.leave("a", "a") }, "b | c | a"},
		{"no slots is one", 0, func(l *line) { l.ask("a", "b") }, "a | b"},
	} {
		l := newLine(tc.slots, 10)
		tc.do(l)
		if got := l.String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.about, got, tc.want)
		}
	}
}

// TestAFullQueue puts out the last of the key of which the most wait.
func TestAFullQueue(t *testing.T) {
	for _, tc := range []struct {
		about string
		most  int
		ask   string
		want  string
	}{
		{"one key: whoever comes", 2, "a ax ay az", "a | ax ay | az"},
		{"of two keys the one with more", 3, "a ax ay az b", "a | ax ay b | az"},
		{"of two keys with as many the one that comes", 2, "a b c d", "a | b c | d"},
		{"batch first", 3, "a b bx C d", "a | b bx d | C"},
		{"also where it is one of few", 3, "a B c cx cy", "a | c cx cy | B"},
		{"and not for batch", 2, "a b bx C", "a | b bx | C"},
		{"of batch the key with more", 3, "a B Bx By C", "a | B Bx C | By"},
		{"no queue at all", 0, "a b", "a |  | b"},
	} {
		l := newLine(1, tc.most)
		l.ask(strings.Fields(tc.ask)...)
		if got := l.String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.about, got, tc.want)
		}
	}
}

// TestTryDoesNotWait, nor change who is next.
func TestTryDoesNotWait(t *testing.T) {
	l := newLine(2, 10)
	try := func(name string, want bool) {
		t.Helper()
		if _, ok := l.Try(l.request(name), l.now); ok != want {
			t.Errorf("%s tries: %v with %s", name, ok, l)
		}
	}
	l.ask("a")
	try("B", false)
	try("b", true)
	try("c", false)
	if l.Running() != 2 || l.Waiting() != 0 {
		t.Errorf("%d run, %d wait", l.Running(), l.Waiting())
	}
	l = newLine(2, 10)
	l.ask("a", "b2")
	try("c", false) // There is a slot, and somebody waits for it and one more.
	l.leave("a")
	if got := l.String(); got != "b2 |  | a" {
		t.Error(got)
	}
}

// TestUndone: what gave its slots back unused has spent no turn of its key, and nothing is
// learnt of it.
func TestUndone(t *testing.T) {
	l := newLine(3, 10)
	l.ask("a", "b")
	p, ok := l.Try(l.request("b"), l.now) // a's turn is longer ago than b's.
	if !ok {
		t.Fatal(l)
	}
	l.now += time.Hour
	l.Undo(p, l.now)
	l.Undo(p, l.now)
	if l.Running() != 2 || l.hold != 0 {
		t.Errorf("%d run, learnt %s", l.Running(), l.hold)
	}
	// The same with a: it still comes before b.
	if p, ok = l.Try(l.request("a"), l.now); !ok {
		t.Fatal(l)
	}
	l.Undo(p, l.now)
	l.ask("c", "bx", "ax")
	l.leave("c")
	if got := l.String(); got != "a b ax | bx | c" {
		t.Error(got)
	}
	l.Undo(l.places["a"], l.now) // Others have had turns of its key since: they are kept.
	if k := l.keys[keyOf{id: "a"}]; k.turn != l.places["ax"].is {
		t.Errorf("the turn of a later request of the key is gone")
	}
	// Who waits leaves.
	l = newLine(1, 10)
	l.ask("a", "b", "c")
	l.Undo(l.places["b"], l.now)
	l.leave("a")
	if got := l.String(); got != "c |  | a b" {
		t.Error(got)
	}
}

// TestOrderAtTheNextQueue: who asks again elsewhere comes in as it came first, by key and
// among those of one.
func TestOrderAtTheNextQueue(t *testing.T) {
	q := New(1, 10)
	places := []*Place{q.Ask(Request{Key: "first"}, 10)}
	names := map[*Place]string{}
	for _, r := range []Request{{Key: "b", Came: 8}, {Key: "a", Came: 5}, {Key: "c", Came: 7}, {Key: "a", Came: 4}, {Key: "b", Came: 9}} {
		p := q.Ask(r, 10)
		places, names[p] = append(places, p), fmt.Sprint(r.Key, int(r.Came))
	}
	var order []string
	for range places {
		for _, p := range places {
			if p.Runs() {
				order = append(order, names[p])
				q.Leave(p, 11)
				break
			}
		}
	}
	if got := strings.Join(order[1:], " "); got != "a4 c7 b8 a5 b9" {
		t.Errorf("they came in as %s", got)
	}
}

// TestMovedIsTold to whoever comes in, and to whoever is put out.
func TestMovedIsTold(t *testing.T) {
	moved := func(p *Place) bool {
		select {
		case <-p.Moved():
			return true
		default:
			return false
		}
	}
	l := newLine(1, 1)
	l.ask("a", "b", "c")
	if !moved(l.places["a"]) || moved(l.places["b"]) || !moved(l.places["c"]) {
		t.Errorf("not told: %s", l)
	}
	l.leave("a")
	if !moved(l.places["b"]) {
		t.Errorf("not told: %s", l)
	}
}

// TestWaitIsEstimated from who waits and how long requests took of late.
func TestWaitIsEstimated(t *testing.T) {
	normal, batch := Request{Key: "n"}, Request{Key: "n", Batch: true}
	l := newLine(4, 100)
	wait := func(about string, r Request, want time.Duration) {
		t.Helper()
		if got := l.Wait(r, l.now); got != want {
			t.Errorf("%s: %s, want %s", about, got, want)
		}
	}
	wait("idle", normal, 0)
	var first, all []*Place
	for range 4 {
		first = append(first, l.Ask(normal, l.now))
	}
	wait("nobody has left yet, and they just came", normal, 0)
	l.now += 10 * time.Second
	wait("one of four that run for 10 s", normal, 10*time.Second/4)
	l.now += 10 * time.Second
	for _, p := range first {
		l.Leave(p, l.now)
	}
	wait("idle again", normal, 0)
	for range 12 {
		all = append(all, l.Ask(normal, l.now))
	}
	wait("eight before it, of 20 s", normal, 9*20*time.Second/4)
	wait("also before batch, which has three slots", batch, 9*20*time.Second/3)
	for range 4 {
		l.Ask(batch, l.now)
	}
	wait("batch is not before it", normal, 9*20*time.Second/4)
	wait("but before batch", batch, 13*20*time.Second/3)
	wait("three at a time", Request{Slots: 3}, 11*20*time.Second/4)
	l.now += time.Minute
	wait("what runs takes longer now", normal, 9*time.Minute/4)
	for _, p := range all[:4] {
		l.Leave(p, l.now)
	}
	if now := l.Wait(normal, l.now); now <= 5*20*time.Second/4 || now >= 5*time.Minute/4 {
		t.Errorf("after four of a minute: %s", now)
	}
}
