package sim

import (
	"encoding/json"
	"math"
)

// params are the fields of a completion request that the stand-in honours. What
// else llama-server takes is accepted and changes nothing.
type params struct {
	Prompt        json.RawMessage `json:"prompt"`
	Messages      json.RawMessage `json:"messages"`
	Stream        truth           `json:"stream"`
	StreamOptions struct {
		IncludeUsage truth `json:"include_usage"`
	} `json:"stream_options"`
	NPredict            *int            `json:"n_predict"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	Seed                *int64          `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	IgnoreEOS           truth           `json:"ignore_eos"`
	ReturnTokens        truth           `json:"return_tokens"`
	N                   *int            `json:"n"`
	Logprobs            json.RawMessage `json:"logprobs"`
	NProbs              int             `json:"n_probs"`
	PingInterval        *int            `json:"sse_ping_interval"`
}

// truth is a boolean that reads anything else as false, as llama-server does.
type truth bool

func (f *truth) UnmarshalJSON(b []byte) error { *f = string(b) == "true"; return nil }

// task is one answer to compute.
type task struct {
	index     int
	ids       []int
	prefill   string
	seed      uint64
	max       int // -1: until the context is full
	stop      []string
	ignoreEOS bool
	logprobs  bool
}

func decode(body []byte) (params, error) {
	var p params
	err := json.Unmarshal(body, &p)
	if err == nil {
		return p, nil
	}
	if e, ok := err.(*json.UnmarshalTypeError); ok && e.Field != "" {
		return p, refuse("Field '%s': [json.exception.type_error.302] type must be %s, but is %s", e.Field, e.Type, e.Value)
	}
	return p, fail("[json.exception.parse_error.101] parse error: %v", err)
}

// common are the settings of a request that all its answers share.
func (p params) common(seed uint64) (task, error) {
	t := task{seed: seed, max: -1, ignoreEOS: bool(p.IgnoreEOS)}
	for _, v := range []*int{p.NPredict, p.MaxTokens, p.MaxCompletionTokens} {
		if v != nil {
			t.max = *v
			break
		}
	}
	if t.max == 0 {
		t.max = 1 // the real one gives one token, too
	}
	// The request's own seed changes the answer only where there is something
	// to sample.
	if p.Seed != nil && *p.Seed >= 0 && *p.Seed != math.MaxUint32 && (p.Temperature == nil || *p.Temperature > 0) {
		t.seed ^= uint64(*p.Seed) * 0x9e3779b97f4a7c15
	}
	if len(p.Stop) > 0 && string(p.Stop) != "null" {
		var one string
		if json.Unmarshal(p.Stop, &one) == nil {
			t.stop = []string{one}
		} else if json.Unmarshal(p.Stop, &t.stop) != nil {
			return t, refuse("Field 'stop': must be a string or a list of strings")
		}
	}
	switch string(p.Logprobs) {
	case "", "false", "null", "0":
	default:
		t.logprobs = true
	}
	t.logprobs = t.logprobs || p.NProbs > 0
	return t, nil
}

// tasks are the answers that a request asks for: one per prompt, times n.
func (p params) tasks(chat bool, seed uint64, context int) ([]task, error) {
	base, err := p.common(seed)
	if err != nil {
		return nil, err
	}
	var prompts [][]int
	if chat {
		prompt, prefill, err := p.chatPrompt()
		if err != nil {
			return nil, err
		}
		base.prefill = prefill
		prompts = [][]int{Tokenize(prompt, true, true)}
	} else if prompts, err = p.prompts(); err != nil {
		return nil, err
	}
	n := 1
	if p.N != nil && *p.N > 1 {
		n = *p.N
	}
	if n*len(prompts) > 64 {
		return nil, refuse("%d answers are too many for one request", n*len(prompts))
	}
	var all []task
	for _, ids := range prompts {
		if len(ids) >= context {
			return nil, tooLong(len(ids), context)
		}
		for range n {
			t := base
			t.index, t.ids = len(all), ids
			all = append(all, t)
		}
	}
	return all, nil
}

func (p params) chatPrompt() (prompt, prefill string, err error) {
	if p.Messages == nil {
		return "", "", refuse("'messages' is required")
	}
	var messages []message
	if json.Unmarshal(p.Messages, &messages) != nil {
		return "", "", refuse("Expected 'messages' to be an array")
	}
	return applyTemplate(messages)
}

// prompts reads the forms that llama-server takes: a string, a list of ids, a
// mix of both in one list, or a list of those.
func (p params) prompts() ([][]int, error) {
	if p.Prompt == nil {
		return nil, refuse("[json.exception.out_of_range.403] key 'prompt' not found")
	}
	var list []json.RawMessage
	if json.Unmarshal(p.Prompt, &list) != nil {
		ids, err := promptIDs(p.Prompt)
		return [][]int{ids}, err
	}
	if len(list) == 0 {
		return nil, refuse("\"prompt\" must not be empty")
	}
	for _, e := range list {
		if isNumber(e) {
			ids, err := promptIDs(p.Prompt)
			return [][]int{ids}, err
		}
	}
	var all [][]int
	for _, e := range list {
		ids, err := promptIDs(e)
		if err != nil {
			return nil, err
		}
		all = append(all, ids)
	}
	return all, nil
}

func promptIDs(raw json.RawMessage) ([]int, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return Tokenize(s, true, true), nil
	}
	var mixed []json.RawMessage
	if json.Unmarshal(raw, &mixed) != nil || len(mixed) == 0 {
		return nil, refuse("\"prompt\" elements must be a string, a list of tokens, a JSON object containing a prompt string, or a list of mixed strings & tokens.")
	}
	return mixedIDs(mixed, true)
}

// mixedIDs reads strings and ids in one list; <s> goes before the first element
// if that is a string.
func mixedIDs(list []json.RawMessage, bos bool) ([]int, error) {
	var ids []int
	for i, e := range list {
		var s string
		if json.Unmarshal(e, &s) == nil {
			ids = append(ids, Tokenize(s, bos && i == 0, true)...)
			continue
		}
		var id int
		if json.Unmarshal(e, &id) != nil || id < 0 || id >= VocabSize {
			return nil, refuse("Prompt contains invalid tokens")
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func isNumber(raw json.RawMessage) bool {
	var f float64
	return string(raw) != "null" && json.Unmarshal(raw, &f) == nil
}
