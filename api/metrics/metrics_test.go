package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

// full are metrics of which everything has a value.
func full() *Metrics {
	m := New(Options{
		Version: "1", Commit: "abc", Lost: func() (uint64, uint64) { return 1, 2 },
		Mesh: func() Mesh {
			return Mesh{
				Peers:    map[string]int{"alive": 2, "gone": 1},
				Links:    []Link{{"den", "direct", time.Millisecond}, {"attic", "none", 0}},
				Replicas: []Replica{{"qwen", "ready"}, {"qwen", "ready"}, {"qwen", "loading"}},
			}
		},
	})
	qwen := m.Model("qwen")
	qwen.Begin()
	m.Observe(request(qwen))
	return m
}

func request(of *Model) Request {
	return Request{Route: "/v1/chat/completions", Status: 200, Model: of, Overhead: time.Millisecond, Queue: time.Millisecond,
		First: 100 * time.Millisecond, PerToken: 10 * time.Millisecond, Prompt: 7, Completion: 5, Retries: 1}
}

// shown reads metrics as Prometheus does: every series with its value.
func shown(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	var text bytes.Buffer
	if err := m.Write(&text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for name, f := range families {
		for _, one := range f.Metric {
			var labels []string
			for _, l := range one.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := fmt.Sprintf("%s{%s}", name, strings.Join(labels, ","))
			switch {
			case one.Counter != nil:
				series[key] = one.Counter.GetValue()
			case one.Gauge != nil:
				series[key] = one.Gauge.GetValue()
			case one.Histogram != nil:
				series[key] = float64(one.Histogram.GetSampleCount())
			}
		}
	}
	return series
}

// Names and labels are what dashboards and alerts hold on to.
func TestNames(t *testing.T) {
	families, err := full().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "relay_") {
			continue // Of Go and of the operating system.
		}
		if !known(f.GetName()) {
			t.Errorf("%s would not be taken from another peer", f.GetName())
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		lines = append(lines, fmt.Sprintf("%s{%s} %s: %s\n", f.GetName(), strings.Join(labels, ","), strings.ToLower(f.GetType().String()), f.GetHelp()))
	}
	slices.Sort(lines)
	got, path := strings.Join(lines, ""), filepath.Join("testdata", "names.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the metrics are not what they were (-update if they should not be):\n%s", got)
	}
}

func TestValues(t *testing.T) {
	m := full()
	m.Observe(Request{Status: 404})
	m.Observe(Request{Route: "/v1/chat/completions", Status: 404, Model: m.Unknown(), Retries: -1})
	m.Continued("ids", time.Second)
	m.Continued("ids", -time.Second)
	m.BrokeOff()
	got := shown(t, m)
	for series, want := range map[string]float64{
		"relay_http_requests_total{model=qwen,route=/v1/chat/completions,status=200}":  1,
		"relay_http_requests_total{model=,route=other,status=404}":                     1,
		"relay_http_requests_total{model=other,route=/v1/chat/completions,status=404}": 1,
		"relay_in_flight{model=qwen}":                                                  1,
		"relay_tokens_total{direction=prompt,model=qwen}":                              7,
		"relay_tokens_total{direction=completion,model=qwen}":                          5,
		"relay_ttft_seconds{model=qwen}":                                               1,
		"relay_ttft_seconds{model=other}":                                              0, // Of one without an answer.
		"relay_tpot_seconds{model=qwen}":                                               1,
		"relay_queue_wait_seconds{model=qwen}":                                         1,
		"relay_overhead_seconds{}":                                                     3,
		"relay_retries_total{}":                                                        1,
		"relay_continuations_total{outcome=ids}":                                       2,
		"relay_continuations_total{outcome=text}":                                      0,
		"relay_continuations_total{outcome=failed}":                                    1,
		"relay_continuation_gap_seconds{}":                                             2,
		"relay_audit_lost_total{cause=disk}":                                           1,
		"relay_audit_lost_total{cause=flood}":                                          2,
		"relay_peers{state=alive}":                                                     2,
		"relay_link_up{peer=den,via=direct}":                                           1,
		"relay_link_up{peer=attic,via=none}":                                           0,
		"relay_link_rtt_seconds{peer=den,via=direct}":                                  0.001,
		"relay_replicas{model=qwen,state=ready}":                                       2,
		"relay_replicas{model=qwen,state=loading}":                                     1,
		"relay_build_info{commit=abc,version=1}":                                       1,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", series, value, ok, want)
		}
	}
	for _, absent := range []string{"relay_link_rtt_seconds{peer=attic,via=none}"} {
		if _, ok := got[absent]; ok {
			t.Errorf("there is %s", absent)
		}
	}
	if got["go_goroutines{}"] == 0 {
		t.Error("nothing is said of Go")
	}
}

// However many models there are, and whatever they are called, the series are bounded.
func TestModelsAreBounded(t *testing.T) {
	var replicas []Replica
	m := New(Options{Mesh: func() Mesh { return Mesh{Replicas: replicas} }})
	m.Model("\xff") // Names come from records of other peers.
	for i := range 3*MostModels - 1 {
		name := fmt.Sprintf("model-%d", i)
		m.Observe(request(m.Model(name)))
		replicas = append(replicas, Replica{name, "ready"})
	}
	m.Observe(request(m.Model(Other)))
	m.Observe(request(m.Model("")))
	replicas = append(replicas, Replica{"\xff", "ready"})
	got := shown(t, m)
	if n := got["relay_http_requests_total{model=other,route=/v1/chat/completions,status=200}"]; n != 2*MostModels+2 {
		t.Errorf("%v requests for others", n)
	}
	if n := got["relay_replicas{model=other,state=ready}"]; n != 2*MostModels {
		t.Errorf("%v replicas of others", n)
	}
	if len(got) > 20*MostModels {
		t.Errorf("%d series", len(got))
	}
	if m.Model("model-7") == m.other {
		t.Error("a model that had series has none any more")
	}
}

// What is counted for each request allocates nothing once a model is known.
func TestCountingAllocatesNothing(t *testing.T) {
	m := full()
	r := request(nil)
	if n := testing.AllocsPerRun(1000, func() {
		of := m.Model("qwen")
		of.Begin()
		r.Model = of
		m.Observe(r)
		of.End()
	}); n != 0 {
		t.Errorf("%v allocations for each request", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := full()
	r := request(m.Model("qwen"))
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(r)
	}
}
