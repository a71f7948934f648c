package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// fields are what a route takes, by name. A field that is not there is refused, so that
// nothing a client asks for is ignored.
type fields map[string]field

// field is what becomes of a field. The zero value goes on to the engine, whose business
// it is.
type field struct {
	// check says what is wrong with a value, or nothing.
	check func(v []byte) string
	// refused is why there is no such thing here, and what to do instead.
	refused string
	// hint: it has no effect on the answer, and ends here.
	hint bool
}

// check goes through the fields of a request. null is as if the field were not there.
func (f fields) check(q *request) *refusal {
	var drop []string
	for _, m := range q.members {
		name, v := string(m.key), m.value.of(q.body)
		is, known := f[name]
		switch {
		case string(v) == "null":
			drop = append(drop, name)
		case !known:
			return invalid(clip(name, 100), "there is no field %q here; leave it out", clip(name, 100))
		case is.refused != "":
			return invalid(name, "%s: %s", name, is.refused)
		case is.check != nil:
			if wrong := is.check(v); wrong != "" {
				return invalid(name, "%s: %s", name, wrong)
			}
		}
		if is.hint {
			drop = append(drop, name)
		}
	}
	if len(drop) > 0 {
		q.drop(drop...)
	}
	return nil
}

// with is f and more.
func (f fields) with(more fields) fields {
	all := make(fields, len(f)+len(more))
	for _, each := range []fields{f, more} {
		for name, is := range each {
			all[name] = is
		}
	}
	return all
}

// passed are fields that go on to the engine.
func passed(names ...string) fields {
	f := fields{}
	for _, name := range names {
		f[name] = field{}
	}
	return f
}

// sampling are the fields of both completions, OpenAI's and llama-server's own, whose
// values are the engine's business.
var sampling = passed("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "logit_bias",
	"top_k", "min_p", "top_n_sigma", "typical_p", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent",
	"repeat_penalty", "repeat_last_n", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
	"mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "samplers", "min_keep",
	"grammar", "json_schema", "ignore_eos", "cache_prompt", "n_keep", "n_indent", "t_max_predict_ms").with(fields{
	"max_tokens":        {check: wholeFrom(0)},
	"n_predict":         {check: wholeFrom(-1)},
	"n":                 {check: wholeBetween(1, 128)},
	"stop":              {check: isStop},
	"stream":            {check: isBool},
	"stream_options":    {check: isStreamOptions},
	"timings_per_token": {check: isBool},
	"return_progress":   {check: isBool},
	"user":              {hint: true, check: isString},
	"id_slot":           {refused: "relay chooses the slot; leave it out"},
	"lora":              {refused: "no adapters are loaded; leave it out"},
	"response_fields":   {refused: "the answer has the fields that it has; leave it out"},
})

// chatFields are those of POST /v1/chat/completions.
var chatFields = sampling.with(passed("model", "messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_format", "add_generation_prompt",
	"continue_final_message", "reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget_message")).with(fields{
	"messages":              {check: isList},
	"tools":                 {check: isTools},
	"tool_choice":           {check: isToolChoice},
	"parallel_tool_calls":   {check: isBool},
	"response_format":       {check: isResponseFormat},
	"reasoning_effort":      {check: isString},
	"max_completion_tokens": {check: wholeFrom(1)},
	"max_tokens":            {check: wholeFrom(1)},
	"logprobs":              {check: isBool},
	"top_logprobs":          {check: wholeBetween(0, 20)},
	"modalities":            {hint: true, check: isTextOnly},
	"verbosity":             {hint: true, check: only(`"medium"`, "an answer's length cannot be set here; leave it out, or ask for it in a message")},
	"store":                 {hint: true, check: only("false", "relay stores no answers; leave it out")},
	"service_tier":          {hint: true, check: isTier},
	"metadata":              {hint: true},
	"safety_identifier":     {hint: true},
	"prompt_cache_key":      {hint: true},
	"prompt_cache_retention": {
		hint: true,
	},
	"functions":          {refused: "OpenAI has given it up; use tools"},
	"function_call":      {refused: "OpenAI has given it up; use tool_choice"},
	"audio":              {refused: "no model here speaks; leave it out"},
	"prediction":         {refused: "there are no predicted outputs here; leave it out"},
	"web_search_options": {refused: "relay searches nothing; give the model a tool of your own"},
	"moderation":         {refused: "relay moderates nothing; leave it out"},
})

// textFields are those of POST /v1/completions.
var textFields = sampling.with(passed("model")).with(fields{
	"prompt":   {check: isPrompt},
	"logprobs": {check: wholeBetween(0, 20)},
	"echo":     {hint: true, check: only("false", "the prompt is not given back; put it before the answer yourself")},
	"best_of":  {hint: true, check: only("1", "answers are not ranked here; use n, and choose")},
	"suffix":   {refused: "no text is put in between here; leave it out"},
})

// embeddingFields are those of POST /v1/embeddings.
var embeddingFields = passed("model").with(fields{
	"input":           {check: isInput},
	"encoding_format": {check: oneOf("float", "base64")},
	"dimensions":      {check: wholeFrom(1)},
	"user":            {hint: true, check: isString},
})

// rerankFields are those of POST /v1/rerank.
var rerankFields = passed("model").with(fields{
	"query":              {check: isString},
	"documents":          {check: isList},
	"top_n":              {check: wholeFrom(1)},
	"return_documents":   {check: isBool},
	"user":               {hint: true, check: isString},
	"max_tokens_per_doc": {refused: "documents are read whole; send shorter ones"},
	"max_chunks_per_doc": {refused: "documents are read whole; send shorter ones"},
	"rank_fields":        {refused: "documents are texts; put the fields into them"},
})

// tokenizeFields are those of POST /v1/tokenize, detokenizeFields of /v1/detokenize.
var (
	tokenizeFields = passed("model").with(fields{
		"content":       {check: isString},
		"add_special":   {check: isBool},
		"parse_special": {check: isBool},
		"with_pieces":   {check: isBool},
	})
	detokenizeFields = passed("model").with(fields{"tokens": {check: isIDs}})
)

func isBool(v []byte) string {
	if string(v) != "true" && string(v) != "false" {
		return "it must be true or false"
	}
	return ""
}

func isString(v []byte) string {
	if v[0] != '"' {
		return "it must be a string"
	}
	return ""
}

func isList(v []byte) string {
	if v[0] != '[' {
		return "it must be a list"
	}
	return ""
}

// whole reads a whole number of at most 9 digits.
func whole(v []byte) (n int, ok bool) {
	neg := len(v) > 0 && v[0] == '-'
	if neg {
		v = v[1:]
	}
	if len(v) == 0 || len(v) > 9 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

func wholeFrom(least int) func([]byte) string {
	return func(v []byte) string {
		if n, ok := whole(v); !ok || n < least {
			return fmt.Sprintf("it must be a whole number from %d on", least)
		}
		return ""
	}
}

func wholeBetween(least, most int) func([]byte) string {
	return func(v []byte) string {
		if n, ok := whole(v); !ok || n < least || n > most {
			return fmt.Sprintf("it must be a whole number from %d to %d", least, most)
		}
		return ""
	}
}

func only(value, otherwise string) func([]byte) string {
	return func(v []byte) string {
		if string(v) != value {
			return otherwise
		}
		return ""
	}
}

func oneOf(words ...string) func([]byte) string {
	return func(v []byte) string {
		if v[0] != '"' || !slices.Contains(words, unquote(v)) {
			return "it must be one of: " + strings.Join(words, ", ")
		}
		return ""
	}
}

// maxStops bounds the stop strings of a request.
const maxStops = 64

func isStop(v []byte) string {
	if v[0] == '"' {
		return ""
	}
	var list []string
	if json.Unmarshal(v, &list) != nil || len(list) > maxStops {
		return fmt.Sprintf("it must be a string, or a list of at most %d strings", maxStops)
	}
	return ""
}

func isStreamOptions(v []byte) string {
	var options map[string]json.RawMessage
	if json.Unmarshal(v, &options) != nil {
		return "it must be an object, such as {\"include_usage\":true}"
	}
	for name, value := range options {
		switch {
		case name != "include_usage" && name != "include_obfuscation":
			return fmt.Sprintf("there is no %q in it; there is: include_usage", clip(name, 60))
		case isBool(value) != "" && string(value) != "null":
			return name + " must be true or false"
		}
	}
	return ""
}

func isTextOnly(v []byte) string {
	var list []string
	if json.Unmarshal(v, &list) != nil || len(list) != 1 || list[0] != "text" {
		return "models here answer in text only: [\"text\"]"
	}
	return ""
}

func isTier(v []byte) string {
	if s := string(v); s != `"auto"` && s != `"default"` {
		return "there are no tiers here; leave it out"
	}
	return ""
}

func isTools(v []byte) string {
	var list []struct {
		Type     string `json:"type"`
		Function *struct {
			Name any `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(v, &list) != nil {
		return "it must be a list of functions"
	}
	for i, t := range list {
		switch {
		case t.Type != "function":
			return fmt.Sprintf("[%d] is of the type %q; there are only functions here", i, clip(t.Type, 40))
		case t.Function == nil:
			return fmt.Sprintf("[%d] has no function", i)
		}
		if name, ok := t.Function.Name.(string); !ok || name == "" {
			return fmt.Sprintf("[%d].function has no name", i)
		}
	}
	return ""
}

func isToolChoice(v []byte) string {
	if v[0] == '{' {
		return ""
	}
	return oneOf("none", "auto", "required")(v)
}

func isResponseFormat(v []byte) string {
	var f struct {
		Type       string `json:"type"`
		JSONSchema *struct {
			Name   *string         `json:"name"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if json.Unmarshal(v, &f) != nil {
		return "it must be an object with a type: text, json_object or json_schema"
	}
	switch f.Type {
	case "text", "json_object":
		return ""
	case "json_schema":
		if f.JSONSchema == nil || len(f.JSONSchema.Schema) == 0 || f.JSONSchema.Schema[0] != '{' {
			return "the type json_schema needs json_schema.schema, an object"
		}
		return ""
	}
	return fmt.Sprintf("its type is %q; there is: text, json_object, json_schema", clip(f.Type, 40))
}

// isPrompt takes a text, or token ids, or a list of texts and lists of ids.
func isPrompt(v []byte) string {
	const want = "it must be a string, a list of strings, token ids, or a list of token ids"
	if v[0] == '"' {
		return ""
	}
	if v[0] != '[' {
		return want
	}
	switch prompts(v) {
	case 0:
		return "it is empty"
	case -1:
		return want
	}
	return ""
}

// prompts is how many prompts there are in a value; -1 where it is none.
func prompts(v []byte) int {
	if len(v) == 0 || v[0] != '[' {
		return 1
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil {
		return -1
	}
	ids := 0
	for _, e := range list {
		switch {
		case e[0] >= '0' && e[0] <= '9' || e[0] == '-':
			ids++
		case e[0] != '"' && e[0] != '[':
			return -1
		}
	}
	if ids > 0 { // One prompt of ids, or of ids and texts.
		return 1
	}
	return len(list)
}

// maxInputs is how many texts one request for embeddings may bring, as at OpenAI's.
const maxInputs = 2048

func isInput(v []byte) string {
	if wrong := isPrompt(v); wrong != "" {
		return wrong
	}
	if prompts(v) > maxInputs {
		return fmt.Sprintf("it holds more than %d texts; send them in several requests", maxInputs)
	}
	var list []json.RawMessage
	if v[0] == '"' {
		list = []json.RawMessage{v}
	} else {
		json.Unmarshal(v, &list)
	}
	for _, e := range list {
		if string(e) == `""` || string(e) == "[]" {
			return "it holds an empty text"
		}
	}
	return ""
}

func isIDs(v []byte) string {
	var list []int32
	if json.Unmarshal(v, &list) != nil {
		return "it must be a list of token ids"
	}
	return ""
}
