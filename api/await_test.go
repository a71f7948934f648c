package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay/scheduler"
)

// course is a scheduler in which one model goes through states as time passes.
type course struct {
	ControlScheduler
	began time.Time
	steps []step
	// ready is since when, after began, this peer's replica is there; negative for
	// before.
	ready time.Duration
	// den is suspect from a moment after began to another, and then gone unless it is
	// back.
	suspect, over time.Duration
	back          bool
	acted         []string
	no            error // Of every act until noLonger after began, where that is set.
	noLonger      time.Duration
}

// step is how the model is from a moment on, after began.
type step struct {
	after time.Duration
	model scheduler.ModelState
}

func (c *course) Model(string) (scheduler.ModelState, error) {
	now := c.steps[0].model
	for _, s := range c.steps {
		if time.Since(c.began) >= s.after {
			now = s.model
		}
	}
	if now.Name == "" {
		return now, scheduler.Errorf(scheduler.ModelNotFound, "it is gone")
	}
	now.Replicas = slices.DeleteFunc(slices.Clone(now.Replicas), func(r scheduler.ReplicaState) bool {
		return r.Peer == "d" && c.over > 0 && c.den() != "alive"
	})
	return now, nil
}

func (c *course) den() string {
	switch now := time.Since(c.began); {
	case now < c.suspect || c.back && now >= c.over:
		return "alive"
	case now < c.over:
		return "suspect"
	}
	return "gone"
}

func (c *course) Peers() []scheduler.PeerState {
	return []scheduler.PeerState{{ID: "a", Name: "attic", State: "alive", Self: true}, {ID: "d", Name: "den", State: c.den()}}
}

func (c *course) Workload() []scheduler.Workload {
	resident := (time.Since(c.began) - c.ready).Seconds()
	if resident < 0 {
		return nil
	}
	return []scheduler.Workload{{UID: "u", State: "ready", Resident: &resident}}
}

func (c *course) Act(_ context.Context, name string, act scheduler.Act) (scheduler.Acted, error) {
	c.acted = append(c.acted, fmt.Sprint(act, " ", name))
	m, _ := c.Model(name)
	if c.noLonger > 0 && time.Since(c.began) >= c.noLonger {
		return scheduler.Acted{Model: m, Text: "it is seen to"}, nil
	}
	return scheduler.Acted{Model: m, Text: "it is seen to"}, c.no
}

// model is one with such replicas: a peer, a state, and a stage or a reason.
func model(placed string, replicas ...string) scheduler.ModelState {
	m := scheduler.ModelState{UID: "u", Name: "m", Placed: placed}
	for _, text := range replicas {
		f := strings.Fields(text)
		r := scheduler.ReplicaState{Peer: f[0], State: f[1]}
		switch {
		case len(f) > 2 && r.State == scheduler.StateLoading:
			r.Stage, r.Done, r.Total = f[2], 5, 10
		case len(f) > 2 && f[2] == scheduler.StageStarting:
			r.Stage = f[2]
		case len(f) > 2:
			r.Reason, r.Message = f[2], "it said no"
		}
		m.Replicas = append(m.Replicas, r)
	}
	return m
}

// follow posts to a route and gives its lines, each shortened to what it is about,
// and how long that took.
func (c *course) follow(t *testing.T, path, body string) (lines []string, took time.Duration) {
	t.Helper()
	c.began = time.Now()
	control := &Control{Scheduler: c, Mesh: answering{status: 404}}
	w := httptest.NewRecorder()
	control.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	took = time.Since(c.began)
	for text := range strings.Lines(w.Body.String()) {
		var l Line[scheduler.Acted]
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		switch {
		case l.Progress != nil:
			lines = append(lines, fmt.Sprintf("%s %d/%d %s", l.Progress.Phase, l.Progress.Done, l.Progress.Total, l.Progress.Why))
		case l.Error != nil:
			lines = append(lines, l.Error.Why+": "+l.Error.Message)
		default:
			lines = append(lines, fmt.Sprintf("%s, %d replicas", l.Result.Text, len(l.Result.Model.Replicas)))
		}
	}
	return lines, took
}

// A load is followed until the model serves, or until nothing has been under way for
// long enough; what is said meanwhile is said once.
func TestLoadsAreFollowed(t *testing.T) {
	asleep := model("unloaded for another")
	asleep.Asleep = true
	final, later := model("it fits nowhere", "d draining"), model("it waits for attic", "d failed engine_failed")
	final.Final, final.Reason = true, "not_yet"
	later.Later, later.Reason, later.Bytes = true, "device_busy", 3<<30
	parked := model("it is parked on attic", "a failed engine_failed")
	parked.Parked = []scheduler.ParkedState{{Peer: "a", Text: "five times"}}
	const second = time.Second
	for name, c := range map[string]struct {
		steps         []step
		body          string
		want          []string
		within, least time.Duration
	}{
		"serves already": {[]step{{0, model("", "a ready")}}, `{"name":"m"}`, []string{"it is seen to, 1 replicas"}, 0, 0},
		"does not wait":  {[]step{{0, model("")}}, `{"name":"m","no_wait":true}`, []string{"it is seen to, 0 replicas"}, 0, 0},
		"fetched, started, ready": {
			[]step{{0, model("asleep")}, {4 * second, model("goes to attic", "a loading fetching")}, {20 * second, model("goes to attic", "a loading starting")}, {60 * second, model("", "a ready", "d loading")}},
			`{"name":"m"}`, []string{"wait 0/-1 it is seen to", "fetch 5/10 attic fetches its file", "start 0/-1 attic starts its engine", "it is seen to, 2 replicas"}, 61 * second, 60 * second},
		"nothing comes": {[]step{{0, model("no peer has the memory")}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it is seen to", "no_capacity: no peer has the memory"}, 6 * second, 5 * second},
		"nobody leads": {[]step{{0, model("")}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it is seen to", `model_loading: model "m": nobody has placed it yet`}, 6 * second, 5 * second},
		"fails on the way": {[]step{{0, model("goes to attic", "a loading starting")}, {10 * second, model("goes to attic", "a failed engine_failed")}}, `{"name":"m"}`,
			[]string{"start 0/-1 attic starts its engine", "wait 0/-1 it is seen to", `engine_failed: model "m" on attic: it said no`}, 16 * second, 15 * second},
		"comes, after a moment without anything": {[]step{{0, model("", "a loading starting")}, {60 * second, model("")}, {61 * second, model("", "a ready")}}, `{"name":"m"}`,
			[]string{"start 0/-1 attic starts its engine", "wait 0/-1 it is seen to", "it is seen to, 1 replicas"}, 62 * second, 61 * second},
		"fails, and comes after all": {[]step{{0, model("", "a failed engine_failed")}, {4 * second, model("", "a loading starting")}, {30 * second, model("", "a ready")}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it is seen to", "start 0/-1 attic starts its engine", "it is seen to, 1 replicas"}, 31 * second, 30 * second},
		"refused in words of another release": {[]step{{0, model("goes to den", "d refused colour")}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it is seen to", `no_capacity: model "m" on den: it said no`}, 6 * second, 5 * second},
		"never woken": {[]step{{0, asleep}}, `{"name":"m"}`, []string{"wait 0/-1 it is seen to", "no_capacity: unloaded for another"}, 21 * second, 20 * second},
		"waits for its turn": {[]step{{0, later}, {4 * time.Minute, model("goes to attic", "a loading starting")}, {5 * time.Minute, model("", "a ready")}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it waits for attic", "start 0/-1 attic starts its engine", "it is seen to, 1 replicas"}, 301 * second, 300 * second},
		"its turn never comes": {[]step{{0, later}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it waits for attic", `device_busy: it waits for attic`}, 361 * second, 360 * second},
		"for good": {[]step{{0, final}, {10 * second, func() scheduler.ModelState { m := final; m.Replicas = nil; return m }()}}, `{"name":"m"}`,
			[]string{"wait 0/-1 requests are still running on den", "wait 0/-1 it is seen to", "not_yet: it fits nowhere"}, 11 * second, 10 * second},
		"parked": {[]step{{0, parked}}, `{"name":"m"}`, []string{"wait 0/-1 it is seen to", "parked: it is parked on attic"}, 6 * second, 5 * second},
		"removed meanwhile": {[]step{{0, model("")}, {second, scheduler.ModelState{}}}, `{"name":"m"}`,
			[]string{"wait 0/-1 it is seen to", "model_not_found: it is gone"}, 2 * second, second},
		"not there":    {[]step{{0, scheduler.ModelState{}}}, `{"name":"m"}`, []string{"model_not_found: it is gone"}, 0, 0},
		"wrong wishes": {[]step{{0, model("")}}, `{"name":"m","colour":"red"}`, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &course{steps: c.steps}
				lines, took := s.follow(t, "/v0/model/load", c.body)
				if c.want == nil {
					if len(lines) != 1 || !strings.HasPrefix(lines[0], "invalid_request") || len(s.acted) > 0 {
						t.Errorf("%q, %q", lines, s.acted)
					}
					return
				}
				if !slices.Equal(lines, c.want) || took < c.least || took > c.within {
					t.Errorf("after %s:\n%s", took, strings.Join(lines, "\n"))
				}
			})
		})
	}
	for _, c := range []struct {
		body        string
		after, took time.Duration
		want        string
	}{
		{`{"name":"m"}`, 5 * second, 5 * second, "it is seen to, 1 replicas"},
		{`{"name":"m"}`, 0, leaderless, "superseded: den leads it"},
		{`{"name":"m","no_wait":true}`, 5 * second, 0, "superseded: den leads it"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &course{steps: []step{{0, model("", "a ready")}}, no: scheduler.Errorf(scheduler.Superseded, "den leads it"), noLonger: c.after}
			if lines, took := s.follow(t, "/v0/model/load", c.body); lines[len(lines)-1] != c.want || len(lines) > 2 || took != c.took {
				t.Errorf("after %s: %q", took, lines)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &course{steps: []step{{0, model("")}}, no: scheduler.Errorf(scheduler.NotAllowed, "not you")}
		if lines, took := s.follow(t, "/v0/model/load", `{"name":"m"}`); !slices.Equal(lines, []string{"not_allowed: not you"}) || took > 0 {
			t.Errorf("after %s: %q", took, lines)
		}
	})
}

// Of a restart every replica that served is a new one in the end; one that is there
// since before is not taken for that, whatever else happens.
func TestRestartsAreFollowed(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		steps         []step
		ready         time.Duration
		want          []string
		within, least time.Duration
	}{
		"one after another": {[]step{{0, model("", "a ready", "d ready")}, {2 * second, model("", "a loading starting", "d ready")}, {9 * second, model("", "a ready", "d ready")},
			{12 * second, model("", "a ready", "d draining")}, {20 * second, model("", "a ready", "d ready")}}, 9 * second,
			[]string{"wait 0/-1 it is seen to", "start 0/-1 attic starts its engine", "wait 0/-1 it is seen to", "wait 0/-1 requests are still running on den", "it is seen to, 2 replicas"}, 21 * second, 20 * second},
		"too quick to be seen": {[]step{{0, model("", "a ready")}}, 3100 * time.Millisecond, []string{"wait 0/-1 it is seen to", "it is seen to, 1 replicas"}, 4 * second, 3 * second},
		"moved":                {[]step{{0, model("", "a ready")}, {5 * second, model("", "a ready", "d loading")}, {8 * second, model("", "d ready")}}, -second, []string{"wait 0/-1 it is seen to", "start 0/-1 den starts its engine", "wait 0/-1 it is seen to", "it is seen to, 1 replicas"}, 9 * second, 8 * second},
		"late, with a gap":     {[]step{{0, model("", "a ready")}, {20 * second, model("")}, {24 * second, model("", "a loading starting")}, {30 * second, model("", "a ready")}}, -second, []string{"wait 0/-1 it is seen to", "start 0/-1 attic starts its engine", "it is seen to; there was a gap, in which requests waited, 1 replicas"}, 31 * second, 30 * second},
		"did not run":          {[]step{{0, model("asleep")}}, 0, []string{"it is seen to, 0 replicas"}, 0, 0},
		"does not happen":      {[]step{{0, model("", "a ready", "d ready")}}, -time.Hour, []string{"wait 0/-1 it is seen to", `timeout: model "m" is not restarted on attic, den: nothing has happened for 30s, and what ran there still serves`}, 31 * second, 30 * second},
		"does not come back": {[]step{{0, model("", "a ready")}, {second, model("goes to attic", "a failed engine_failed")}}, -time.Hour,
			[]string{"wait 0/-1 it is seen to", `engine_failed: model "m" on attic: it said no`}, 7 * second, 5 * second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &course{steps: c.steps, ready: c.ready}
				lines, took := s.follow(t, "/v0/model/restart", `{"name":"m"}`)
				if !slices.Equal(lines, c.want) || took < c.least || took > c.within {
					t.Errorf("after %s:\n%s", took, strings.Join(lines, "\n"))
				}
			})
		})
	}
}

// While an engine starts beside the one that it replaces, for as long as that may
// take, the replica serves, and is neither restarted nor given up. That it failed is
// said at once.
func TestRestartsBesideTheOldEngine(t *testing.T) {
	const second = time.Second
	old, both, not := "a ready", "a ready starting", "a ready engine_failed"
	for name, c := range map[string]struct {
		course
		want  []string // The last lines.
		after time.Duration
	}{
		"takes long": {course{steps: []step{{0, model("", old)}, {second, model("", both)}, {200 * second, model("", old)}}, ready: 200 * second},
			[]string{"start 0/-1 attic starts a new engine beside the old one", "it is seen to, 1 replicas"}, 200 * second},
		"takes too long": {course{steps: []step{{0, model("", old)}, {second, model("", both)}}, ready: -time.Hour},
			[]string{"start 0/-1 attic starts a new engine beside the old one", `timeout: model "m" is not restarted on attic: nothing has happened for 5m30s, and what ran there still serves`}, 331 * second},
		"fails": {course{steps: []step{{0, model("", old, "d ready")}, {second, model("", both, "d ready")}, {50 * second, model("", not, "d loading starting")}}, ready: -time.Hour},
			[]string{"start 0/-1 attic starts a new engine beside the old one", `engine_failed: model "m" on attic: it said no`}, 50 * second},
		"fails at once": {course{steps: []step{{0, model("", old)}, {second, model("", not)}}, ready: -time.Hour},
			[]string{"wait 0/-1 it is seen to", `engine_failed: model "m" on attic: it said no`}, second},
		"had failed before": {course{steps: []step{{0, model("", not)}, {10 * second, model("", both)}, {60 * second, model("", old)}}, ready: 60 * second},
			[]string{"start 0/-1 attic starts a new engine beside the old one", "it is seen to, 1 replicas"}, 60 * second},
		"fails as it did before": {course{steps: []step{{0, model("", not)}, {10 * second, model("", both)}, {60 * second, model("", not)}}, ready: -time.Hour},
			[]string{"start 0/-1 attic starts a new engine beside the old one", `engine_failed: model "m" on attic: it said no`}, 60 * second},
		"fails as it did before, at once": {course{steps: []step{{0, model("", not)}}, ready: -time.Hour},
			[]string{"wait 0/-1 it is seen to", `engine_failed: model "m" on attic: it said no`}, 30 * second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.checkRestart(t, c.want, c.after) })
		})
	}
}

// checkRestart restarts the model, and looks at the last lines and after how long
// they came, a look or two later at most.
func (c *course) checkRestart(t *testing.T, last []string, after time.Duration) {
	lines, took := c.follow(t, "/v0/model/restart", `{"name":"m"}`)
	if !slices.Equal(lines[max(0, len(lines)-len(last)):], last) || took < after || took > after+2*lookEvery {
		t.Errorf("after %s:\n%s", took, strings.Join(lines, "\n"))
	}
}

// A replica whose peer is not heard of for a moment is still to be restarted; one
// whose peer is gone is not, nor one that is placed there no more.
func TestRestartsOfThoseNotHeardOf(t *testing.T) {
	const second = time.Second
	ready := model("", "a ready", "d ready")
	done := []string{"it is seen to, 2 replicas"}
	for name, c := range map[string]struct {
		course
		want  []string
		after time.Duration
	}{
		"back before its turn": {course{steps: []step{{0, ready}, {12 * second, model("", "a ready", "d loading")}, {20 * second, ready}}, ready: 5 * second,
			suspect: 2 * second, over: 8 * second, back: true}, done, 20 * second},
		"back, and not restarted": {course{steps: []step{{0, ready}}, ready: 5 * second, suspect: 2 * second, over: 8 * second, back: true},
			[]string{`timeout: model "m" is not restarted on den: nothing has happened for 30s, and what ran there still serves`}, 38 * second},
		"gone":             {course{steps: []step{{0, ready}}, ready: 5 * second, suspect: 2 * second, over: 8 * second}, []string{"it is seen to, 1 replicas"}, 8 * second},
		"placed elsewhere": {course{steps: []step{{0, ready}, {9 * second, model("", "a ready")}}, ready: 5 * second, back: true}, []string{"it is seen to, 1 replicas"}, 9 * second},
		"does not come back": {course{steps: []step{{0, ready}, {6 * second, model("", "a ready", "d loading starting")}, {9 * second, model("", "a ready", "d failed engine_failed")}}, ready: 5 * second, back: true},
			[]string{"start 0/-1 den starts its engine", "wait 0/-1 it is seen to", `engine_failed: model "m" on den: it said no`}, 14 * second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.checkRestart(t, c.want, c.after) })
		})
	}
}

// What is asked of a model's leader is asked of the model that was looked up, also
// where its name is another's by then.
func TestActsAreAboutTheModelLookedUp(t *testing.T) {
	for _, c := range []struct {
		path, body string
		noLonger   time.Duration
		want       []string
	}{
		{"/v0/model/load", `{"name":"m","no_wait":true}`, 0, []string{"load u"}},
		{"/v0/model/restart", `{"name":"m"}`, 2 * time.Second, []string{"restart u", "restart u", "restart u"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &course{steps: []step{{0, model("", "a ready")}}, ready: 3 * time.Second, noLonger: c.noLonger}
			if c.noLonger > 0 {
				s.no = scheduler.Errorf(scheduler.Superseded, "den leads it")
			}
			if lines, _ := s.follow(t, c.path, c.body); !slices.Equal(s.acted, c.want) {
				t.Errorf("%q: %q", s.acted, lines)
			}
		})
	}
}

// Nobody is waited for who does not wait any more.
func TestWaitingEndsWithWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &course{began: time.Now(), steps: []step{{0, model("", "a loading starting")}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := (&Control{Scheduler: s}).await(ctx, "u", "", served{}, func(ProgressLine) {}); err != context.DeadlineExceeded || time.Since(s.began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(s.began), err)
		}
	})
}
