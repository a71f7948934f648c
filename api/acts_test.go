package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/scheduler"
)

// leading is a scheduler that notes what it is asked for.
type leading struct {
	*town
	asked []string
	no    error
}

func (l *leading) note(format string, args ...any) {
	l.asked = append(l.asked, fmt.Sprintf(format, args...))
}

func (l *leading) Obey(_ peer.ID, uid string, act scheduler.Act) (string, error) {
	l.note("%s %s", act, uid)
	return "it is seen to", l.no
}

func (l *leading) Act(_ context.Context, name string, act scheduler.Act) (scheduler.Acted, error) {
	l.note("%s %s", act, name)
	return scheduler.Acted{Leader: "a", Text: "it is seen to"}, l.no
}

func (l *leading) Plan(name string) (scheduler.PlanState, error) {
	l.note("plan %s", name)
	return scheduler.PlanState{Text: "it goes to den"}, l.no
}

func (l *leading) Set(name string, o scheduler.SetOptions) (scheduler.ModelState, []string, error) {
	text, _ := json.Marshal(o)
	l.note("set %s %s", name, text)
	return scheduler.ModelState{Name: name}, []string{"it is another"}, l.no
}

func newLeading(t *testing.T) (*Control, *leading) {
	c, w := newTown(t)
	l := &leading{town: w}
	c.Scheduler = l
	return c, l
}

// What is asked of a leader reaches it, and its answer whoever asked.
func TestActsReachTheLeader(t *testing.T) {
	c, l := newLeading(t)
	for _, act := range []string{"unload", "retry"} {
		a, no := post[scheduler.Acted](t, c, "/v0/model/"+act, `{"name":"m"}`)
		if no != nil || a.Text != "it is seen to" || a.Leader != "a" {
			t.Errorf("%s: %+v %v", act, a, no)
		}
	}
	p, no := post[scheduler.PlanState](t, c, "/v0/model/plan?name=a%20b", "")
	if no != nil || p.Text != "it goes to den" {
		t.Errorf("%+v %v", p, no)
	}
	if want := []string{"unload m", "retry m", "plan a b"}; !slices.Equal(l.asked, want) {
		t.Errorf("%q", l.asked)
	}
	l.no = scheduler.Errorf(scheduler.Parked, "it is parked")
	for path, body := range map[string]string{"/v0/model/unload": `{"name":"m"}`, "/v0/model/retry": `{"name":"m"}`, "/v0/model/plan?name=m": ""} {
		if _, no := post[any](t, c, path, body); no == nil || no.Why != "parked" || no.Message != "it is parked" {
			t.Errorf("%s: %v", path, no)
		}
	}
}

// Of another peer only an admin's machine may be more than somebody who waits.
func TestWhoMayAskLeaders(t *testing.T) {
	c, l := newLeading(t)
	for body, want := range map[string]string{
		`{"uid":"u","act":"want","weight":3}`: "", `{"uid":"u","act":"load"}`: "not_allowed", `{"uid":"u","act":"unload"}`: "not_allowed",
		`{"uid":"u","act":"restart"}`: "not_allowed", `{"uid":"u","act":"retry"}`: "not_allowed", `{"uid":"u","act":"dance"}`: "invalid_request", `{"uid":"u"}`: "invalid_request", `[]`: "invalid_request",
	} {
		_, no := askControl(t, c.PeerHandler(), "/act", body)
		if want == "" && no != nil || want != "" && (no == nil || no.Why != want) {
			t.Errorf("%s: %v, want %q", body, no, want)
		}
	}
	if !slices.Equal(l.asked, []string{"want u"}) {
		t.Errorf("obeyed: %q", l.asked)
	}
	l.no = scheduler.Errorf(scheduler.Superseded, "den leads it")
	if status, no := askControl(t, c.PeerHandler(), "/act", `{"uid":"u","act":"want"}`); status != http.StatusConflict || no == nil || no.Why != "superseded" {
		t.Errorf("%d %v", status, no)
	}
}

// A model is set to what can be, all of it checked first; the one peer that it may
// run on is named as peers are.
func TestWhatModelsCanBeSetTo(t *testing.T) {
	c, l := newLeading(t)
	for body, want := range map[string]string{
		`{"name":"m","min":-1}`: "0 to 64", `{"name":"m","max":65}`: "0 to 64", `{"name":"m","min":3,"max":2}`: "that cannot be",
		`{"name":"m","idle_unload_s":-1}`: "or 0 for never", `{"name":"m","idle_unload_s":9223372036854775807}`: "or 0 for never",
		`{"name":"m","pinned":true,"only":"nosuch"}`: `no peer "nosuch"`, `{"name":"m","only":"12D3KooW"}`: "could mean", `{"name":"m","colour":"red"}`: "colour",
	} {
		if _, no := post[ModelSetAnswer](t, c, "/v0/model/set", body); no == nil || !strings.Contains(no.Message, want) {
			t.Errorf("%s: %v", body, no)
		}
	}
	if len(l.asked) > 0 {
		t.Errorf("set: %q", l.asked)
	}
	for body, want := range map[string]string{
		`{"name":"m","only":"den"}`:                               `{"only":"` + townIDs[1] + `"}`,
		`{"name":"m","only":""}`:                                  `{"only":""}`,
		`{"name":"m","min":3,"max":0,"idle_unload_s":0}`:          `{"min":3,"max":0,"idle_unload_s":0}`,
		`{"name":"m","pinned":false,"only":"` + townIDs[2] + `"}`: `{"pinned":false,"only":"` + townIDs[2] + `"}`,
	} {
		l.asked = nil
		if a, no := post[ModelSetAnswer](t, c, "/v0/model/set", body); no != nil || len(a.Changed) != 1 || !slices.Equal(l.asked, []string{"set m " + want}) {
			t.Errorf("%s: %q %v", body, l.asked, no)
		}
	}
	l.no = scheduler.Errorf(scheduler.NotAllowed, "models are added on an admin's machine: %w", membership.ErrNotAllowed)
	if _, no := post[ModelSetAnswer](t, c, "/v0/model/set", `{"name":"m","min":1}`); no == nil || no.Why != "not_allowed" || no.Message != "models are changed on an admin's machine (relay peer ls shows which)" {
		t.Errorf("on a member's machine: %v", no)
	}
}

// Of a model that stays loaded it is said that it is never unloaded for being idle,
// when either is set.
func TestWhatHasNoEffect(t *testing.T) {
	yes, seconds := true, int64(60)
	both := scheduler.ModelState{Name: "m", Pinned: true, IdleUnload: 60}
	for _, c := range []struct {
		set  scheduler.SetOptions
		m    scheduler.ModelState
		want int
	}{
		{scheduler.SetOptions{Pinned: &yes}, both, 1},
		{scheduler.SetOptions{IdleUnload: &seconds}, both, 1},
		{scheduler.SetOptions{Min: new(int)}, both, 0},
		{scheduler.SetOptions{Pinned: &yes}, scheduler.ModelState{Name: "m", Pinned: true}, 0},
		{scheduler.SetOptions{IdleUnload: &seconds}, scheduler.ModelState{Name: "m", IdleUnload: 60}, 0},
	} {
		if got := (ModelSetRequest{"m", c.set}).withoutEffect(c.m); len(got) != c.want {
			t.Errorf("%+v of %+v: %q", c.set, c.m, got)
		}
	}
}

// far is another peer that answers each path with what a test says.
type far map[string]string

func (f far) RoundTrip(r *http.Request) (*http.Response, error) {
	body, ok := f[r.URL.Path]
	switch {
	case body == "none":
		return nil, errors.New("no answer")
	case !ok:
		return &http.Response{StatusCode: http.StatusNotFound, Status: "404 Not Found", Body: io.NopCloser(strings.NewReader("404 page not found\n"))}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

type farMesh struct {
	ControlMesh
	far
}

func (m farMesh) Control(peer.ID) http.RoundTripper { return m.far }

// What another peer says of its replicas is shown as far as it can be; who says
// nothing, or nonsense, did not answer.
func TestWorkloadsOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		far  far
		want string // In flight, waiting, last served, resident; "" where it did not answer.
	}{
		"all of it":        {far{"/workload": `[{"uid":"u","state":"ready","inflight":2,"waiting":1,"last_served_s":3.5,"resident_s":60,"colour":"red"}]`}, "2 1 3.5 60"},
		"never served":     {far{"/workload": `[{"uid":"u","inflight":0,"waiting":0}]`}, "0 0 ? ?"},
		"not that one":     {far{"/workload": `[{"uid":"other","inflight":7}]`}, "0 ? ? ?"},
		"none":             {far{"/workload": `[]`, "/load": `{"u":4}`}, "0 ? ? ?"},
		"an older release": {far{"/load": `{"u":4}`}, "4 ? ? ?"},
		"older, and idle":  {far{"/load": `{}`}, "0 ? ? ?"},
		"older still":      {far{}, ""},
		"silent":           {far{"/workload": "none", "/load": `{"u":4}`}, ""},
		"silent then":      {far{"/load": "none"}, ""},
		"no JSON":          {far{"/workload": "hello", "/load": `{"u":4}`}, ""},
		"fewer than none":  {far{"/workload": `[{"uid":"u","inflight":-1}]`}, ""},
		"too many":         {far{"/workload": `[{"uid":"u","waiting":2000000000}]`}, ""},
		"before it was":    {far{"/workload": `[{"uid":"u","resident_s":-3}]`}, ""},
		"before relay was": {far{"/workload": `[{"uid":"u","last_served_s":1e300}]`}, ""},
		"older, nonsense":  {far{"/load": `{"u":-4}`}, ""},
		"too long":         {far{"/workload": `[{"uid":"` + strings.Repeat("x", maxPeerAnswer) + `"}]`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			control := &Control{Mesh: farMesh{far: c.far}}
			answers := control.askWorkloads(t.Context(), []scheduler.PeerState{{ID: townIDs[1], State: "alive"}, {ID: townIDs[2], State: "gone"}})
			m := scheduler.ModelState{UID: "u", Replicas: []scheduler.ReplicaState{{Peer: townIDs[1]}, {Peer: townIDs[2]}}}
			fillIn(&m, answers)
			if got := workText(m.Replicas[1]); got != "? ? ? ?" {
				t.Errorf("of one that is gone: %s", got)
			}
			want := c.want
			if want == "" {
				want = "? ? ? ?"
			}
			if got := workText(m.Replicas[0]); got != want || len(answers) > 1 || (len(answers) == 1) != (c.want != "") {
				t.Errorf("%s, want %s; answered: %v", got, want, answers)
			}
		})
	}
}

func workText(r scheduler.ReplicaState) string {
	var parts []string
	for _, n := range []*int{r.InFlight, r.Waiting} {
		if n == nil {
			parts = append(parts, "?")
		} else {
			parts = append(parts, fmt.Sprint(*n))
		}
	}
	for _, n := range []*float64{r.LastServed, r.Resident} {
		if n == nil {
			parts = append(parts, "?")
		} else {
			parts = append(parts, fmt.Sprint(*n))
		}
	}
	return strings.Join(parts, " ")
}

// This peer says what its replicas do, to itself and to others.
func TestWorkloadOfThisOne(t *testing.T) {
	c, l := newLeading(t)
	resident := 12.5
	l.running = []scheduler.Workload{{UID: "u", State: "ready", InFlight: 2, Waiting: 1, Resident: &resident}}
	l.models = []scheduler.ModelState{{UID: "u", Name: "m", Replicas: []scheduler.ReplicaState{{Peer: townIDs[0], State: "ready"}, {Peer: townIDs[2], State: "ready"}}}}
	w := httptest.NewRecorder()
	c.PeerHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/workload", nil))
	if got, want := strings.TrimSpace(w.Body.String()), `[{"uid":"u","state":"ready","inflight":2,"waiting":1,"last_served_s":null,"resident_s":12.5}]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	l.town.running = nil
	w = httptest.NewRecorder()
	c.PeerHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/workload", nil))
	if got := strings.TrimSpace(w.Body.String()); got != "[]" {
		t.Error(got)
	}

	l.running = []scheduler.Workload{{UID: "u", InFlight: 2, Waiting: 1, Resident: &resident}}
	m, no := post[ModelShown](t, c, "/v0/model?name=m", "")
	if no != nil || workText(m.Replicas[0]) != "2 1 ? 12.5" || workText(m.Replicas[1]) != "? ? ? ?" || !slices.Equal(m.Unanswered, []string{townIDs[2]}) {
		t.Errorf("%+v %v", m, no)
	}
	p, no := post[PeerShown](t, c, "/v0/peer?name=attic", "")
	if no != nil || len(p.Runs) != 1 || workText(p.Runs[0].ReplicaState) != "2 1 ? 12.5" {
		t.Errorf("%+v %v", p.Runs, no)
	}
}

func (l *leading) Model(string) (scheduler.ModelState, error) { return l.models[0], nil }

// A mesh serves what it should while each model runs, or is asleep and can be woken.
func TestServingAsItShould(t *testing.T) {
	parked := func(ids ...string) (list []scheduler.ParkedState) {
		for _, id := range ids {
			list = append(list, scheduler.ParkedState{Peer: id})
		}
		return list
	}
	peers := []scheduler.PeerState{{ID: "a", State: "alive"}, {ID: "b", State: "draining"}, {ID: "c", State: "gone"}}
	ready := []scheduler.ReplicaState{{Peer: "a", State: "failed"}, {Peer: "b", State: "ready"}}
	for name, c := range map[string]struct {
		m    scheduler.ModelState
		want bool
	}{
		"ready":                     {scheduler.ModelState{Replicas: ready}, true},
		"ready, parked elsewhere":   {scheduler.ModelState{Replicas: ready, Parked: parked("a")}, true},
		"loading":                   {scheduler.ModelState{Replicas: []scheduler.ReplicaState{{State: "loading"}}}, false},
		"nowhere":                   {scheduler.ModelState{}, false},
		"asleep":                    {scheduler.ModelState{Asleep: true, Holders: []string{"a"}}, true},
		"asleep, held by nobody":    {scheduler.ModelState{Asleep: true}, false},
		"asleep, holder gone":       {scheduler.ModelState{Asleep: true, Holders: []string{"c", "out"}}, false},
		"asleep, only there":        {scheduler.ModelState{Asleep: true, Holders: []string{"a"}, Only: "b"}, true},
		"asleep, only on one gone":  {scheduler.ModelState{Asleep: true, Holders: []string{"a"}, Only: "c"}, false},
		"asleep, parked there":      {scheduler.ModelState{Asleep: true, Holders: []string{"a"}, Only: "b", Parked: parked("b")}, false},
		"asleep, parked on one":     {scheduler.ModelState{Asleep: true, Holders: []string{"a", "b"}, Parked: parked("a")}, true},
		"asleep, parked everywhere": {scheduler.ModelState{Asleep: true, Holders: []string{"a", "b"}, Parked: parked("a", "b")}, false},
		"parked everywhere":         {scheduler.ModelState{Holders: []string{"a"}, Parked: parked("a")}, false},
	} {
		if got := asItShould(c.m, peers); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Fewer replicas than were asked for are warned of, though the model serves.
func TestTooFewReplicas(t *testing.T) {
	m := scheduler.ModelState{Name: "m", Min: 2, Replicas: []scheduler.ReplicaState{{State: "ready"}, {State: "loading"}}}
	if got := tooFew(m); got != "1 of the 2 replicas of m that are wanted at least serve now (relay model plan m says why)" {
		t.Error(got)
	}
	for least, replicas := range map[int]int{0: 0, 1: 1, 2: 3} {
		m.Min, m.Replicas = least, slices.Repeat([]scheduler.ReplicaState{{State: "ready"}}, replicas)
		if got := tooFew(m); got != "" {
			t.Error(got)
		}
	}
}
