package continuation_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode/utf8"

	"relay/api/chat"
)

// model is a stand-in for an engine, in this process: what it answers to a prompt is the
// script, whatever tokens the prompt came in, so that an answer that is gone on with rightly
// is the script however it was cut. It holds and hides as llama-server does: characters that
// are not whole, what may become a stop string, and in chats tags.
type model struct {
	salt   string // makes the tokens of the script
	base   string // the prompt
	script string
	spaced bool // a space is put before each text that is tokenised
	merges int  // in how many of 8 places an anchor is joined with what follows
	echo   bool // a chat repeats what the client began the answer with

	vocab []string
	ids   map[string]int
	// asked are the requests, by path.
	asked []string
}

// what the parser of a chat takes out of an answer.
const tag = "<hm>"

func (m *model) id(text string) int {
	if m.ids == nil {
		m.ids = map[string]int{}
	}
	id, ok := m.ids[text]
	if !ok {
		id = len(m.vocab)
		m.ids[text], m.vocab = id, append(m.vocab, text)
	}
	return id
}

// chance is a number from 0 to n-1 that depends on what it is of.
func (m *model) chance(n int, of ...any) int {
	h := fnv.New32a()
	fmt.Fprint(h, m.salt, of)
	return int(h.Sum32()>>8) % n
}

// tokens are those of a text, as the tokenizer has them.
func (m *model) tokenize(text string) (ids []int) {
	if m.spaced {
		ids = append(ids, m.id(" "))
	}
	if m.chance(8, "merge", text) < m.merges && len(text) > 1 {
		ids, text = append(ids, m.id(text[:2])), text[2:]
	}
	for len(text) > 0 {
		n := min(1+m.chance(3, "canonical", text), len(text))
		ids, text = append(ids, m.id(text[:n])), text[n:]
	}
	return ids
}

// failure is why the model was asked something that it must not be.
type failure string

type object = map[string]any

// ask answers: with the chunks of a stream, or as a whole.
func (m *model) ask(path string, body []byte) (chunks [][]byte, whole []byte) {
	m.asked = append(m.asked, path)
	var q struct {
		Prompt   any
		Content  []string
		Messages []struct{ Role, Content string }
		Phase    any    `json:"continue_final_message"`
		Begin    *bool  `json:"add_generation_prompt"`
		Limit    *int   `json:"n_predict"`
		Most     *int   `json:"max_tokens"`
		Probs    int    `json:"n_probs"`
		Stop     any    `json:"stop"`
		Stream   bool   `json:"stream"`
		Seed     *int64 `json:"seed"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		panic(failure(fmt.Sprintf("%s: %v", body, err)))
	}
	limit := 1 << 20
	if q.Most != nil {
		limit = *q.Most
	}
	if q.Limit != nil {
		limit = *q.Limit
	}
	var stops []string
	switch s := q.Stop.(type) {
	case string:
		stops = []string{s}
	case []any:
		for _, v := range s {
			stops = append(stops, v.(string))
		}
	}
	own := ""
	if n := len(q.Messages); n > 0 && q.Messages[n-1].Role == "assistant" {
		own = q.Messages[n-1].Content
	}
	switch path {
	case "/tokenize":
		list := []object{}
		for _, text := range q.Content {
			for _, id := range m.tokenize(text) {
				var piece any = m.vocab[id]
				if !utf8.ValidString(m.vocab[id]) {
					b := []int{}
					for _, c := range []byte(m.vocab[id]) {
						b = append(b, int(c))
					}
					piece = b
				}
				list = append(list, object{"id": id, "piece": piece})
			}
		}
		return nil, encode(object{"tokens": list})
	case "/apply-template":
		return nil, encode(object{"prompt": m.base + own})
	case "/v1/completions":
		prompt := ""
		switch p := q.Prompt.(type) {
		case string:
			prompt = p
		case []any:
			if inner, ok := p[0].([]any); ok && len(p) == 1 {
				p = inner
			}
			for _, e := range p {
				switch e := e.(type) {
				case string:
					prompt += e
				case float64:
					prompt += m.vocab[int(e)]
				}
			}
		}
		at, ok := strings.CutPrefix(prompt, m.base)
		if !ok {
			panic(failure(fmt.Sprintf("the prompt is %q", prompt)))
		}
		return m.answer(m.after(at, at), limit, stops, chat.OfText, "", q.Probs > 0), nil
	case "/v1/chat/completions":
		began := m.after(own, "")
		if q.Phase != nil {
			if q.Begin == nil || *q.Begin {
				panic(failure("both are set"))
			}
			own = ""
		}
		if !m.echo {
			own = ""
		}
		return m.answer(began, limit, stops, chat.OfChat, own, q.Probs > 0), nil
	}
	panic(failure("no route " + path))
}

// after is where in the script an answer goes on that said so much already; of a chat's the
// tags are not in what was said. raw is what was said with them, "" where that is not known.
func (m *model) after(said, raw string) int {
	if raw != "" {
		if !strings.HasPrefix(m.script, raw) {
			panic(failure(fmt.Sprintf("it is to go on behind %q of %q", raw, m.script)))
		}
		return len(raw)
	}
	if said == "" {
		return 0
	}
	for at := len(m.script); at > 0; at-- {
		if strings.ReplaceAll(m.script[:at], tag, "") == said {
			return at
		}
	}
	panic(failure(fmt.Sprintf("it is to go on behind the text %q of %q", said, m.script)))
}

// answer is the stream of the answer that begins at a place in the script.
func (m *model) answer(at, limit int, stops []string, kind chat.Kind, echo string, probs bool) (chunks [][]byte) {
	prompt := len(m.base) + at
	generated, sent, shown := "", 0, echo
	n := 0
	timings := func() object {
		return object{"cache_n": 1, "prompt_n": prompt - 1, "prompt_ms": 2.5, "predicted_n": n, "predicted_ms": float64(n) * 1.5, "predicted_per_token_ms": 1.5, "predicted_per_second": 0.66}
	}
	chunk := func(choices []object, more object) {
		c := object{"choices": choices, "created": 1700000000 + at, "id": fmt.Sprintf("chatcmpl-%d", at), "model": "m", "system_fingerprint": "b1", "object": "chat.completion.chunk"}
		if kind == chat.OfText {
			c["object"] = "text_completion"
		}
		for k, v := range more {
			c[k] = v
		}
		chunks = append(chunks, encode(c))
	}
	if kind == chat.OfChat {
		chunk([]object{{"index": 0, "finish_reason": nil, "delta": object{"role": "assistant", "content": nil}}}, object{"prompt_progress": object{"total": prompt}, "timings": object{"cache_n": 0, "prompt_n": 0, "predicted_n": 0}})
	}
	finish := "length"
	rest := m.script[at:]
	for done := false; !done; {
		size := min(1+m.chance(6, "token", len(m.script)-len(rest)), len(rest))
		token := rest[:size]
		rest = rest[size:]
		n++
		generated += token
		end := token == "" // the token that ends an answer
		sending := ""
		if valid(generated) == len(generated) {
			tested := generated[sent:]
			send := true
			if pos := stopAt(tested, stops); pos >= 0 {
				generated = generated[:sent+pos]
				done, finish = true, "stop"
			} else if !end && stopMay(tested, stops) {
				send = false
			}
			if send {
				sending = generated[sent:]
				sent = len(generated)
			}
			var choice object
			var logprobs any
			if probs {
				logprobs = object{"content": []object{{"id": m.id(token), "token": sending, "bytes": ints(sending), "prob": 1, "top_probs": []object{{"id": m.id(token), "bytes": ints(token), "prob": 1}}}}}
			}
			switch kind {
			case chat.OfText:
				choice = object{"text": sending, "index": 0, "logprobs": logprobs, "finish_reason": nil}
				chunk([]object{choice}, object{"timings": timings()})
			case chat.OfChat:
				var deltas []object
				if n == 1 {
					deltas = append(deltas, object{"role": "assistant", "content": nil})
				}
				now := echo + parsed(generated[:sent], true)
				if now != shown {
					deltas = append(deltas, object{"content": now[len(shown):]})
					shown = now
				}
				for i, d := range deltas {
					c := object{"finish_reason": nil, "index": 0, "delta": d}
					more := object{}
					if i == len(deltas)-1 {
						if probs {
							c["logprobs"] = logprobs
						}
						more["timings"] = timings()
					}
					chunk([]object{c}, more)
				}
			}
		}
		switch {
		case done:
		case end:
			done, finish = true, "stop"
		case n >= limit:
			done = true
		}
	}
	usage := object{"usage": object{"completion_tokens": n, "prompt_tokens": prompt, "total_tokens": n + prompt, "prompt_tokens_details": object{"cached_tokens": 1}}, "timings": timings()}
	if kind == chat.OfText {
		chunk([]object{{"text": "", "index": 0, "logprobs": nil, "finish_reason": finish}}, usage)
		return chunks
	}
	if now := echo + parsed(generated[:sent], false); now != shown {
		chunk([]object{{"finish_reason": nil, "index": 0, "delta": object{"content": now[len(shown):]}}}, nil)
	}
	chunk([]object{{"finish_reason": finish, "index": 0, "delta": object{}}}, nil)
	chunk([]object{}, usage)
	return chunks
}

// parsed is what the parser of a chat shows of a text; partial: more may come.
func parsed(text string, partial bool) string {
	for n := len(tag) - 1; partial && n > 0; n-- {
		if strings.HasSuffix(text, tag[:n]) {
			text = text[:len(text)-n]
			break
		}
	}
	return strings.ReplaceAll(text, tag, "")
}

// valid is how much of a text ends with a whole character.
func valid(s string) int {
	for n := 1; n <= 3 && n <= len(s); n++ {
		if c := s[len(s)-n]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-n:]) {
				return len(s) - n
			}
			break
		}
	}
	return len(s)
}

func stopAt(text string, stops []string) int {
	first := -1
	for _, s := range stops {
		if at := strings.Index(text, s); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// stopMay says that a stop string may have begun at the end of a text.
func stopMay(text string, stops []string) bool {
	for _, s := range stops {
		for n := 1; n < len(s); n++ {
			if strings.HasSuffix(text, s[:n]) {
				return true
			}
		}
	}
	return false
}

func ints(s string) []int {
	list := make([]int, 0, len(s))
	for _, c := range []byte(s) {
		list = append(list, int(c))
	}
	return list
}

// encode writes JSON as the engine does: nothing is escaped for HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
