package llama

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Timings are an engine's own counters since its start.
type Timings struct {
	// PromptTokens were read in PromptTime; tokens that were still in a cache
	// are not counted.
	PromptTokens uint64
	PromptTime   time.Duration
	// Tokens were written in TokenTime. Where several slots write at once, the
	// time of each counts.
	Tokens    uint64
	TokenTime time.Duration
}

// timingsTime is how long an engine may take to tell its counters. It answers
// between two batches of its work.
const timingsTime = 2 * time.Second

// ErrNoTimings: this build of the engine does not tell its counters.
var ErrNoTimings = errors.New("this build of the engine has no counters")

// Timings asks the engine for its counters. It waits at most two seconds, and
// needs no slot. The error is ErrNoTimings where the build has none, and
// ErrEngine where what it says makes no sense.
func (p *Process) Timings(ctx context.Context) (Timings, error) {
	if !p.metrics {
		return Timings{}, ErrNoTimings
	}
	ctx, cancel := context.WithTimeout(ctx, timingsTime)
	defer cancel()
	status, answer, err := p.ask(ctx, http.MethodGet, "/metrics", nil)
	switch {
	case err != nil:
		return Timings{}, err
	case status != http.StatusOK:
		return Timings{}, fmt.Errorf("%w: it answers the question for its counters with %d", ErrEngine, status)
	}
	return parseTimings(string(answer))
}

// parseTimings reads the counters out of what /metrics says: lines of a name
// and a number, with comments between them.
func parseTimings(text string) (Timings, error) {
	values := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if _, again := values[name]; again {
			return Timings{}, fmt.Errorf("%w: it tells the counter %s twice", ErrEngine, printable(name, 60))
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err == nil {
			values[name] = x
		}
	}
	if err := lines.Err(); err != nil {
		return Timings{}, fmt.Errorf("%w: its counters cannot be read: %w", ErrEngine, err)
	}
	var wrong error
	counter := func(name string, most float64) float64 {
		x, ok := values["llamacpp:"+name]
		if !ok || !(x >= 0 && x <= most) {
			wrong = fmt.Errorf("%w: it does not tell its counter %s", ErrEngine, name)
			return 0
		}
		return x
	}
	const mostTokens, mostSeconds = 1 << 52, math.MaxInt64 / 2 / float64(time.Second)
	seconds := func(name string) time.Duration {
		return time.Duration(counter(name, mostSeconds) * float64(time.Second))
	}
	t := Timings{
		PromptTokens: uint64(counter("prompt_tokens_total", mostTokens)), PromptTime: seconds("prompt_seconds_total"),
		Tokens: uint64(counter("tokens_predicted_total", mostTokens)), TokenTime: seconds("tokens_predicted_seconds_total"),
	}
	if wrong != nil {
		return Timings{}, wrong
	}
	return t, nil
}
