package sim

import (
	"math/rand/v2"
	"time"
)

// fingerprint is what llama-server would say its build is.
const fingerprint = "sim"

// shape writes the answers to one request in one of the three forms.
type shape struct {
	model, id string
	created   int64
	chat      bool // chat completion
	native    bool // llama-server's own /completion
	stream    bool
	usage     bool // usage at the end of a chat stream
	tokens    bool // ids of tokens, native only
	settings  object
}

func newID() string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	b := make([]byte, 32)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return "chatcmpl-" + string(b)
}

// chunk is one event of a chat stream.
func (s shape) chunk(choices []object) object {
	return object{
		{"choices", choices}, {"created", s.created}, {"id", s.id}, {"model", s.model},
		{"system_fingerprint", fingerprint}, {"object", "chat.completion.chunk"},
	}
}

func delta(index int, finish any, d object) object {
	return object{{"finish_reason", finish}, {"index", index}, {"delta", d}}
}

// events are those that one piece of an answer makes.
func (s shape) events(t task, p piece) []object {
	switch {
	case s.native:
		tokens := []int{}
		if s.tokens {
			tokens = append(tokens, p.id)
		}
		o := object{
			{"index", t.index}, {"content", p.text}, {"tokens", tokens}, {"stop", false}, {"id_slot", -1},
			{"tokens_predicted", p.nth}, {"tokens_evaluated", len(t.ids)},
		}
		if t.logprobs {
			o = append(o, field{"completion_probabilities", []object{probability(p)}})
		}
		return []object{o}
	case s.chat:
		var events []object
		if p.nth == 1 {
			events = append(events, s.chunk([]object{delta(t.index, nil, object{{"role", "assistant"}, {"content", nil}})}))
			p.text = t.prefill + p.text
		}
		if p.text != "" {
			choice := delta(t.index, nil, object{{"content", p.text}})
			if t.logprobs {
				choice = append(choice, field{"logprobs", object{{"content", []object{probability(p)}}}})
			}
			events = append(events, s.chunk([]object{choice}))
		}
		return events
	default:
		var logprobs any
		if t.logprobs {
			logprobs = object{{"content", []object{probability(p)}}}
		}
		return []object{s.textCompletion(object{{"text", p.text}, {"index", t.index}, {"logprobs", logprobs}, {"finish_reason", nil}}, nil)}
	}
}

// last are the events that end one answer of a stream.
func (s shape) last(a answer) []object {
	switch {
	case s.native:
		return []object{s.nativeFinal(a, "", nil)}
	case s.chat:
		events := []object{s.chunk([]object{delta(a.index, a.finish(), object{})})}
		if s.usage {
			events = append(events, append(s.chunk([]object{}), field{"usage", a.usage()}))
		}
		events[len(events)-1] = append(events[len(events)-1], field{"timings", a.timings()})
		return events
	default:
		return []object{s.textCompletion(object{{"text", ""}, {"index", a.index}, {"logprobs", nil}, {"finish_reason", a.finish()}}, &a)}
	}
}

// whole is the unstreamed answer to a request.
func (s shape) whole(answers []answer) any {
	first := answers[0]
	if s.native {
		all := make([]object, 0, len(answers))
		for _, a := range answers {
			all = append(all, s.nativeFinal(a, a.text, a.pieces))
		}
		if len(all) == 1 {
			return all[0]
		}
		return all
	}
	choices := make([]object, 0, len(answers))
	for _, a := range answers {
		var logprobs any
		if a.logprobs {
			logprobs = object{{"content", probabilities(a.pieces)}}
		}
		if !s.chat {
			choices = append(choices, object{{"text", a.text}, {"index", a.index}, {"logprobs", logprobs}, {"finish_reason", a.finish()}})
			continue
		}
		choice := object{
			{"finish_reason", a.finish()}, {"index", a.index},
			{"message", object{{"role", "assistant"}, {"content", a.prefill + a.text}}},
		}
		if a.logprobs {
			choice = append(choice, field{"logprobs", logprobs})
		}
		choices = append(choices, choice)
	}
	kind := "text_completion"
	if s.chat {
		kind = "chat.completion"
	}
	return object{
		{"choices", choices}, {"created", s.created}, {"model", s.model}, {"system_fingerprint", fingerprint}, {"object", kind},
		{"usage", first.usage()}, {"id", s.id}, {"timings", first.timings()},
	}
}

func (s shape) textCompletion(choice object, done *answer) object {
	o := object{
		{"choices", []object{choice}}, {"created", s.created}, {"model", s.model},
		{"system_fingerprint", fingerprint}, {"object", "text_completion"},
	}
	if done != nil {
		o = append(o, field{"usage", done.usage()})
	}
	o = append(o, field{"id", s.id})
	if done != nil {
		o = append(o, field{"timings", done.timings()})
	}
	return o
}

func (s shape) nativeFinal(a answer, text string, pieces []piece) object {
	tokens := []int{}
	if s.tokens {
		for _, p := range pieces {
			tokens = append(tokens, p.id)
		}
	}
	o := object{
		{"index", a.index}, {"content", text}, {"tokens", tokens}, {"id_slot", a.slot}, {"stop", true}, {"model", s.model},
		{"tokens_predicted", len(a.pieces)}, {"tokens_evaluated", len(a.ids)}, {"generation_settings", s.settings},
		{"prompt", Detokenize(a.ids)}, {"has_new_line", false}, {"truncated", false}, {"stop_type", a.stop}, {"stopping_word", a.stopWord},
		{"tokens_cached", len(a.ids) + len(a.pieces) - 1}, {"timings", a.timings()},
	}
	if !s.stream && a.logprobs {
		o = append(o, field{"completion_probabilities", probabilities(pieces)})
	}
	return o
}

func (a answer) finish() string {
	if a.stop == stopLimit {
		return "length"
	}
	return "stop"
}

func (a answer) usage() object {
	return object{
		{"completion_tokens", len(a.pieces)}, {"prompt_tokens", len(a.ids)}, {"total_tokens", len(a.pieces) + len(a.ids)},
		{"prompt_tokens_details", object{{"cached_tokens", 0}}},
	}
}

func (a answer) timings() object {
	rates := func(n int, d time.Duration) (ms, perToken, perSecond float64) {
		ms = float64(d.Microseconds()) / 1000
		if n > 0 && ms > 0 {
			perToken, perSecond = ms/float64(n), float64(n)*1000/ms
		}
		return ms, perToken, perSecond
	}
	pms, ppt, pps := rates(len(a.ids), a.prefillTime)
	dms, dpt, dps := rates(len(a.pieces), a.decode)
	return object{
		{"cache_n", 0},
		{"prompt_n", len(a.ids)}, {"prompt_ms", pms}, {"prompt_per_token_ms", ppt}, {"prompt_per_second", pps},
		{"predicted_n", len(a.pieces)}, {"predicted_ms", dms}, {"predicted_per_token_ms", dpt}, {"predicted_per_second", dps},
	}
}

// probability is a piece with the certainty of one that has no alternatives.
func probability(p piece) object {
	text := Piece(p.id)
	one := object{{"id", p.id}, {"token", text}, {"bytes", bytesOf(text)}, {"logprob", 0.0}}
	return append(one[:len(one):len(one)], field{"top_logprobs", []object{one}})
}

func probabilities(pieces []piece) []object {
	all := make([]object, 0, len(pieces))
	for _, p := range pieces {
		all = append(all, probability(p))
	}
	return all
}
