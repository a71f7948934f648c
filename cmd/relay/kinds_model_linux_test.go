package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

// walkTemplate writes messages, reasoning and calls as walks have them, in the forms
// that the engine finds in a template by itself.
const walkTemplate = `{%- if tools %}{{ '<|system|>' + (tools | tojson) }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|assistant|>' }}{%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content }}
{%- for call in m.tool_calls %}{{ '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' }}{% endfor %}{{ eos_token }}
{%- else %}{{ '<|' + m.role + '|>' + m.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}`

// Tokens of the demo model's vocabulary, and those that walks give another text.
const (
	endToken       = 2
	firstByteToken = 3
	assistantToken = 261

	callHead = iota + 1015
	callTail
	thinkToken
	thoughtToken
	callToken
	calledToken
)

// A walked is the model of these tests: gguftest.Walk over several paths. A question is
// led onto one by a bias for its first token, which is of no weight elsewhere.
type walked struct {
	pieces []string
	edges  map[int][]int
	// plain is words to the end. Their text is made of these very tokens, and does not
	// begin with a space, which the engine takes away.
	plain []int
	// reasoning and then answer are between and behind the marks of reasoning.
	reasoning, answer []int
	// beside is what is said before a tool is called, to which city says where.
	beside, city []int
	// fragments goes round, and has a text that is made of other tokens.
	fragments []int
	// letters goes round, and is one-token pieces and characters whose bytes are tokens.
	letters []int
	// fork leads to rungs, each of two tokens, of which either may come behind either of
	// the rung before. It goes round.
	fork  int
	rungs [][2]int
}

// work is the width of what the model computes for nothing, some milliseconds a token.
const work = 16384

func newWalked(t *testing.T) *walked {
	t.Helper()
	demo, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	w := &walked{pieces: demo.Pieces(), edges: map[int][]int{}}
	var words, parts, heads []int
	for id, text := range w.pieces[:callHead] {
		switch letters := strings.Trim(text, " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""; {
		case id <= assistantToken || !letters:
		case strings.HasPrefix(text, " ") && len(text) >= 4:
			words = append(words, id)
		case text[0] >= 'A' && text[0] <= 'Z':
			heads = append(heads, id)
		default:
			parts = append(parts, id)
		}
	}
	take := func(from *[]int, n int) []int {
		path := slices.Clone((*from)[:n])
		*from = (*from)[n:]
		return path
	}
	w.plain = append(take(&heads, 1), take(&words, 79)...)
	w.reasoning, w.answer = take(&words, 40), take(&words, 40)
	w.beside, w.city = take(&words, 40), take(&parts, 40)
	w.fork = take(&heads, 1)[0]
	for range 15 {
		w.rungs = append(w.rungs, [2]int(take(&words, 2)))
	}
	w.fragments = append(take(&heads, 1), take(&parts, 20)...)
	for _, character := range []string{"é", "日", "🙂"} {
		w.letters = append(w.letters, take(&heads, 1)...)
		for _, b := range []byte(character) {
			w.letters = append(w.letters, firstByteToken+int(b))
		}
	}

	w.edges[assistantToken] = []int{w.plain[0], thinkToken, w.beside[0], w.fork, w.fragments[0], w.letters[0], callToken}
	w.walk(w.plain, endToken)
	w.walk(append([]int{thinkToken}, w.reasoning...), thoughtToken)
	w.walk(append([]int{thoughtToken}, w.answer...), endToken)
	w.walk(w.beside, callToken)
	w.walk(append([]int{callToken, callHead}, w.city...), callTail)
	w.walk([]int{callTail, calledToken}, endToken)
	w.walk(w.fragments, w.fragments[0])
	w.walk(w.letters, w.letters[0])
	w.edges[w.fork] = w.rungs[0][:]
	for i, rung := range w.rungs {
		for _, id := range rung {
			w.edges[id] = w.rungs[(i+1)%len(w.rungs)][:]
		}
	}
	return w
}

// walk has each of a path be followed by the next, and the last one by then.
func (w *walked) walk(path []int, then int) {
	for i, id := range path {
		next := then
		if i+1 < len(path) {
			next = path[i+1]
		}
		w.edges[id] = []int{next}
	}
}

// write makes the model's file.
func (w *walked) write(t *testing.T, dir string) string {
	t.Helper()
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m := gguftest.Walk{Edges: w.edges, Work: work, Template: walkTemplate, Texts: map[int]string{
		callHead: `{"name": "weather", "arguments": {"city": "`, callTail: `"}}`,
		thinkToken: "<think>", thoughtToken: "</think>", callToken: "<tool_call>", calledToken: "</tool_call>",
	}}
	path := filepath.Join(dir, "walk.gguf")
	if err := os.WriteFile(path, m.File(from).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// text is that of so many tokens of a path, which may go round.
func (w *walked) text(path []int, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(w.pieces[path[i%len(path)]])
	}
	return b.String()
}
