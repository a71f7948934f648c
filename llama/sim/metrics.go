package sim

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// work counts what was computed since the start.
type work struct {
	promptTokens, tokens int
	promptTime, time     time.Duration
}

// worked adds to the counters.
func (s *Server) worked(w work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.promptTokens += w.promptTokens
	s.work.promptTime += w.promptTime
	s.work.tokens += w.tokens
	s.work.time += w.time
}

// metrics are those of llama-server that say how fast it is.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	if !s.opt.Metrics {
		writeError(w, unsupported("metrics endpoint", "--metrics"))
		return
	}
	s.mu.Lock()
	done, active, waiting := s.work, s.state.Active, s.state.Waiting
	s.mu.Unlock()
	var b strings.Builder
	for _, m := range []struct {
		kind, name, help string
		value            float64
	}{
		{"counter", "prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens", float64(done.promptTokens)},
		{"counter", "prompt_seconds_total", "Total time spent processing prompts", done.promptTime.Seconds()},
		{"counter", "tokens_predicted_total", "Number of generation tokens processed", float64(done.tokens)},
		{"counter", "tokens_predicted_seconds_total", "Total time spent generating tokens", done.time.Seconds()},
		{"gauge", "requests_processing", "Number of requests processing", float64(active)},
		{"gauge", "requests_deferred", "Number of requests deferred", float64(waiting)},
	} {
		// llama-server writes six digits, too.
		fmt.Fprintf(&b, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %.6g\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprint(w, b.String())
}
