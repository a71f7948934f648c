//go:build linux

package seam

import (
	"encoding/json"
	"fmt"
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
// logprobs and without.
func Questions(n, tokens int) []Question {
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
		list = append(list, Question{Chat: i%2 == 0, Text: text, Tokens: tokens, Logprobs: i/2%2 == 0})
	}
	return list
}
