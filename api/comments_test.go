package api

import (
	"io"
	"net/http"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
)

// breaking fails as often as it is told to, each time after a wait, and then passes on.
type breaking struct {
	http.RoundTripper
	left int
	wait time.Duration
}

func (b *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.left == 0 {
		return b.RoundTripper.RoundTrip(r)
	}
	b.left--
	select {
	case <-time.After(b.wait):
	case <-r.Context().Done():
	}
	return nil, io.ErrUnexpectedEOF
}

// TestNoFallbackAfterAComment: once the headers are gone they cannot say that another model
// answers, so none does.
func TestNoFallbackAfterAComment(t *testing.T) {
	for name, tc := range map[string]struct {
		keepAlive time.Duration
		served    string
	}{"before": {time.Hour, "spare"}, "after": {5 * time.Millisecond, ""}} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.Attempts, o.Deadlines.KeepAlive = 1, tc.keepAlive })
			p.sched.models = append(p.sched.models, scheduler.ServedModel{UID: "u2", Name: "spare", Context: 4096})
			p.sched.models[0].Fallback = "spare"
			p.client = &breaking{RoundTripper: p.client, left: 1, wait: 50 * time.Millisecond}
			got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
			a := readAnswer(t, got.body)
			if served := got.header.Get(headerServed); served != tc.served {
				t.Errorf("the header says %q", served)
			}
			if answered := len(a.models) > 0; answered != (tc.served == "spare") || answered == (a.err != nil) {
				t.Errorf("answered by %v, error %v", a.models, a.err)
			}
		})
	}
}
