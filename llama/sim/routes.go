package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxBody bounds request bodies, in bytes. The real engine has no such bound.
const maxBody = 64 << 20

// Handler is the engine's HTTP surface, and the control routes under /sim.
func (s *Server) Handler() http.Handler {
	get := map[string]http.HandlerFunc{
		"/health": s.health, "/v1/health": s.health, "/models": s.models, "/v1/models": s.models, "/props": s.props,
		"/metrics":   s.metrics,
		"/slots":     func(w http.ResponseWriter, _ *http.Request) { writeError(w, unsupported("slots endpoint", "--slots")) },
		"/sim/state": s.showState,
	}
	post := map[string]http.HandlerFunc{
		"/completion": s.completions(native), "/completions": s.completions(native), "/v1/completions": s.completions(text),
		"/chat/completions": s.completions(chat), "/v1/chat/completions": s.completions(chat),
		"/embedding": s.embeddings(false), "/embeddings": s.embeddings(false), "/v1/embeddings": s.embeddings(true),
		"/rerank": s.rerank(), "/reranking": s.rerank(), "/v1/rerank": s.rerank(), "/v1/reranking": s.rerank(),
		"/tokenize": s.tokenize, "/detokenize": s.detokenize, "/apply-template": s.template,
		"/props": func(w http.ResponseWriter, _ *http.Request) {
			writeError(w, unsupported("changing global properties", "--props"))
		},
		"/sim/faults": s.changeFaults,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		defer s.requests.Done()
		w.Header().Set("Server", "llama.cpp")
		w.Header().Set("Access-Control-Allow-Origin", "")
		routes := post
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			routes = get
		} else if r.Method != http.MethodPost {
			routes = nil
		}
		h, ok := routes[r.URL.Path]
		if !ok {
			w.Header().Set("Connection", "close")
			writeJSON(w, http.StatusNotFound, object{{"error", object{{"message", "File Not Found"}, {"type", "not_found_error"}, {"code", 404}}}})
			return
		}
		h(w, r)
	})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{{"status", "ok"}})
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	capabilities := []string{"completion"}
	if s.opt.Images {
		capabilities = append(capabilities, "multimodal")
	}
	writeJSON(w, http.StatusOK, object{
		{"models", []object{{
			{"name", s.opt.Model}, {"model", s.opt.Model}, {"modified_at", ""}, {"size", ""}, {"digest", ""}, {"type", "model"},
			{"description", ""}, {"tags", []string{""}}, {"capabilities", capabilities}, {"parameters", ""},
			{"details", object{
				{"parent_model", ""}, {"format", "gguf"}, {"family", ""}, {"families", []string{""}},
				{"parameter_size", ""}, {"quantization_level", ""},
			}},
		}}},
		{"object", "list"},
		{"data", []object{{
			{"id", s.opt.Model}, {"aliases", []string{s.opt.Model}}, {"tags", []string{}}, {"object", "model"},
			{"created", s.started}, {"owned_by", "llamacpp"},
			{"meta", object{
				{"vocab_type", true}, {"n_vocab", VocabSize}, {"n_ctx", s.opt.Context}, {"n_ctx_train", s.opt.Context},
				{"n_embd", 1}, {"n_params", 0}, {"size", 0}, {"ftype", "F16"},
			}},
		}}},
	})
}

func (s *Server) props(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{
		{"default_generation_settings", object{{"params", settings(task{max: -1}, false, false, false)}, {"n_ctx", s.opt.Context}}},
		{"total_slots", s.opt.Slots}, {"model_alias", s.opt.Model}, {"model_ftype", "F16"}, {"model_path", ""},
		{"modalities", object{{"vision", s.opt.Images}, {"video", s.opt.Images}, {"audio", false}}},
		{"media_marker", s.media}, {"endpoint_slots", false}, {"endpoint_props", false}, {"endpoint_metrics", s.opt.Metrics},
		{"ui", false}, {"ui_settings", object{}}, {"chat_template", chatTemplate},
		{"chat_template_caps", object{
			{"supports_object_arguments", true}, {"supports_parallel_tool_calls", true}, {"supports_preserve_reasoning", false},
			{"supports_reasoning_effort", false}, {"supports_string_content", true}, {"supports_system_role", true},
			{"supports_tool_calls", true}, {"supports_tools", true}, {"supports_typed_content", false},
		}},
		{"bos_token", controls[tokenBOS]}, {"eos_token", controls[tokenEOS]}, {"build_info", fingerprint},
		{"is_sleeping", false}, {"cors_proxy_enabled", false},
	})
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Content      json.RawMessage `json:"content"`
		AddSpecial   truth           `json:"add_special"`
		ParseSpecial *truth          `json:"parse_special"`
		WithPieces   truth           `json:"with_pieces"`
	}
	if err := readJSON(r, &q); err != nil {
		writeError(w, err)
		return
	}
	control := q.ParseSpecial == nil || bool(*q.ParseSpecial)
	ids := []int{}
	var text string
	var mixed []json.RawMessage
	switch {
	case q.Content == nil:
	case json.Unmarshal(q.Content, &text) == nil:
		ids = Tokenize(text, bool(q.AddSpecial), control)
	case json.Unmarshal(q.Content, &mixed) == nil:
		var err error
		if ids, err = mixedIDs(mixed, bool(q.AddSpecial)); err != nil {
			writeError(w, err)
			return
		}
	default:
		writeError(w, fail("[json.exception.type_error.302] type must be string, but is not"))
		return
	}
	if !q.WithPieces {
		writeJSON(w, http.StatusOK, object{{"tokens", ids}})
		return
	}
	pieces := []object{}
	for _, id := range ids {
		pieces = append(pieces, object{{"id", id}, {"piece", pieceJSON(id)}})
	}
	writeJSON(w, http.StatusOK, object{{"tokens", pieces}})
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Tokens []int `json:"tokens"`
	}
	if err := readJSON(r, &q); err != nil {
		writeError(w, err)
		return
	}
	for _, id := range q.Tokens {
		if id < 0 || id >= VocabSize {
			writeError(w, fail("vector::_M_range_check: __n (which is %d) >= this->size() (which is %d)", id, VocabSize))
			return
		}
	}
	writeJSON(w, http.StatusOK, object{{"content", Detokenize(q.Tokens)}})
}

func (s *Server) template(w http.ResponseWriter, r *http.Request) {
	var p params
	if err := readJSON(r, &p); err != nil {
		writeError(w, err)
		return
	}
	_, prompt, err := s.chatPrompt(p)
	if err == nil {
		_, _, err = p.toolbox() // which it refuses as a chat does
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, object{{"prompt", prompt.text}})
}

// showState and changeFaults are the control routes, which no real engine has.
func (s *Server) showState(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.State())
}

func (s *Server) changeFaults(w http.ResponseWriter, r *http.Request) {
	var faults []Fault
	if err := readJSON(r, &faults); err != nil {
		writeError(w, refuse("%v", err))
		return
	}
	if err := s.SetFaults(faults...); err != nil {
		writeError(w, refuse("%v", err))
		return
	}
	writeJSON(w, http.StatusOK, s.State())
}

func readBody(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = fmt.Errorf("more than %d bytes", maxBody)
	}
	if err != nil {
		return nil, refuse("cannot read the body: %v", err)
	}
	return b, nil
}

func readJSON(r *http.Request, v any) error {
	b, err := readBody(r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fail("[json.exception.parse_error.101] parse error: %v", err)
	}
	return nil
}

// settings is generation_settings: what the request changed, and llama-server's
// defaults for the rest.
func settings(t task, stream, timings, full bool) object {
	stops := t.stop
	if stops == nil {
		stops = []string{}
	}
	o := object{
		{"seed", uint32(t.seed)}, {"temperature", 0.8}, {"dynatemp_range", 0.0}, {"dynatemp_exponent", 1.0}, {"top_k", 40}, {"top_p", 0.95},
		{"min_p", 0.05}, {"top_n_sigma", -1.0}, {"xtc_probability", 0.0}, {"xtc_threshold", 0.1}, {"typical_p", 1.0},
		{"repeat_last_n", 64}, {"repeat_penalty", 1.0}, {"presence_penalty", 0.0}, {"frequency_penalty", 0.0},
		{"dry_multiplier", 0.0}, {"dry_base", 1.75}, {"dry_allowed_length", 2}, {"dry_penalty_last_n", 64},
	}
	if full {
		o = append(o, field{"dry_sequence_breakers", []string{"\n", ":", "\"", "*"}})
	}
	o = append(o, object{
		{"mirostat", 0}, {"mirostat_tau", 5.0}, {"mirostat_eta", 0.1}, {"adaptive_target", -1.0}, {"adaptive_decay", 0.9},
	}...)
	if full {
		o = append(o, field{"stop", stops})
	}
	o = append(o, object{
		{"max_tokens", t.max}, {"n_predict", t.max}, {"n_keep", 0}, {"n_discard", 0}, {"ignore_eos", t.ignoreEOS}, {"stream", stream},
	}...)
	if full {
		// ignore_eos is a bias of minus infinity to the engine, null in JSON.
		bias := []object{}
		if t.ignoreEOS {
			bias = append(bias, object{{"bias", nil}, {"token", tokenEOS}})
		}
		o = append(o, field{"logit_bias", bias})
	}
	o = append(o, object{{"n_probs", t.probs}, {"min_keep", 0}}...)
	if full {
		o = append(o, object{{"grammar", ""}, {"grammar_lazy", false}, {"grammar_triggers", []int{}}, {"preserved_tokens", []int{}}}...)
	}
	return append(o, object{
		{"chat_format", "Content-only"}, {"reasoning_format", "none"}, {"reasoning_in_content", false}, {"generation_prompt", ""},
		{"samplers", []string{"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"}},
		{"speculative.types", "none"}, {"timings_per_token", timings}, {"post_sampling_probs", t.sampled}, {"backend_sampling", false},
		{"lora", []int{}},
	}...)
}
