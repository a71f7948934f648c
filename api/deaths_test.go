package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"relay/llama/sim"
	"relay/scheduler"
)

// TestEnginesThatEndOverARequest: a request that two engines ended over is given to no
// third, not of a fallback's either, and its client does not send it again by itself.
func TestEnginesThatEndOverARequest(t *testing.T) {
	for _, kind := range []string{"drop", "die"} {
		f, err := sim.ParseFault(kind)
		if err != nil {
			t.Fatal(err)
		}
		ends := sim.Options{Faults: []sim.Fault{f}}
		for _, stream := range []bool{true, false} {
			entrance, serving := newMesh(t, []sim.Options{ends, ends, {}}, nil)
			entrance.sched.models[0].Fallback = "spare"
			entrance.sched.models = append(entrance.sched.models, scheduler.ServedModel{UID: "u2", Name: "spare"})
			got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
			a := readAnswer(t, got.body)
			if got.status != 502 || a.err == nil || a.err.Code != "engine_failed" || got.header.Get(headerShouldRetry) != "false" || got.header.Get(headerAttempts) != "2" {
				t.Errorf("%s: %v", kind, got)
			}
			for i, want := range []int{1, 1, 0} {
				if n := serving[i].engine.State().Requests; n != want {
					t.Errorf("%s: engine %d was asked %d times", kind, i, n)
				}
			}
		}
	}
}

// TestAFallbackIsTheOneMore: where one engine ended over a request and there is no other,
// the fallback's is asked, and it is the last.
func TestAFallbackIsTheOneMore(t *testing.T) {
	for _, c := range []struct {
		fault  string
		status int
	}{{"drop*1", 200}, {"drop", 502}} {
		f, err := sim.ParseFault(c.fault)
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(t, "one", sim.Options{Faults: []sim.Fault{f}}, func(o *DoorOptions) { o.Attempts = 1 })
		p.sched.models = append(kindsOfModels(), scheduler.ServedModel{UID: "u2", Name: "spare", Kind: kindChat})
		p.sched.models[0].Fallback = "spare"
		got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, false))
		if got.status != c.status || p.engine.State().Requests != 2 || c.status == 502 && got.header.Get(headerShouldRetry) != "false" {
			t.Errorf("%s: %d requests, %v", c.fault, p.engine.State().Requests, got)
		}
	}
}

// TestPeersThatAreGoneAreNoDeaths: a request outlives more of them than it has attempts,
// before its answer begins and while nobody goes on with it.
func TestPeersThatAreGoneAreNoDeaths(t *testing.T) {
	for _, first := range []sim.Options{{}, {Faults: []sim.Fault{{Kind: sim.FaultDie, After: 4}}}} {
		for _, stream := range []bool{true, false} {
			entrance, serving := newMesh(t, []sim.Options{first, {}, {}, {}, {}, {}}, nil)
			for i := range 5 {
				if i > 0 || len(first.Faults) == 0 {
					serving[i].stopHop()
				}
			}
			got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
			if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || a.err != nil || serving[5].engine.State().Finished == 0 {
				t.Error(got)
			}
		}
	}
}

// TestEnginesThatEndedBefore: one that is not there any more when it is asked did not end
// over this request, wherever it is.
func TestEnginesThatEndedBefore(t *testing.T) {
	gone := roundTripFunc(func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("asking: %w", &net.OpError{Op: "dial", Net: "unix", Err: errors.New("connection refused")})
	})
	entrance, serving := newMesh(t, []sim.Options{{}, {}, {}}, nil)
	serving[0].client, serving[1].client = gone, gone
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || got.header.Get(headerAttempts) != "3" {
		t.Error(got)
	}
	reset := &net.OpError{Op: "read", Net: "unix", Err: errors.New("connection reset by peer")}
	for _, c := range []struct {
		err    error
		counts bool
	}{{reset, true}, {&net.OpError{Op: "dial", Err: errors.New("no")}, false}} {
		a := &attempt{route: scheduler.Route{Local: true}, call: &call{}, request: &request{}}
		if no := a.broken(context.Background(), c.err, nil); no.died != c.counts || no.reason != scheduler.EngineFailed {
			t.Errorf("%v: %+v", c.err, no)
		}
	}
}

// TestDeathsAreToldBetweenPeers: an older peer tells none.
func TestDeathsAreToldBetweenPeers(t *testing.T) {
	no := refuse(scheduler.EngineFailed, "the engine did not answer")
	no.died = true
	if told := parseHopRefusal(encodeJSON(no.hop()), "peer x"); !told.died {
		t.Errorf("%+v", told)
	}
	for _, said := range []string{`{"reason":"engine_failed","message":"m","retry":"elsewhere"}`, `{"reason":"busy","message":"m","died":true}`} {
		if told := parseHopRefusal([]byte(said), "peer x"); told.died {
			t.Errorf("%s: %+v", said, told)
		}
	}
	if strings.Contains(string(encodeJSON(refuse(scheduler.Busy, "m").hop())), "died") {
		t.Error("it is told where there was none")
	}
}
