package api

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"relay/api/metrics"
	"relay/llama/sim"
	"relay/scheduler"
)

// throughHandler is a way to a peer that leads to its handler.
type throughHandler struct{ http.Handler }

func (h throughHandler) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to it")
}

// endless answers with more than anybody has of metrics.
type endless struct{}

func (endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(zeros{})}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A door shows its own metrics and those of the other peers, as Prometheus reads them.
func TestScrape(t *testing.T) {
	self, other, far, old, huge := testPeerID(t), testPeerID(t), testPeerID(t), testPeerID(t), testPeerID(t)
	build := func(version string) *metrics.Metrics { return metrics.New(metrics.Options{Version: version}) }
	otherControl := &Control{Metrics: build("other's"), Log: slog.New(slog.DiscardHandler)}
	ways := map[peer.ID]http.RoundTripper{
		other: throughHandler{otherControl.PeerHandler()}, far: unreachable{}, old: throughHandler{http.NotFoundHandler()}, huge: endless{},
	}
	p := newPeer(t, "a", sim.Options{}, func(o *DoorOptions) {
		o.Metrics = build("own")
		o.Scraped = Scraped{
			Peers: func() []scheduler.PeerState {
				list := []scheduler.PeerState{{ID: self.String(), Name: "self", Self: true}}
				for name, id := range map[string]peer.ID{"den": other, "far": far, "old": old, "huge": huge} {
					list = append(list, scheduler.PeerState{ID: id.String(), Name: name})
				}
				return list
			},
			Control: func(id peer.ID) http.RoundTripper { return ways[id] },
		}
	})
	if r := send(t, http.MethodGet, p.url+"/v1/models", ""); r.status != 200 {
		t.Fatal(r)
	}

	r := send(t, http.MethodGet, p.url+"/metrics/targets", "")
	var targets []struct {
		Targets []string
		Labels  map[string]string
	}
	if err := json.Unmarshal([]byte(r.body), &targets); err != nil || r.status != 200 || len(targets) != 5 || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
		t.Fatalf("%v: %v", r, err)
	}
	versions := map[string]bool{}
	for _, target := range targets { // As Prometheus does.
		if len(target.Targets) != 1 || "http://"+target.Targets[0] != p.url {
			t.Fatalf("%+v is not behind this door", target)
		}
		r := send(t, http.MethodGet, "http://"+target.Targets[0]+target.Labels["__metrics_path__"], "")
		switch name := target.Labels["relay_name"]; name {
		case "self", "den":
			parser := expfmt.NewTextParser(names.LegacyValidation)
			families, err := parser.TextToMetricFamilies(strings.NewReader(r.body))
			if err != nil || r.status != 200 || r.header.Get("Content-Type") != metrics.ContentType {
				t.Fatalf("%s: %d %v: %v", name, r.status, r.header, err)
			}
			for _, l := range families["relay_build_info"].Metric[0].Label {
				if l.GetName() == "version" {
					versions[name+" "+l.GetValue()] = true
				}
			}
			if name == "self" && len(families["relay_http_requests_total"].GetMetric()) < 2 { // Models and targets.
				t.Errorf("requests: %v", families["relay_http_requests_total"])
			}
		case "far":
			wantRefusal(t, r, 503, "peer_gone", "far cannot be reached")
		case "old":
			wantRefusal(t, r, 501, "not_yet", "older release")
		case "huge":
			wantRefusal(t, r, 502, "engine_failed", "more than the 8388608 bytes")
		}
	}
	if !versions["self own"] || !versions["den other's"] || len(versions) != 2 {
		t.Errorf("read %v", versions)
	}
	wantRefusal(t, send(t, http.MethodGet, p.url+"/metrics/peers/nobody", ""), 404, "not_found", "nobody")
	for _, path := range []string{"/metrics", "/metrics/targets", "/metrics/peers/" + self.String()} {
		wantRefusal(t, send(t, http.MethodGet, p.url+path, "", "Authorization", "Bearer rk-wrong"), 401, "invalid_api_key", "")
	}
}

func wantRefusal(t *testing.T, r received, status int, code, text string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, `"code":"`+code+`"`) || !strings.Contains(r.body, text) {
		t.Errorf("%v, want %d %s %q", r, status, code, text)
	}
}

func TestMeshFigures(t *testing.T) {
	rtt := 2.5
	m := MeshFigures([]scheduler.PeerState{
		{ID: "a", State: "alive", Self: true}, {ID: "b", State: "alive", Link: scheduler.LinkState{Path: "relay", RTTMS: &rtt}}, {ID: "c", State: "gone", Link: scheduler.LinkState{Path: "none"}},
	}, []scheduler.ModelState{{Name: "qwen", Replicas: []scheduler.ReplicaState{{State: "ready"}, {State: "dancing"}}}})
	if m.Peers["alive"] != 2 || m.Peers["gone"] != 1 || len(m.Links) != 2 || m.Links[0].Via != "relay" || m.Links[0].RTT.Seconds() != 0.0025 || m.Links[1].Via != "none" {
		t.Errorf("%+v", m)
	}
	if len(m.Replicas) != 2 || m.Replicas[0].State != "ready" || m.Replicas[1].State != "other" {
		t.Errorf("%+v", m.Replicas)
	}
}

// The metrics name all models: a key that is kept to some of them does not see them.
func TestMetricsAreNotForKeysOfSomeModels(t *testing.T) {
	p := newPeer(t, "a", sim.Options{}, func(o *DoorOptions) {
		o.Keys = grants{testKey: {ID: "k1", Name: "narrow", Models: []string{"tiny"}}, "wide": {ID: "k2", Name: "wide"}}
	})
	for _, path := range []string{"/metrics", "/metrics/targets", "/metrics/peers/nobody"} {
		wantRefusal(t, send(t, http.MethodGet, p.url+path, ""), 403, "not_allowed", "kept to some of them")
	}
	if r := send(t, http.MethodGet, p.url+"/metrics", "", "Authorization", "Bearer wide"); r.status != 200 {
		t.Error(r)
	}
}

// Of what a member says of its metrics only such come through.
func TestScrapeOfALiar(t *testing.T) {
	says := func(body string) (string, *refusal) {
		d := &Door{opt: DoorOptions{Scraped: Scraped{Control: func(peer.ID) http.RoundTripper { return spokesman{code: 200, body: body} }}}}
		text, no := d.scrape(t.Context(), scheduler.PeerState{ID: testPeerID(t).String(), Name: "den"})
		return string(text), no
	}
	if text, no := says("node_load1 1\nrelay_peers 1 5\n"); no != nil || text != "# TYPE relay_peers untyped\nrelay_peers 1\n" {
		t.Errorf("%q, %v", text, no)
	}
	for _, body := range []string{"<script>", strings.Repeat("relay_peers 1\n", metrics.MostLines+1)} {
		if text, no := says(body); no == nil || no.reason != scheduler.EngineFailed {
			t.Errorf("%.50q, %v", text, no)
		}
	}
}
