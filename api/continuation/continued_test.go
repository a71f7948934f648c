package continuation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"relay/api/chat"
	"relay/api/continuation"
)

// asker answers requests as an engine does: whole, or with the chunks of a stream.
type asker func(path string, body []byte) (chunks [][]byte, whole []byte)

// told is an answer as a client was told it.
type told struct {
	content, reasoning string
	finish             string
	usage              chat.Usage
	chunks             [][]byte
	ids                []int
	ways               []string // how it was gone on with
	tokens             []int    // how many had been delivered, each time
	ended              bool     // only what is behind its finish was lost
	cannot             error
}

// run has a request answered by one engine after another: of the nth one's stream the first
// cuts[n] chunks are delivered, and all of the last one's.
func run(kind chat.Kind, ask asker, body string, cuts ...int) (got told, err error) {
	defer func() {
		if no := recover(); no != nil {
			why, ok := no.(failure)
			if !ok {
				panic(no)
			}
			err = errors.New(string(why))
		}
	}()
	t := continuation.New(kind, nil)
	path := "/v1/chat/completions"
	if kind == chat.OfText {
		path = "/v1/completions"
	}
	chunks, _ := ask(path, []byte(body))
	var seam *continuation.Seam
	deliver := func(list [][]byte) error {
		for _, c := range list {
			var p continuation.Piece
			if err := p.Read(c); err != nil {
				return err
			}
			t.Delivered(&p)
			if err := got.add(kind, c); err != nil {
				return err
			}
		}
		return nil
	}
	for _, cut := range append(slices.Clone(cuts), -1) {
		if cut < 0 || cut > len(chunks) {
			cut = len(chunks)
		}
		// What is held back to the end comes at once with it.
		if cut > 0 && cut < len(chunks) && bytes.Contains(chunks[cut-1], []byte(`"delta":{"content":"`)) && !bytes.Contains(chunks[cut-1], []byte(`"timings"`)) {
			cut++
		}
		for _, c := range chunks[:cut] {
			list := [][]byte{c}
			if seam != nil {
				if list, err = seam.Turn(c); err != nil {
					return got, err
				}
			}
			if err := deliver(list); err != nil {
				return got, err
			}
		}
		if cut == len(chunks) {
			return got, nil
		}
		plan, err := t.Plan([]byte(body))
		if err != nil {
			got.cannot = err
			return got, nil
		}
		got.tokens = append(got.tokens, t.Tokens())
		if ending := plan.Ending(); ending != nil {
			got.ended = got.finish != ""
			return got, deliver(ending)
		}
		for !plan.Next().Stream {
			next := plan.Next()
			_, whole := ask(next.Path, next.Body)
			if err := plan.Answer(whole); err != nil {
				got.cannot = err
				return got, nil
			}
		}
		got.ways = append(got.ways, plan.By())
		next := plan.Next()
		chunks, _ = ask(next.Path, next.Body)
		seam = plan.Seam()
	}
	return got, nil
}

// add takes a chunk as the client sees it.
func (g *told) add(kind chat.Kind, c []byte) error {
	g.chunks = append(g.chunks, bytes.Clone(c))
	var is struct {
		Object  string
		Choices []struct {
			Text     string
			Delta    struct{ Content, Reasoning_content string }
			Logprobs *struct{ Content []struct{ ID int } }
			Finish   string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(c, &is); err != nil {
		return fmt.Errorf("%w: %s", err, c)
	}
	if want := []string{"chat.completion.chunk", "text_completion"}[kind]; is.Object != want {
		return fmt.Errorf("a chunk is a %q: %s", is.Object, c)
	}
	for _, choice := range is.Choices {
		if g.finish != "" {
			return fmt.Errorf("the answer goes on after its end: %s", c)
		}
		g.content += choice.Text + choice.Delta.Content
		g.reasoning += choice.Delta.Reasoning_content
		g.finish = choice.Finish
		if choice.Logprobs != nil {
			for _, l := range choice.Logprobs.Content {
				g.ids = append(g.ids, l.ID)
			}
		}
	}
	var chunk chat.Chunk
	if err := chunk.Read(c); err != nil {
		return err
	}
	if chunk.HasUsage {
		g.usage = chunk.Usage
	}
	return nil
}

// roles is how often it is said who speaks. An engine that goes on with a message of the client's
// says it twice.
func (g *told) roles() (n int) {
	for _, c := range g.chunks {
		if bytes.Contains(c, []byte(`"delta":{"role"`)) && !bytes.Contains(c, []byte(`"prompt_progress"`)) {
			n++
		}
	}
	return n
}

// one checks what holds of every answer however often it was gone on with: it is one, in which
// it is said so often at most who speaks.
func (g *told) one(roles int) error {
	var first map[string]json.RawMessage
	last := 0
	for _, c := range g.chunks {
		var is map[string]json.RawMessage
		if err := json.Unmarshal(c, &is); err != nil {
			return err
		}
		if first == nil {
			first = is
		}
		for _, name := range []string{"id", "model", "system_fingerprint", "object"} {
			if string(is[name]) != string(first[name]) {
				return fmt.Errorf("%s was %s and is %s", name, first[name], is[name])
			}
		}
		var t struct {
			Predicted int `json:"predicted_n"`
			Prompt    int `json:"prompt_n"`
		}
		json.Unmarshal(is["timings"], &t)
		// Tokens that were held back when an engine was lost are counted once more.
		if said := bytes.Contains(is["choices"], []byte(`"content":"`)) || bytes.Contains(is["choices"], []byte(`"text":"`)) && !bytes.Contains(is["choices"], []byte(`"text":""`)); said && is["timings"] != nil && is["prompt_progress"] == nil {
			if t.Predicted <= last {
				return fmt.Errorf("there were %d tokens and are %d", last, t.Predicted)
			}
			last = t.Predicted
		}
	}
	if n := g.roles(); n > roles {
		return fmt.Errorf("who speaks is said %d times", n)
	}
	if g.usage.Total != g.usage.Prompt+g.usage.Completion || g.usage.Completion < last {
		return fmt.Errorf("the usage is %+v after %d tokens", g.usage, last)
	}
	return nil
}

// mayHaveSaid says whether a text is what the script begins with, as a client sees it.
func (m *model) mayHaveSaid(text string) bool {
	for at := range len(m.script) + 1 {
		if parsed(m.script[:at], false) == text {
			return true
		}
	}
	return false
}

// TestGoneOnWithIsUndisturbed: wherever an answer is cut, and however often, what was
// delivered and what comes after it are the answer that nothing happened to.
func TestGoneOnWithIsUndisturbed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]chat.Kind{chat.OfChat, chat.OfText}).Draw(t, "kind")
		parts := []string{"a", "b", " ", "\n", "é", "€", "😀", "你", "<", ">", "stop", "\n\n", "\"", "\\"}
		tools := kind == chat.OfChat && rapid.Bool().Draw(t, "tools")
		if tools {
			parts = append(parts, tag, "<h")
		}
		m := &model{
			salt: rapid.StringN(1, 4, -1).Draw(t, "salt"), base: "<q>",
			script: strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 60).Draw(t, "script"), ""),
			spaced: rapid.Bool().Draw(t, "spaced"), merges: rapid.IntRange(0, 8).Draw(t, "merges"), echo: rapid.Bool().Draw(t, "echo"),
		}
		if kind == chat.OfChat && rapid.IntRange(0, 3).Draw(t, "hidden") == 0 {
			m.script = tag + m.script
		}
		body := `{"model":"m","seed":7,"stream":true`
		if rapid.IntRange(0, 4).Draw(t, "ids") > 0 {
			body += continuation.IDs
		}
		own := ""
		if kind == chat.OfText {
			body += rapid.SampledFrom([]string{`,"prompt":"<q>"`, `,"prompt":["<q>"]`, fmt.Sprintf(`,"prompt":[%d]`, m.id("<q>")), fmt.Sprintf(`,"prompt":[[%d,%d]]`, m.id("<"), m.id("q>")), fmt.Sprintf(`,"prompt":["<",%d]`, m.id("q>"))}).Draw(t, "prompt")
		} else {
			messages := `{"role":"user","content":"hello"}`
			if n := rapid.IntRange(0, 4).Draw(t, "own"); n > 0 && n < len(m.script) && !strings.Contains(m.script, tag) {
				if own = strings.ToValidUTF8(m.script[:n], ""); strings.HasPrefix(m.script, own) && own != "" {
					messages += `,{"role":"assistant","content":` + string(encode(own)) + `}`
				} else {
					own = ""
				}
			}
			body += `,"messages":[` + messages + `]`
		}
		if tools {
			body += `,"tools":[{"type":"function","function":{"name":"f"}}]`
		}
		if stop := rapid.SampledFrom([]string{"", `"stop"`, `["\n\n","😀a"]`, `["zzz"]`}).Draw(t, "stop"); stop != "" {
			body += `,"stop":` + stop
		}
		limit := 0
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			limit = rapid.IntRange(1, 40).Draw(t, "limit")
			body += fmt.Sprintf(`,"max_tokens":%d`, limit)
		}
		body += "}"
		want, err := run(kind, m.ask, body)
		if err != nil {
			t.Fatal(err)
		}
		cuts := rapid.SliceOfN(rapid.IntRange(1, 70), 1, 4).Draw(t, "cuts")
		m.asked = nil
		got, err := run(kind, m.ask, body, cuts...)
		if err != nil {
			t.Fatalf("%v\n%q of %q in %v", err, got.content, m.script, got.ways)
		}
		if got.cannot != nil {
			t.Fatal(got.cannot)
		}
		for _, c := range got.chunks {
			if !bytes.Contains(c, []byte(`"created":1700000000`)) && own == "" {
				t.Fatalf("of another time: %s", c)
			}
		}
		if got.usage.Prompt != want.usage.Prompt {
			t.Fatalf("usage %+v, not %+v", got.usage, want.usage)
		}
		if err := got.one(1); err != nil {
			t.Fatalf("%v: %s", err, bytes.Join(got.chunks, []byte("\n")))
		}
		switch {
		case limit == 0:
			if got.content != want.content || got.finish != want.finish {
				t.Fatalf("%q, %s; undisturbed %q, %s; in %v behind %v", got.content, got.finish, want.content, want.finish, got.ways, got.tokens)
			}
		case got.finish == "length" && !got.ended:
			if got.usage.Completion != limit || !m.mayHaveSaid(got.content) && !m.mayHaveSaid(own+got.content) {
				t.Fatalf("%q of %q, %+v of %d", got.content, m.script, got.usage, limit)
			}
		}
	})
}
