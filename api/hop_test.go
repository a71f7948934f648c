package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
)

// heldScheduler has a forwarded request wait for its turn until it is let go.
type heldScheduler struct {
	Scheduler
	turn chan struct{}
}

func (s heldScheduler) Serve(ctx context.Context, want scheduler.Want) (scheduler.Lease, error) {
	select {
	case <-s.turn:
		return s.Scheduler.Serve(ctx, want)
	case <-ctx.Done():
		return scheduler.Lease{}, ctx.Err()
	}
}

// TestHopSaysThatItIsThere while the request waits for its turn, and with the answer how
// long it waited.
func TestHopSaysThatItIsThere(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared stream: %v", shared), func(t *testing.T) {
			const address = "/ip4/127.0.0.1/tcp/0"
			entrance, all := newMesh(t, []sim.Options{{}}, nil)
			serving := all[0]
			turn := make(chan struct{})
			serving.door.opt.Scheduler = heldScheduler{serving.door.opt.Scheduler, turn}
			hopOver(t, newHost(t, address), newHost(t, address), entrance, serving, shared)

			const waits = 100 * time.Millisecond
			said := 0
			asked := time.Now()
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				said = code
				time.AfterFunc(waits, func() { close(turn) })
				return nil
			}})
			r := onward(ctx, "/v1/chat/completions", payload{[]byte(chatBody(testUID, true))}, "req-1")
			r.Header.Set(headerModel, testUID)
			r.URL.Host = "there"
			resp, err := entrance.sched.hops[serving.id].RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			most := time.Since(asked)
			waited, err := strconv.ParseFloat(resp.Header.Get(headerQueue), 64)
			if said != http.StatusProcessing || resp.StatusCode != 200 || err != nil {
				t.Fatalf("interim %d, then %s, waited %q", said, resp.Status, resp.Header.Get(headerQueue))
			}
			if waited < ms(waits) || waited > ms(most) {
				t.Errorf("it says that it waited %.3f ms of %v", waited, most)
			}
		})
	}
}
