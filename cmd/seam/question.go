//go:build linux

package seam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Question is one request for a streamed answer at temperature 0, which nothing but
// its length or its stop string ends.
type Question struct {
	// Chat is a chat completion, else one of a text.
	Chat bool
	Text string
	// Tokens is the most that the answer may have.
	Tokens int
	// Logprobs asks for them, and so for the tokens.
	Logprobs bool
	// Stop ends the answer; empty for none.
	Stop string
}

// path is where it goes.
func (q Question) path() string {
	if q.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

func (q Question) messages() []map[string]string {
	return []map[string]string{{"role": "user", "content": q.Text}}
}

func (q Question) body() ([]byte, error) {
	b := map[string]any{
		"model": model, "stream": true, "stream_options": map[string]bool{"include_usage": true},
		"max_tokens": q.Tokens, "temperature": 0, "ignore_eos": true,
		// What a replica happens to have of it from before would change the size of what
		// it computes at a time, and with that the last bits.
		"cache_prompt": false,
	}
	if q.Chat {
		b["messages"] = q.messages()
	} else {
		b["prompt"] = q.Text
	}
	switch {
	case q.Logprobs && q.Chat:
		b["logprobs"] = true
	case q.Logprobs:
		b["logprobs"] = 1
	}
	if q.Stop != "" {
		b["stop"] = q.Stop
	}
	return json.Marshal(b)
}

// Questions are some of so many tokens each, of all kinds in turn: chats and texts, with
// logprobs, without, and, if stops is true, with a string that ends them near their end:
// of a chat the engine does not tell which tokens it holds back for such a string, so it
// may have to be continued from its text. Each is asked once without a cut, and its answer
// judged.
func (m *Mesh) Questions(ctx context.Context, n, tokens int, stops bool) ([]Question, error) {
	texts := []string{
		"Tell me a story about a fox.", "What is relay?", "Once upon a time", "What is a peer?",
		"Tell me a story about a robot.", "How do I join a mesh?", "A little cat", "Who are you?",
	}
	var list []Question
	for i := range n {
		text := texts[i%len(texts)]
		if i >= len(texts) {
			text = fmt.Sprintf("%s %d", text, i/len(texts))
		}
		q := Question{Chat: i%2 == 0, Text: text, Tokens: tokens, Logprobs: i%4 < 2}
		if stops && (i%8 == 2 || i%8 == 7) {
			var err error
			if q, err = m.stopping(ctx, q); err != nil {
				return nil, err
			}
		}
		v, err := m.Judge(ctx, m.ask(ctx, q, func(string) {}, func(int) {}))
		if err == nil && !v.Same {
			err = errors.New("not the same as what the engine says")
		}
		if err != nil {
			return nil, fmt.Errorf("%+v, which nobody cut: %w", q, err)
		}
		list = append(list, q)
	}
	return list, nil
}

// stopping gives a question a stop string of a few tokens, that comes after nine tenths
// of the answer and nowhere before.
func (m *Mesh) stopping(ctx context.Context, q Question) (Question, error) {
	prompt, err := m.bare.prompt(ctx, q, "")
	if err != nil {
		return q, err
	}
	whole, err := m.whole(ctx, q, prompt)
	if err != nil {
		return q, err
	}
	const length = 4
	all := whole.text(len(whole.tokens))
	for at := len(whole.tokens) * 9 / 10; at+length <= len(whole.tokens); at++ {
		before := len(whole.text(at))
		stop := whole.text(at + length)[before:]
		// It begins where a token does, so that none is held back in part.
		if strings.HasPrefix(stop, " ") && strings.Index(all, stop) == before {
			q.Stop = stop
			return q, nil
		}
	}
	return q, fmt.Errorf("nothing near the end of the answer to %q comes once", q.Text)
}
