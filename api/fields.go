package api

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
var sampling = passed(
	"top_k", "min_p", "top_n_sigma", "typical_p", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent",
	"repeat_penalty", "dry_multiplier", "dry_base", "dry_allowed_length",
	"mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "min_keep",
	"json_schema", "ignore_eos", "cache_prompt", "n_keep", "n_indent", "t_max_predict_ms").with(fields{
	"temperature":       {check: isNumber},
	"top_p":             {check: isNumber},
	"frequency_penalty": {check: isNumber},
	"presence_penalty":  {check: isNumber},
	"seed":              {check: isSeed},
	"logit_bias":        {check: isBias},
	"samplers":          {check: isSamplers},
	"mirostat":          {check: wholeBetween(0, 2)},
	"max_tokens":        {check: wholeFrom(1)},
	"n_predict":         {check: isPredict},
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

	"grammar": {check: isGrammar},
	// The engine makes room for as many tokens as these say, and compares each breaker
	// with the whole vocabulary.
	"repeat_last_n":         {check: wholeBetween(0, 1<<20)},
	"dry_penalty_last_n":    {check: wholeBetween(0, 1<<20)},
	"dry_sequence_breakers": {check: isBreakers},
})

// chatFields are those of POST /v1/chat/completions.
var chatFields = sampling.with(passed("model", "messages", "tools", "tool_choice", "reasoning_format", "reasoning_budget_message")).with(fields{
	"chat_template_kwargs":    {check: isObject},
	"add_generation_prompt":   {check: isBool},
	"continue_final_message":  {check: isBool},
	"reasoning_budget_tokens": {check: wholeFrom(-1)},
	"thinking_budget_tokens":  {check: wholeFrom(-1)},

	"messages":              {check: isMessages},
	"tools":                 {check: isTools},
	"tool_choice":           {check: isToolChoice},
	"parallel_tool_calls":   {check: isBool},
	"response_format":       {check: isResponseFormat},
	"reasoning_effort":      {check: oneOf("none", "minimal", "low", "medium", "high", "xhigh")},
	"max_completion_tokens": {check: wholeFrom(1)},
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
		"text":          {refused: "send content"},
		"prompt":        {refused: "send content"},
	})
	detokenizeFields = passed("model").with(fields{"tokens": {check: isIDs}})
)
