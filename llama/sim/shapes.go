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
	tokens    bool // ids of tokens in an unstreamed answer, native only
	timings   bool // with every event
	stopWord  bool // in the last event of a chat stream: all that is imitated of "verbose"
	settings  object
}

const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func randomID() string {
	b := make([]byte, 32)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
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

// progressEvent tells how much of a prompt is read.
func (s shape) progressEvent(a *answer) object {
	var o object
	switch {
	case s.native:
		o = s.nativePart(a, piece{})
	case s.chat:
		o = s.chunk([]object{delta(a.index, nil, object{{"role", "assistant"}, {"content", nil}})})
	default:
		o = s.textPart(a, piece{}, nil)
	}
	if s.timings {
		o = append(o, field{"timings", a.timings()})
	}
	return append(o, field{"prompt_progress", object{
		{"total", len(a.ids)}, {"cache", a.cached}, {"processed", a.read}, {"time_ms", a.prefillTime.Milliseconds()},
	}})
}

// pieceEvents are those that one piece of an answer makes.
func (s shape) pieceEvents(a *answer, p piece) []object {
	if p.part {
		return nil
	}
	var events []object
	var probs field
	if a.probs > 0 {
		probs = field{"content", []object{a.probability(p)}}
	}
	switch {
	case s.native:
		events = []object{s.nativePart(a, p)}
	case s.chat:
		var choices []object
		if p.nth == 1 {
			choices = append(choices, delta(a.index, nil, object{{"role", "assistant"}, {"content", nil}}))
		}
		if d := a.delta(p); d != nil {
			choices = append(choices, delta(a.index, nil, d))
		}
		if n := len(choices); n > 0 && a.probs > 0 {
			choices[n-1] = append(choices[n-1], field{"logprobs", object{probs}})
		}
		for _, choice := range choices {
			events = append(events, s.chunk([]object{choice}))
		}
	case a.probs > 0:
		events = []object{s.textPart(a, p, object{probs})}
	default:
		events = []object{s.textPart(a, p, nil)}
	}
	if s.timings && len(events) > 0 {
		events[len(events)-1] = append(events[len(events)-1], field{"timings", a.timings()})
	}
	if s.native && a.probs > 0 {
		events[0] = append(events[0], field{"completion_probabilities", probs.value})
	}
	return events
}

// delta is what a piece adds to a message, or nil.
func (a *answer) delta(p piece) object {
	switch {
	case p.kind == naming:
		c := a.calls[p.call]
		function := object{{"name", c.name}}
		if p.text != "" {
			function = append(function, field{"arguments", p.text})
		}
		return object{{"tool_calls", []object{{{"index", p.call}, {"id", c.id}, {"type", "function"}, {"function", function}}}}}
	case p.before+p.text == "":
		return nil
	case p.kind == passing:
		return object{{"tool_calls", []object{{{"index", p.call}, {"function", object{{"arguments", p.text}}}}}}}
	case p.kind == thinking:
		return object{{"reasoning_content", p.text}}
	default:
		return object{{"content", p.before + p.text}}
	}
}

// message is a whole answer to a chat.
func (a answer) message() object {
	o := object{{"role", "assistant"}, {"content", a.begun.content + string(a.text) + a.held}}
	if thought := a.begun.reasoning + string(a.thought); thought != "" {
		o = append(o, field{"reasoning_content", thought})
	}
	if len(a.calls) > 0 {
		var calls []object
		for _, c := range a.calls {
			calls = append(calls, object{{"type", "function"}, {"function", object{{"name", c.name}, {"arguments", c.arguments}}}, {"id", c.id}})
		}
		o = append(o, field{"tool_calls", calls})
	}
	return o
}

// whole is all of an answer's text.
func (a answer) whole() string { return string(a.text) + a.held + a.part }

func (s shape) nativePart(a *answer, p piece) object {
	return object{
		{"index", a.index}, {"content", p.text}, {"tokens", []int{p.id}}, {"stop", false}, {"id_slot", -1},
		{"tokens_predicted", p.nth}, {"tokens_evaluated", len(a.ids)},
	}
}

func (s shape) textPart(a *answer, p piece, logprobs any) object {
	return s.textCompletion(object{{"text", p.text}, {"index", a.index}, {"logprobs", logprobs}, {"finish_reason", nil}}, nil)
}

// last are the events that end one answer of a stream.
func (s shape) last(a answer) []object {
	switch {
	case s.native:
		return []object{s.nativeFinal(a, "", nil)}
	case s.chat:
		events := []object{s.chunk([]object{delta(a.index, a.finish(), object{})})}
		if s.stopWord {
			events[0] = append(events[0], field{"__verbose", object{{"stopping_word", a.stopWord}}})
		}
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
			all = append(all, s.nativeFinal(a, a.whole(), a.pieces))
		}
		if len(all) == 1 {
			return all[0]
		}
		return all
	}
	choices := make([]object, 0, len(answers))
	for _, a := range answers {
		var logprobs any
		if a.probs > 0 {
			logprobs = object{{"content", probabilities(a)}}
		}
		if !s.chat {
			choices = append(choices, object{{"text", a.whole()}, {"index", a.index}, {"logprobs", logprobs}, {"finish_reason", a.finish()}})
			continue
		}
		choice := object{
			{"finish_reason", a.finish()}, {"index", a.index},
			{"message", a.message()},
		}
		if a.probs > 0 {
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
	if !s.stream && a.probs > 0 {
		o = append(o, field{"completion_probabilities", probabilities(a)})
	}
	return o
}

func (a answer) finish() string {
	switch {
	case a.stop == stopLimit:
		return "length"
	case a.plan != nil && a.plan.finish != "":
		return a.plan.finish
	case len(a.calls) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}

func (a answer) usage() object {
	return object{
		{"completion_tokens", len(a.pieces)}, {"prompt_tokens", len(a.ids)}, {"total_tokens", len(a.pieces) + len(a.ids)},
		{"prompt_tokens_details", object{{"cached_tokens", a.cached}}},
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
	pms, ppt, pps := rates(a.read-a.cached, a.prefillTime)
	dms, dpt, dps := rates(len(a.pieces), a.decode)
	return object{
		{"cache_n", a.cached},
		{"prompt_n", a.read - a.cached}, {"prompt_ms", pms}, {"prompt_per_token_ms", ppt}, {"prompt_per_second", pps},
		{"predicted_n", len(a.pieces)}, {"predicted_ms", dms}, {"predicted_per_token_ms", dpt}, {"predicted_per_second", dps},
	}
}

// probability is a piece that was all but certain, above others that were not:
// none where the sampler had chosen.
func (a *answer) probability(p piece) object {
	n, value, top := a.probs, "logprob", "top_logprobs"
	certain, unlikely := -0.001, -8.0
	if a.sampled {
		n, value, top, certain = 1, "prob", "top_probs", 1
	}
	others := make([]object, n)
	for i := range others {
		id, how := (p.id+i)%VocabSize, certain
		if i > 0 {
			how = unlikely - 0.001*float64(i)
		}
		others[i] = likely(id, shown(id), value, how)
	}
	return append(likely(p.id, p.sent(), value, certain), field{top, others})
}

// shown is the text of a token as answers have it: of the control tokens only
// the one that ends parts of them has some.
func shown(id int) string {
	if id < firstByte && id != tokenTool {
		return ""
	}
	return Piece(id)
}

func likely(id int, text, value string, how float64) object {
	return object{{"id", id}, {"token", text}, {"bytes", bytesOf(text)}, {value, how}}
}

// probabilities are those of a whole answer, without the stop string that ended
// it, counted in the tokens of that string by itself.
func probabilities(a answer) []object {
	all := make([]object, 0, len(a.pieces))
	for _, p := range a.pieces {
		if !p.part {
			all = append(all, a.probability(p))
		}
	}
	return all[:max(0, len(all)-len(Tokenize(a.stopWord, false, false)))]
}
