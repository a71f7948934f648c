package sim

import (
	"encoding/json"
	"math"
	"reflect"
)

// params are the fields of a completion request that the stand-in honours. What
// else llama-server takes is accepted and changes nothing.
type params struct {
	Prompt        json.RawMessage `json:"prompt"`
	Messages      json.RawMessage `json:"messages"`
	Tools         json.RawMessage `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	NPredict            *int            `json:"n_predict"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	Seed                *int64          `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	ReturnTokens        bool            `json:"return_tokens"`
	ReturnProgress      bool            `json:"return_progress"`
	TimingsPerToken     bool            `json:"timings_per_token"`
	N                   *int            `json:"n"`
	Logprobs            json.RawMessage `json:"logprobs"`
	TopLogprobs         *int            `json:"top_logprobs"`
	NProbs              int             `json:"n_probs"`
	ResponseFormat      json.RawMessage `json:"response_format"`
	JSONSchema          json.RawMessage `json:"json_schema"`
	Grammar             json.RawMessage `json:"grammar"`
	PingInterval        *int            `json:"sse_ping_interval"`
	Verbose             bool            `json:"verbose"`
	ResponseFields      []string        `json:"response_fields"`
	PostSampling        bool            `json:"post_sampling_probs"`
	CachePrompt         *bool           `json:"cache_prompt"`
	Generation          *bool           `json:"add_generation_prompt"`
	Continue            json.RawMessage `json:"continue_final_message"`
}

// truth is a boolean that reads anything else as false, as llama-server does in
// /tokenize.
type truth bool

func (f *truth) UnmarshalJSON(b []byte) error { *f = string(b) == "true"; return nil }

// task is one answer to compute.
type task struct {
	index     int
	ids       []int
	begun     begun
	plan      *plan // nil: what follows from the tokens
	seed      uint64
	max       int // -1: until the context is full
	stop      []string
	ignoreEOS bool
	probs     int  // how many tokens are shown for each, with how likely they were
	sampled   bool // as they were when the sampler had chosen
	fresh     bool // nothing of the prompt is taken from before
	first     bool // of the answers to its prompt
}

func decode(body []byte) (params, error) {
	var p params
	err := json.Unmarshal(body, &p)
	if err == nil {
		return p, nil
	}
	if e, ok := err.(*json.UnmarshalTypeError); ok && e.Field != "" {
		return p, refuse("Field '%s': [json.exception.type_error.302] type must be %s, but is %s", e.Field, jsonKind(e.Type), e.Value)
	}
	return p, fail("[json.exception.parse_error.101] parse error: %v", err)
}

// jsonKind is what JSON calls a value of a Go type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Struct:
		return "object"
	default:
		return t.String()
	}
}

// within refuses a number as llama-server does.
func within(name string, v, low, high int) error {
	if v < low || v > high {
		return refuse("Field '%s': Value must be between %d <= value <= %d, but got %d", name, low, high, v)
	}
	return nil
}

// common are the settings of a request that all its answers share.
func (p params) common(chat bool, seed uint64) (task, error) {
	t := task{seed: seed, max: -1, ignoreEOS: p.IgnoreEOS, sampled: p.PostSampling, fresh: p.CachePrompt != nil && !*p.CachePrompt}
	for _, f := range []struct {
		name string
		v    *int
	}{{"n_predict", p.NPredict}, {"max_completion_tokens", p.MaxCompletionTokens}, {"max_tokens", p.MaxTokens}} {
		if f.v != nil {
			if err := within(f.name, *f.v, -1, math.MaxInt32); err != nil {
				return t, err
			}
			t.max = *f.v
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
	var err error
	t.probs, err = p.probs(chat)
	return t, err
}

// probs is how many tokens to show for each. Chat's logprobs is a switch, that
// of the other routes a number.
func (p params) probs(chat bool) (int, error) {
	n, on := p.NProbs, string(p.Logprobs)
	switch {
	case on == "" || on == "null":
	case on == "true" && chat:
		n = 20
		if p.TopLogprobs != nil {
			n = *p.TopLogprobs
		}
	case on == "true":
		n = 1
	case on == "false":
	case json.Unmarshal(p.Logprobs, &n) != nil:
		return 0, refuse("Field 'logprobs': [json.exception.type_error.302] type must be number, but is string")
	}
	if chat && on != "true" && p.TopLogprobs != nil {
		return 0, refuse("top_logprobs requires logprobs to be set to true")
	}
	return min(max(n, 0), VocabSize), nil
}

// tasks are the answers that a request asks for: one per prompt, times n.
func (s *Server) tasks(p params, chat bool) ([]task, error) {
	base, err := p.common(chat, s.opt.Seed)
	if err != nil {
		return nil, err
	}
	var prompts [][]int
	var messages []message
	if chat {
		var prompt prompt
		if messages, prompt, err = s.chatPrompt(p); err != nil {
			return nil, err
		}
		base.begun = prompt.begun
		prompts = [][]int{prompt.ids(s.media)}
	} else if prompts, err = p.prompts(); err != nil {
		return nil, err
	}
	n := 1
	if p.N != nil {
		n = *p.N
		if err := within("n", n, 1, s.opt.Slots); err != nil {
			return nil, err
		}
	}
	if n*len(prompts) > 64 {
		return nil, refuse("%d answers are too many for one request", n*len(prompts))
	}
	var all []task
	for _, ids := range prompts {
		if base.plan, err = s.plan(p, chat, messages, base.begun, ids); err != nil {
			return nil, err
		}
		if len(ids) >= s.opt.Context {
			return nil, tooLong(len(ids), s.opt.Context)
		}
		for i := range n {
			t := base
			t.index, t.ids, t.first = len(all), ids, i == 0
			all = append(all, t)
		}
	}
	return all, nil
}

// chatPrompt is a chat as the template writes it.
func (s *Server) chatPrompt(p params) ([]message, prompt, error) {
	if !given(p.Messages) {
		return nil, prompt{}, refuse("'messages' is required")
	}
	var messages []message
	if json.Unmarshal(p.Messages, &messages) != nil {
		return nil, prompt{}, refuse("Expected 'messages' to be an array")
	}
	written, err := s.applyTemplate(messages, p)
	return messages, written, err
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

const invalidTokens = "Prompt contains invalid tokens"

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
			return nil, refuse(invalidTokens)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func isNumber(raw json.RawMessage) bool {
	var f float64
	return string(raw) != "null" && json.Unmarshal(raw, &f) == nil
}
