// Package metrics counts what a door does, and shows it with what this peer knows of
// its mesh in the form that Prometheus reads. Counting allocates nothing, and no label
// takes as many values as clients can make up: of models those beyond MostModels are
// "other", and keys are no label at all.
package metrics

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

const (
	// MostModels is how many models have series of their own; what comes later is
	// counted as Other.
	MostModels = 200
	// Other stands for what has no series of its own.
	Other = "other"
	// ContentType is that of Write's text.
	ContentType = "text/plain; version=0.0.4; charset=utf-8"
)

// Options are what metrics are made of; all may be left out.
type Options struct {
	// Version and Commit are those of the program.
	Version, Commit string
	// Mesh says what this peer knows of the mesh.
	Mesh func() Mesh
	// Lost says how many rows of the audit are missing: because the disk could not keep
	// up, and of requests that came without a key.
	Lost func() (overrun, flood uint64)
}

// Request is one request that a door has answered.
type Request struct {
	// Route is one of the door's routes by its name; empty is counted as Other.
	Route  string
	Status int
	// Model has what is counted by model; nil is a request that is about none.
	Model *Model
	// Overhead is the time that was neither spent by an engine nor waiting for one or for
	// the client,
	// Queue what passed before a replica took it, First until the first data, PerToken
	// between two tokens of the answer. The last three are left out where they are 0.
	Overhead, Queue, First, PerToken time.Duration
	// Prompt and Completion are tokens, Retries the attempts after the first.
	Prompt, Completion, Retries int
}

// Metrics are those of one peer. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	requests, tokens       *prometheus.CounterVec
	inFlight               *prometheus.GaugeVec
	first, perToken, queue *prometheus.HistogramVec
	overhead               prometheus.Histogram
	retries                prometheus.Counter
	continued              continuations

	none, other *Model // Of requests about no model, and of models without series.
	mu          sync.RWMutex
	models      map[string]*Model
}

// Model is what is counted of one model: its series, looked up once.
type Model struct {
	m                      *Metrics
	name                   string
	inFlight               prometheus.Gauge
	first, perToken, queue prometheus.Observer
	prompt, completion     prometheus.Counter

	mu       sync.RWMutex
	requests map[outcome]prometheus.Counter
}

// outcome is by what the requests for one model are told apart.
type outcome struct {
	route  string
	status int
}

// New makes metrics with a registry of their own.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), models: map[string]*Model{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_http_requests_total", Help: "Requests that this peer's door has answered, by status (499: the client left)."}, []string{"route", "model", "status"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_tokens_total", Help: "Tokens that clients of this door have sent (prompt) and were sent (completion)."}, []string{"model", "direction"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "relay_in_flight", Help: "Requests of this door that are under way."}, []string{"model"}),
		first:    histogram("relay_ttft_seconds", "Time from a request's coming to the first data of its answer.", firstBuckets),
		perToken: histogram("relay_tpot_seconds", "Time for each token after the first of an answer.", tokenBuckets),
		queue:    histogram("relay_queue_wait_seconds", "Time that a request waited until a replica took it.", firstBuckets),
		overhead: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_overhead_seconds", Help: "Time of a request that was neither spent by an engine nor waiting for one or for the client.", Buckets: overheadBuckets}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_retries_total", Help: "Attempts at a request after its first."}),
		continued: newContinuations(),
	}
	m.none = &Model{m: m, requests: map[outcome]prometheus.Counter{}} // It has no other series.
	m.other = m.newModel(Other)
	m.registry.MustRegister(m.requests, m.tokens, m.inFlight, m.first, m.perToken, m.queue, m.overhead, m.retries, m.continued.outcomes, m.continued.gap,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o.Version, o.Commit))
	if o.Lost != nil {
		m.registry.MustRegister(lost("disk", func() uint64 { n, _ := o.Lost(); return n }), lost("flood", func() uint64 { _, n := o.Lost(); return n }))
	}
	if o.Mesh != nil {
		m.registry.MustRegister(newMeshCollector(o.Mesh))
	}
	return m
}

// Bounds of buckets, in seconds.
var (
	firstBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	tokenBuckets    = []float64{.001, .0025, .005, .01, .02, .03, .05, .075, .1, .15, .25, .5, 1, 2.5}
	overheadBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
)

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"model"})
}

func buildInfo(version, commit string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "relay_build_info", Help: "The program that runs here; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit}}, func() float64 { return 1 })
}

func lost(cause string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "relay_audit_lost_total",
		Help:        "Rows that the audit lacks: the disk could not keep up, or too many requests came without a key.",
		ConstLabels: prometheus.Labels{"cause": cause}}, func() float64 { return float64(count()) })
}

// Model finds what is counted of a model that is registered in the mesh, by its name.
func (m *Metrics) Model(name string) *Model {
	m.mu.RLock()
	found := m.models[name]
	m.mu.RUnlock()
	if found != nil {
		return found
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.models[name] != nil:
	case len(m.models) >= MostModels || name == Other || name == "":
		return m.other
	default:
		m.models[name] = m.newModel(name)
	}
	return m.models[name]
}

// Unknown is for requests that named a model which there is none of.
func (m *Metrics) Unknown() *Model { return m.other }

// label makes a text fit for a label.
func label(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func (m *Metrics) newModel(name string) *Model {
	name = label(name)
	return &Model{
		m: m, name: name, requests: map[outcome]prometheus.Counter{},
		inFlight: m.inFlight.WithLabelValues(name),
		first:    m.first.WithLabelValues(name), perToken: m.perToken.WithLabelValues(name), queue: m.queue.WithLabelValues(name),
		prompt: m.tokens.WithLabelValues(name, "prompt"), completion: m.tokens.WithLabelValues(name, "completion"),
	}
}

// Begin counts a request as in flight, until End.
func (m *Model) Begin() { m.inFlight.Inc() }

// End is called once after Begin.
func (m *Model) End() { m.inFlight.Dec() }

// Observe counts a request that has been answered.
func (m *Metrics) Observe(r Request) {
	if r.Route == "" {
		r.Route = Other
	}
	if r.Status < 100 || r.Status > 599 {
		r.Status = 0
	}
	m.overhead.Observe(max(0, r.Overhead).Seconds())
	m.retries.Add(float64(max(0, r.Retries)))
	of := r.Model
	if of == nil {
		m.none.answered(outcome{r.Route, r.Status}).Inc()
		return
	}
	of.answered(outcome{r.Route, r.Status}).Inc()
	observe(of.queue, r.Queue)
	observe(of.first, r.First)
	observe(of.perToken, r.PerToken)
	of.prompt.Add(float64(max(0, r.Prompt)))
	of.completion.Add(float64(max(0, r.Completion)))
}

func observe(o prometheus.Observer, d time.Duration) {
	if d > 0 {
		o.Observe(d.Seconds())
	}
}

// answered is the counter of the requests with one outcome.
func (m *Model) answered(o outcome) prometheus.Counter {
	m.mu.RLock()
	c := m.requests[o]
	m.mu.RUnlock()
	if c == nil {
		c = m.m.requests.WithLabelValues(o.route, m.name, strconv.Itoa(o.status))
		m.mu.Lock()
		m.requests[o] = c
		m.mu.Unlock()
	}
	return c
}

// Write writes all metrics as text of ContentType.
func (m *Metrics) Write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}
