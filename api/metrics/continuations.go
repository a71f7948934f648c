package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// continuations counts the answers that their replicas left unfinished.
type continuations struct {
	outcomes *prometheus.CounterVec
	gap      prometheus.Histogram
}

func newContinuations() continuations {
	c := continuations{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_continuations_total", Help: "Answers whose replica was lost while they came: gone on with by another one (ids, text), or broken off (failed)."}, []string{"outcome"}),
		gap: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_continuation_gap_seconds", Help: "Time between two pieces of an answer of which the second is another replica's.", Buckets: firstBuckets}),
	}
	for _, outcome := range []string{"ids", "text", "failed"} {
		c.outcomes.WithLabelValues(outcome)
	}
	return c
}

// Continued counts an answer that another replica went on with, by ids or text, after a gap.
func (m *Metrics) Continued(by string, gap time.Duration) {
	m.continued.outcomes.WithLabelValues(by).Inc()
	m.continued.gap.Observe(max(0, gap).Seconds())
}

// BrokeOff counts an answer that no other replica went on with.
func (m *Metrics) BrokeOff() { m.continued.outcomes.WithLabelValues("failed").Inc() }
