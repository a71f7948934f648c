package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// MostLines is how many lines another peer's metrics may have.
const MostLines = 20_000

// own are the metrics of relay's by name; beside them there are those of the Go runtime
// and of the process.
var own = map[string]bool{
	"relay_audit_lost_total": true, "relay_build_info": true, "relay_continuation_gap_seconds": true, "relay_continuations_total": true, "relay_http_requests_total": true, "relay_in_flight": true, "relay_link_rtt_seconds": true,
	"relay_link_up": true, "relay_overhead_seconds": true, "relay_peers": true, "relay_queue_wait_seconds": true, "relay_replicas": true,
	"relay_retries_total": true, "relay_tokens_total": true, "relay_tpot_seconds": true, "relay_ttft_seconds": true,
}

func known(name string) bool {
	return own[name] || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}

// Foreign reads the text of another peer's metrics and writes again what this release
// knows of it, without times. The error says what is wrong with it.
func Foreign(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte("\n")); n > MostLines {
		return nil, fmt.Errorf("it has %d lines: %d are the most that are taken", n, MostLines)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !known(name) {
			continue
		}
		for _, m := range families[name].Metric {
			m.TimestampMs = nil
		}
		if _, err := expfmt.MetricFamilyToText(&out, families[name]); err != nil {
			return nil, fmt.Errorf("it cannot be read: %w", err)
		}
	}
	return out.Bytes(), nil
}
