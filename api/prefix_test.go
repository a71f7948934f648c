package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"relay/scheduler"
)

// beginning of a request as the scheduler is told of it.
func beginningOf(t testing.TB, speak dialect, body string) (want scheduler.Want) {
	t.Helper()
	q, no := speak(nil, []byte(body))
	if no != nil {
		t.Fatalf("%s: %s", body, no.message)
	}
	q.begins(&want)
	return want
}

// startsWith says whether one prompt begins with all of another.
func startsWith(w, with scheduler.Want) bool {
	return len(w.Prefix) >= len(with.Prefix) && slices.Equal(w.Prefix[:len(with.Prefix)], with.Prefix)
}

func chatOf(more string, messages ...string) string {
	return `{"model":"m",` + more + `"messages":[` + strings.Join(messages, ",") + `]}`
}

func said(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }

// A talk begins with what it began with before, and grows by two with every turn, however
// many tools were called in it.
func TestTalksGrow(t *testing.T) {
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"[\": \"]\\\"\"}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	tool := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"12 \\ \" {"}` }
	for _, c := range []struct {
		name, more string
		messages   []string
		blocks     []int // After how many messages there are how many.
		shared     int
	}{
		{"user first", "", []string{said("user", "a"), said("assistant", "b"), said("user", "c")}, []int{1, 2, 3}, 0},
		{"instructions", "", []string{said("system", "s"), said("developer", "d"), said("user", "a"), said("assistant", "b"), said("user", "c")}, []int{1, 1, 2, 3, 4}, 1},
		{"instructions later", "", []string{said("user", "a"), said("system", "s"), said("assistant", "b")}, []int{1, 1, 2}, 0},
		{"tools", `"tools":[{"type":"function","function":{"name":"f"}}],`, []string{said("user", "a"), call, tool("a"), tool("b"), said("assistant", "x"), said("user", "c")}, []int{2, 3, 4, 4, 5, 6}, 1},
		{"role last", "", []string{`{ "content" : [ { "type":"text","text":"role\":" } ] , "role" : "user" }`, `{"name":"n","role":"assistant","content":"x"}`}, []int{1, 2}, 0},
	} {
		var before scheduler.Want
		for n, blocks := range c.blocks {
			w := beginningOf(t, chatDialect, chatOf(c.more, c.messages[:n+1]...))
			if len(w.Prefix) != blocks || w.Shared != c.shared {
				t.Errorf("%s, %d messages: %d blocks, %d shared", c.name, n+1, len(w.Prefix), w.Shared)
			}
			if n > 0 && blocks > c.blocks[n-1] && !startsWith(w, before) {
				t.Errorf("%s: %d messages begin as none before", c.name, n+1)
			}
			if n > 0 && blocks == c.blocks[n-1] && slices.Equal(w.Prefix, before.Prefix) {
				t.Errorf("%s: message %d makes no difference", c.name, n+1)
			}
			before = w
		}
	}
}

func TestWhatIsAlikeBeginsAlike(t *testing.T) {
	is := beginningOf(t, chatDialect, chatOf("", said("system", "s"), said("user", "hello")))
	for _, same := range []string{
		`{"messages" : [ ` + said("system", "s") + "\n,\t" + said("user", "hello") + ` ] , "temperature" : 0, "model":"m", "stream":true}`,
		chatOf(`"seed":7,`, said("system", "s"), said("user", "hello"), said("assistant", "x"), said("user", "y")),
	} {
		if w := beginningOf(t, chatDialect, same); !startsWith(w, is) || w.Shared != 1 {
			t.Errorf("%s begins as something else", same)
		}
	}
	for i, other := range []string{
		chatOf("", said("system", "s"), said("user", "hullo")),
		chatOf("", said("system", "t"), said("user", "hello")),
		chatOf("", said("user", "s"), said("user", "hello")),
		chatOf(`"tools":[{"type":"function","function":{"name":"f"}}],`, said("system", "s"), said("user", "hello")),
		chatOf("", said("system", "s"), said("user", "hel"), said("user", "lo")),
	} {
		w := beginningOf(t, chatDialect, other)
		if startsWith(w, is) {
			t.Errorf("%s begins alike", other)
		}
		if common := i == 0 || i == 4; (w.Prefix[0] == is.Prefix[0]) != common {
			t.Errorf("%s: the instructions count for %v", other, !common)
		}
	}
	// What relay translates for the engine is a chat.
	first := beginningOf(t, messagesDialect, `{"model":"m","max_tokens":9,"system":"s","messages":[`+said("user", "hello")+`]}`)
	second := beginningOf(t, messagesDialect, `{"model":"m","max_tokens":5,"system":"s","messages":[`+said("user", "hello")+`,`+said("assistant", "x")+`,`+said("user", "y")+`]}`)
	if len(first.Prefix) != 2 || first.Shared != 1 || len(second.Prefix) != 4 || !startsWith(second, first) {
		t.Errorf("messages: %v, then %v", first, second)
	}
	if w := beginningOf(t, responsesDialect, `{"model":"m","instructions":"s","input":"hello"}`); len(w.Prefix) != 2 || w.Shared != 1 {
		t.Errorf("responses: %v", w)
	}
}

func TestTextsBeginInBlocks(t *testing.T) {
	text := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d ", i)
		}
		return b.String()
	}
	prompt := func(p string) scheduler.Want {
		return beginningOf(t, textDialect, fmt.Sprintf(`{"model":"m","prompt":%q}`, p))
	}
	short, long, longest := prompt(text(50)), prompt(text(600)), prompt(text(9000))
	if len(short.Prefix) != 0 || short.Tokens == 0 || len(long.Prefix) < 3 || len(longest.Prefix) != maxBlocks || !startsWith(longest, long) {
		t.Errorf("%v, %v, %v", short, long, longest)
	}
	if w := prompt("x" + text(600)); w.Prefix[0] == long.Prefix[0] {
		t.Error("another text begins alike")
	}
	ids := func(n int) scheduler.Want {
		return beginningOf(t, textDialect, `{"model":"m","prompt":[`+strings.Repeat("17,", n)+`1]}`)
	}
	if a, b := ids(400), ids(800); len(a.Prefix) == 0 || !startsWith(b, a) {
		t.Errorf("ids: %v, %v", a, b)
	}
	if w := beginningOf(t, textDialect, fmt.Sprintf(`{"model":"m","prompt":[%q,"b"]}`, text(600))); w.Prefix != nil {
		t.Errorf("two prompts: %v", w)
	}
}

func TestNoPromptHasNoBeginning(t *testing.T) {
	long := strings.Repeat("word ", 1000)
	for speak, body := range map[*dialect]string{
		new(dialect(embeddingsDialect)): `{"model":"m","input":"` + long + `"}`,
		new(dialect(rerankDialect)):     `{"model":"m","query":"` + long + `","documents":["a"]}`,
		new(dialect(tokenizeDialect)):   `{"model":"m","content":"` + long + `"}`,
	} {
		if w := beginningOf(t, *speak, body); w.Prefix != nil || w.Shared != 0 {
			t.Errorf("%.30s: %v", body, w)
		}
	}
}

// Its length is said, but not where there are images: they are few tokens and many bytes.
func TestLengthOfPrompts(t *testing.T) {
	if w := beginningOf(t, chatDialect, chatOf("", said("user", strings.Repeat("x", 4000)))); w.Tokens < 1000 || w.Tokens > 1020 {
		t.Errorf("%d tokens", w.Tokens)
	}
	image := `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}]}`
	if w := beginningOf(t, chatDialect, chatOf("", image)); w.Tokens != 0 || len(w.Prefix) != 1 {
		t.Errorf("%v", w)
	}
}

func FuzzBegins(f *testing.F) {
	f.Add(chatOf(`"tools":[{}],`, said("system", "s"), said("user", `a\"b\\`), `{"role":"assistant","content":[{"type":"text","text":"x"}]}`))
	f.Add(`{"model":"m","prompt":"` + strings.Repeat("y", 2000) + `"}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, speak := range []dialect{chatDialect, textDialect} {
			q, no := speak(nil, []byte(body))
			if no != nil {
				continue
			}
			var w scheduler.Want
			if q.begins(&w); len(w.Prefix) > maxBlocks || w.Shared > min(1, len(w.Prefix)) {
				t.Errorf("%v", w)
			}
		}
	})
}

// The cost of a talk of many turns, per KB of its body.
//
//	go test ./api -run '^$' -bench Begins
func BenchmarkBegins(b *testing.B) {
	for _, c := range []struct {
		name  string
		bytes int
	}{{"turns of 1 KB", 1 << 10}, {"turns of 10 KB", 10 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			messages := []string{said("system", strings.Repeat("s ", c.bytes/2))}
			for range 20 {
				messages = append(messages, said("user", strings.Repeat("a\n", c.bytes/2)), said("assistant", strings.Repeat("b ", c.bytes/2)))
			}
			body := chatOf("", messages...)
			q, no := chatDialect(nil, []byte(body))
			if no != nil {
				b.Fatal(no.message)
			}
			var w scheduler.Want
			b.ReportAllocs()
			for b.Loop() {
				q.begins(&w)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(body)/1024), "µs/KB")
		})
	}
}
