package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/p2p/keys"
	"relay/scheduler"
)

// queueing is a peer's scheduler whose replica is as busy as a test wants.
type queueing struct {
	Scheduler
	wants chan scheduler.Want
	serve func(ctx context.Context, want scheduler.Want) (scheduler.Load, error)
}

func (s queueing) Serve(ctx context.Context, want scheduler.Want) (scheduler.Lease, error) {
	s.wants <- want
	load, err := s.serve(ctx, want)
	if err != nil {
		return scheduler.Lease{Load: load}, err
	}
	lease, err := s.Scheduler.Serve(ctx, want)
	lease.Load = load
	return lease, err
}

// listening is an entrance's scheduler that hears how busy replicas are.
type listening struct {
	Scheduler
	heard chan scheduler.Load
}

func (s listening) Route(ctx context.Context, want scheduler.Want) (scheduler.Route, error) {
	rt, err := s.Scheduler.Route(ctx, want)
	rt.Heard = func(l scheduler.Load) { s.heard <- l }
	return rt, err
}

// batchKeys opens the door to one secret, of batch.
type batchKeys struct{ testKeys }

func (k batchKeys) Check(secret string) (keys.Grant, error) {
	g, err := k.testKeys.Check(secret)
	g.Batch = true
	return g, err
}

// busyPeer is an entrance, and a peer whose replica is as busy as serve says. wants gets
// what is asked of it, heard what the entrance hears.
func busyPeer(t *testing.T, serve func(context.Context, scheduler.Want) (scheduler.Load, error), change func(*DoorOptions)) (entrance *testPeer, wants chan scheduler.Want, heard chan scheduler.Load) {
	t.Helper()
	entrance, all := newMesh(t, []sim.Options{{Slots: 4}}, change)
	wants, heard = make(chan scheduler.Want, 100), make(chan scheduler.Load, 100)
	all[0].door.opt.Scheduler = queueing{all[0].door.opt.Scheduler, wants, serve}
	entrance.door.opt.Scheduler = listening{entrance.door.opt.Scheduler, heard}
	return entrance, wants, heard
}

// TestWhatIsAskedOfTheQueue: a peer that serves another's door queues a request as its own
// door would.
func TestWhatIsAskedOfTheQueue(t *testing.T) {
	load := scheduler.Load{Running: 2, Waiting: 7, Slots: 4}
	for _, batch := range []bool{false, true} {
		entrance, wants, heard := busyPeer(t, func(context.Context, scheduler.Want) (scheduler.Load, error) { return load, nil }, func(o *DoorOptions) {
			if batch {
				o.Keys = batchKeys{testKeys(testKey)}
			}
		})
		for _, tc := range []struct {
			path, body string
			want       scheduler.Want
		}{
			{"/v1/chat/completions", chatBody(testModel, true), scheduler.Want{}},
			{"/v1/chat/completions", `{"model":"tiny","n":3,"messages":[{"role":"user","content":"hello"}],"max_tokens":2}`, scheduler.Want{Answers: 3}},
			{"/v1/completions", `{"model":"tiny","prompt":["a","b"],"n":2,"max_tokens":2}`, scheduler.Want{Answers: 4}},
			{"/v1/tokenize", `{"model":"tiny","content":"hello"}`, scheduler.Want{Light: true}},
			{"/v1/detokenize", `{"model":"tiny","tokens":[300]}`, scheduler.Want{Light: true}},
		} {
			got := send(t, "POST", entrance.url+tc.path, tc.body)
			if got.status != 200 {
				t.Fatalf("%s: %v", tc.path, got)
			}
			tc.want.UID, tc.want.Key, tc.want.Batch = testUID, entrance.id+" testkey0", batch
			if want := <-wants; fmt.Sprint(want) != fmt.Sprint(tc.want) {
				t.Errorf("%s %s: %+v, want %+v", tc.path, tc.body, want, tc.want)
			}
			if l := <-heard; l != load {
				t.Errorf("%s: the entrance hears %+v", tc.path, l)
			}
		}
	}
}

// TestWhatAPeerMakesOfHeaders that no entrance of relay's sends.
func TestWhatAPeerMakesOfHeaders(t *testing.T) {
	for _, tc := range []struct {
		priority, answers string
		want              scheduler.Want
	}{
		{"", "", scheduler.Want{}},
		{"batch", "2", scheduler.Want{Batch: true, Answers: 2}},
		{"normal", "0", scheduler.Want{}},
		{"urgent", "-1", scheduler.Want{}},
		{"BATCH", "many", scheduler.Want{}},
		{"batch, normal", "99999999999999999999", scheduler.Want{}},
		{"", "1000000", scheduler.Want{Answers: 1000000}},
	} {
		h := http.Header{}
		h.Set(headerPriority, tc.priority)
		h.Set(headerAnswers, tc.answers)
		if got := wantOf(h, pathChat); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%q, %q: %+v", tc.priority, tc.answers, got)
		}
	}
	for text, want := range map[string]bool{"1": true, "": false, "0": false, "yes": false, "1, 1": false} {
		if got := wantOf(http.Header{headerContinues: {text}}, pathChat); got.Continues != want {
			t.Errorf("continues %q: %+v", text, got)
		}
	}
	for text, want := range map[string]scheduler.Load{
		"1 2 3": {Running: 1, Waiting: 2, Slots: 3}, "0 0 1": {Slots: 1},
		"": {}, "1 2": {}, "1 2 0": {}, "1 2 3 4": {}, "1 -2 3": {}, "a b c": {}, "1 99999999999 3": {}, strings.Repeat("1 ", 1000): {},
	} {
		h := http.Header{}
		h.Set(headerLoad, text)
		if got, ok := loadOf(h); got != want || ok != (want.Slots > 0) {
			t.Errorf("%.20q: %+v, %v", text, got, ok)
		}
	}
}

// TestABusyPeerIsHeard: a wait that is longer than the queue's time is 503 with the time
// after which to ask again, one that is longer than the door waits for a token 504.
func TestABusyPeerIsHeard(t *testing.T) {
	const waits = 60 * time.Millisecond
	full := scheduler.Load{Running: 4, Waiting: 1024, Slots: 4}
	queued := func(no *scheduler.Error) func(context.Context, scheduler.Want) (scheduler.Load, error) {
		return func(ctx context.Context, _ scheduler.Want) (scheduler.Load, error) {
			timer := time.NewTimer(waits)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return full, ctx.Err()
			}
			if no == nil {
				return full, nil
			}
			return full, no
		}
	}
	forEver := func(ctx context.Context, _ scheduler.Want) (scheduler.Load, error) {
		<-ctx.Done()
		return full, ctx.Err()
	}
	for _, tc := range []struct {
		about  string
		serve  func(context.Context, scheduler.Want) (scheduler.Load, error)
		status int
		after  string
		code   scheduler.Reason
	}{
		{"it waits and is served", queued(nil), 200, "", ""},
		{"it waits for too long", queued(&scheduler.Error{Why: scheduler.Busy, Retry: scheduler.RetryLater, RetryAfter: 17 * time.Second, Message: "it was busy"}), 503, "17", scheduler.Busy},
		{"the queue is full", queued(&scheduler.Error{Why: scheduler.Busy, Retry: scheduler.RetryElsewhere, RetryAfter: 45 * time.Second, Message: "it is full"}), 503, "45", scheduler.Busy},
		{"nobody can say when", queued(&scheduler.Error{Why: scheduler.Busy, Retry: scheduler.RetryLater, Message: "it was busy"}), 503, "2", scheduler.Busy},
		{"the door's own time is over first", forEver, 504, "", scheduler.Timeout},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", tc.about, stream), func(t *testing.T) {
				entrance, _, heard := busyPeer(t, tc.serve, func(o *DoorOptions) {
					o.Attempts = 1
					o.Deadlines.Retry = 50 * time.Millisecond
					if tc.status == 504 {
						o.Deadlines.FirstToken = 900 * time.Millisecond // From the sign that comes after half a second.
					}
				})
				began := time.Now()
				got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
				took := time.Since(began)
				a := readAnswer(t, got.body)
				if got.status != tc.status || got.header.Get("Retry-After") != tc.after || tc.code != "" && (a.err == nil || a.err.Code != string(tc.code)) {
					t.Errorf("%v, Retry-After %q", got, got.header.Get("Retry-After"))
				}
				if tc.status == 504 {
					return // Nobody has said how long it waited there.
				}
				if l := <-heard; l != full {
					t.Errorf("the entrance hears %+v", l)
				}
				waited, err := strconv.ParseFloat(got.header.Get(headerQueue), 64)
				if err != nil || waited < ms(waits) || waited > ms(took) {
					t.Errorf("x-relay-queue-ms: %q of %s", got.header.Get(headerQueue), took)
				}
			})
		}
	}
}

// TestWaitsAddUp over the replicas that a request waited at.
func TestWaitsAddUp(t *testing.T) {
	const waits = 40 * time.Millisecond
	entrance, all := newMesh(t, []sim.Options{{}, {}, {}}, nil)
	for i, p := range all {
		p.door.opt.Scheduler = queueing{p.door.opt.Scheduler, make(chan scheduler.Want, 10), func(context.Context, scheduler.Want) (scheduler.Load, error) {
			<-time.After(waits)
			if i < 2 {
				return scheduler.Load{}, &scheduler.Error{Why: scheduler.Busy, Retry: scheduler.RetryElsewhere, Message: "it is full"}
			}
			return scheduler.Load{}, nil
		}}
	}
	began := time.Now()
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, false))
	took := time.Since(began)
	waited, err := strconv.ParseFloat(got.header.Get(headerQueue), 64)
	if got.status != 200 || err != nil || waited < 3*ms(waits) || waited > ms(took) {
		t.Errorf("%v: x-relay-queue-ms %q of %s", got, got.header.Get(headerQueue), took)
	}
}

// TestWhoLeavesLeavesTheQueue of another peer at once.
func TestWhoLeavesLeavesTheQueue(t *testing.T) {
	left := make(chan struct{})
	entrance, wants, _ := busyPeer(t, func(ctx context.Context, _ scheduler.Want) (scheduler.Load, error) {
		<-ctx.Done()
		close(left)
		return scheduler.Load{}, ctx.Err()
	}, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, entrance.url+"/v1/chat/completions", strings.NewReader(chatBody(testModel, true)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testKey)
	over := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		over <- err
	}()
	<-wants
	leave()
	<-over
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("it waits on, ten seconds after its client has left")
	}
}

// TestWhatGoesOnSaysSo: the peer where an answer goes on knows that a part of it is there
// already, and the one where it began that there is none.
func TestWhatGoesOnSaysSo(t *testing.T) {
	bad := sim.Options{Faults: []sim.Fault{{Kind: sim.FaultError, After: 3, Times: 1}}}
	entrance, all := newMesh(t, []sim.Options{bad, bad}, nil)
	wants := make(chan scheduler.Want, 10)
	for _, p := range all {
		p.door.opt.Scheduler = queueing{p.door.opt.Scheduler, wants, func(context.Context, scheduler.Want) (scheduler.Load, error) { return scheduler.Load{Slots: 1}, nil }}
	}
	body := `{"model":"tiny","stream":true,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"ignore_eos":true}`
	if got := send(t, "POST", entrance.url+"/v1/chat/completions", body); !strings.Contains(got.body, ": relay continued ") {
		t.Fatalf("it did not go on: %v", got)
	}
	var continues []bool
	for len(wants) > 0 {
		if want := <-wants; !want.Light { // Of its template and tokens it asks as well.
			continues = append(continues, want.Continues)
		}
	}
	if len(continues) < 2 || continues[0] || slices.Contains(continues[1:], false) {
		t.Errorf("continues: %v", continues)
	}
}
