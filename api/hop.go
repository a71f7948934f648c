package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"relay/p2p/keys"
	"relay/scheduler"
)

const (
	// headerPriority is "batch" on a forwarded request that gives way to others. Any other
	// word says as little as none, as a key's own does: one that does not is free to say
	// nothing.
	headerPriority = "X-Relay-Priority"
	// headerAnswers is how many of the engine's slots it takes, where that is more than one.
	headerAnswers = "X-Relay-Answers"
	// headerContinues is "1" where a part of the answer is there already.
	headerContinues = "X-Relay-Continues"
	// headerQueue says, on a hop's answer, for how many milliseconds the request
	// waited at the peer that answers before it was handed to the engine or refused.
	headerQueue = "X-Relay-Queue-Ms"
	// headerLoad says there how busy the replica was then, this request included: slots
	// that are taken, requests that wait, slots.
	headerLoad = "X-Relay-Load"
)

// wants is what a request of this call wants of a replica, as far as it is queued by that.
func (c *call) wants(q *request) scheduler.Want {
	return scheduler.Want{Answers: q.choices(), Light: light(q.path), Key: c.keyID, Batch: c.grant.Batch}
}

// light says of a route of the engine's that it only reads or writes tokens.
func light(path string) bool {
	return path == pathTokenize || path == pathDetokenize || path == pathTemplate
}

// putWant puts into a forwarded request's headers what its path does not say of it.
func putWant(h http.Header, want scheduler.Want) {
	h.Set(headerModel, want.UID)
	h.Set(headerKey, want.Key)
	if want.Batch {
		h.Set(headerPriority, string(keys.Batch))
	}
	if want.Answers > 1 {
		h.Set(headerAnswers, strconv.Itoa(want.Answers))
	}
	if want.Continues {
		h.Set(headerContinues, "1")
	}
}

// wantOf reads a forwarded request for a route of the engine's. What it does not understand
// is as if it was not there.
func wantOf(h http.Header, path string) scheduler.Want {
	want := scheduler.Want{
		UID: h.Get(headerModel), Light: light(path), Key: clip(h.Get(headerKey), 64), Batch: h.Get(headerPriority) == string(keys.Batch),
		Continues: h.Get(headerContinues) == "1",
	}
	if n, err := strconv.Atoi(h.Get(headerAnswers)); err == nil && n > 0 {
		want.Answers = n
	}
	return want
}

// busyHere says how busy this peer's replica is, where there is one.
func busyHere(h http.Header, l scheduler.Load) {
	if l.Slots > 0 {
		h.Set(headerLoad, fmt.Sprintf("%d %d %d", l.Running, l.Waiting, l.Slots))
	}
}

// loadOf reads what another peer says of that.
func loadOf(h http.Header) (l scheduler.Load, ok bool) {
	words := strings.Fields(clip(h.Get(headerLoad), 40))
	if len(words) != 3 {
		return l, false
	}
	for i, n := range []*int{&l.Running, &l.Waiting, &l.Slots} {
		var err error
		if *n, err = strconv.Atoi(words[i]); err != nil || *n < 0 || *n > maxCounted {
			return scheduler.Load{}, false
		}
	}
	if l.Slots == 0 {
		return scheduler.Load{}, false
	}
	return l, true
}

// heard takes from the answer of another peer how long the request waited there, and how
// busy its replica is.
func (a *attempt) heard(h http.Header) {
	if queued, err := strconv.ParseFloat(h.Get(headerQueue), 64); err == nil && queued >= 0 && queued < 1e9 {
		a.call.queue += time.Duration(queued * float64(time.Millisecond))
	}
	if l, ok := loadOf(h); ok && a.route.Heard != nil {
		a.route.Heard(l)
	}
}

// waitedHere puts it there.
func (c *call) waitedHere(h http.Header) {
	h.Set(headerQueue, strconv.FormatFloat(ms(c.routed), 'f', -1, 64))
}

const (
	// signAfter is after how long without an answer the entrance is told that somebody
	// is there: how long the engine may take is another question, with another deadline.
	signAfter = 500 * time.Millisecond
	// quickBody is how large a body may be, in bytes, that is there soon. For a larger
	// one the entrance is told before it is read.
	quickBody = 64 << 10
)

// sign tells the entrance, once, that this peer is there.
type sign struct {
	mu    sync.Mutex
	over  bool
	timer *time.Timer
}

// newSign begins the time after which w gets an interim 102. Nobody may touch w until
// stop.
func newSign(w http.ResponseWriter) *sign {
	s := &sign{}
	s.timer = time.AfterFunc(signAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over {
			w.WriteHeader(http.StatusProcessing)
		}
	})
	return s
}

// stop waits for a sign that is under way. It may be called twice.
func (s *sign) stop() {
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// hopRefusal is how a peer's door tells another's why it does not serve.
type hopRefusal struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Retry   string `json:"retry"`
	// RetryAfter is in seconds; 0 means that there is no hint.
	RetryAfter int `json:"retry_after,omitempty"`
	// Died says that the engine was asked and ended over that.
	Died bool `json:"died,omitempty"`
}

func (r *refusal) hop() hopRefusal {
	v := r.verdict()
	return hopRefusal{Reason: string(r.reason), Message: r.message, Retry: string(v.retry), RetryAfter: int((v.after + time.Second - 1) / time.Second), Died: r.died}
}

// parseHopRefusal reads another peer's refusal; what it does not understand
// becomes a failure there.
func parseHopRefusal(b []byte, who string) *refusal {
	var h hopRefusal
	if err := json.Unmarshal(b, &h); err != nil || !slices.Contains(scheduler.Reasons(), scheduler.Reason(h.Reason)) {
		no := refuse(scheduler.EngineFailed, "%s refused in words that this version does not know", who)
		no.cause = fmt.Errorf("hop refusal of %d bytes, reason %.60q: %w", len(b), h.Reason, err)
		return no
	}
	no := refuse(scheduler.Reason(h.Reason), "%s", clip(h.Message, 2000))
	switch retry := scheduler.Retry(h.Retry); retry {
	case scheduler.RetryElsewhere, scheduler.RetryLater, scheduler.RetryNever:
		no.retry = retry
	}
	no.died = h.Died && no.reason == scheduler.EngineFailed
	if h.RetryAfter > 0 && h.RetryAfter < 1<<20 {
		no.after = time.Duration(h.RetryAfter) * time.Second
	}
	return no
}

func readHopRefusal(resp *http.Response, who string) *refusal {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	no := parseHopRefusal(b, who)
	if err != nil {
		no.cause = err
	}
	return no
}

// HopHandler serves what other peers' doors forward. It must only be reachable
// by members: the peer that asks is taken from DoorOptions.HopPeer. What comes
// here is never forwarded again. A request that is taken is answered with an interim
// 102 where the answer does not come at once.
func (d *Door) HopHandler() http.Handler {
	return d.calls("hop", d.hop)
}

func (d *Door) hop(w http.ResponseWriter, r *http.Request, c *call) {
	c.from = d.opt.HopPeer(r.Context())
	c.peer = "" // this one
	name, rt, ok := d.lookup(r.URL.Path)
	want := wantOf(r.Header, name)
	c.keyID, c.model, c.route = want.Key, clip(want.UID, 128), name
	switch marks := r.Header.Values(headerHop); {
	case c.from == "":
		d.refuseHop(w, c, refuse(scheduler.NotMember, "only members of the mesh may forward requests here"))
		return
	case !slices.Equal(marks, []string{"1"}):
		d.refuseHop(w, c, refuse(scheduler.HopRefused, "a request is forwarded once, from its entrance to the peer that serves; this one was forwarded %d times", len(marks)))
		return
	case !ok || rt.method != http.MethodPost:
		d.refuseHop(w, c, refuse(scheduler.RouteNotFound, "%s is not forwarded between peers", clip(r.URL.Path, 100)))
		return
	case r.Method != rt.method:
		d.refuseHop(w, c, refuse(scheduler.MethodNotAllowed, "%s takes %s, not %s", name, rt.method, clip(r.Method, 20)))
		return
	case want.UID == "":
		d.refuseHop(w, c, invalid("", "the forwarded request does not say which model it is for"))
		return
	}
	if r.ContentLength < 0 || r.ContentLength > quickBody {
		w.WriteHeader(http.StatusProcessing)
	}
	buf, no := d.readBody(w, r)
	defer buf.drop()
	if no != nil {
		if no.cause != nil && r.Context().Err() != nil { // It could not be read, as the client has left.
			c.gone(r.Context())
			return
		}
		d.refuseHop(w, c, no)
		return
	}
	// Only now: over a connection that breaks while a body is on its way the entrance would
	// not hear the refusal.
	if !d.hops.enter() {
		d.refuseHop(w, c, busyCrowd())
		return
	}
	defer d.hops.leave()
	s := newSign(w)
	defer s.stop()
	began := time.Now()
	// The key is the other peer's word: what it makes up takes no turns of other peers' keys.
	want.Key = c.from + " " + want.Key
	lease, err := d.opt.Scheduler.Serve(r.Context(), want)
	c.routed = time.Since(began)
	if err != nil {
		s.stop()
		c.waitedHere(w.Header())
		busyHere(w.Header(), lease.Load)
		if r.Context().Err() != nil {
			c.gone(r.Context())
			return
		}
		d.refuseHop(w, c, refusalOf(err, c.id))
		return
	}
	end := errPanicked
	defer func() { lease.Done(end) }()
	end = d.serveHop(w, s, r, c, lease, buf.b)
}

// refuseHop answers another door with a refusal.
func (d *Door) refuseHop(w http.ResponseWriter, c *call, no *refusal) {
	c.refused(no)
	w.Header().Set(headerRefusal, string(no.reason))
	writeJSON(w, no.verdict().status, encodeJSON(no.hop()))
}

// serveHop asks this peer's engine and passes on what it says, byte by byte:
// the entrance reads it. The error is what the lease ends with.
func (d *Door) serveHop(w http.ResponseWriter, s *sign, r *http.Request, c *call, lease scheduler.Lease, body []byte) error {
	ctx := r.Context()
	out := onward(ctx, r.URL.Path, payload{body}, c.id)
	out.Close = true
	resp, err := roundTrip(lease.Client, out)
	s.stop()
	c.waitedHere(w.Header())
	busyHere(w.Header(), lease.Load)
	if err != nil {
		if ctx.Err() != nil {
			c.gone(ctx)
			return context.Canceled
		}
		no := refuse(scheduler.EngineFailed, "the engine did not answer")
		no.cause, no.died = err, !undialled(err)
		d.refuseHop(w, c, no)
		return no
	}
	defer resp.Body.Close()

	h := w.Header()
	h.Set("Content-Type", resp.Header.Get("Content-Type"))
	stream := resp.ContentLength < 0
	if stream {
		c.stream = true
		h.Set("Trailer", headerBroken)
	} else {
		h.Set("Content-Length", fmt.Sprint(resp.ContentLength))
	}
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	if d.opt.Deadlines.Write > 0 {
		defer rc.SetWriteDeadline(time.Time{})
	}
	chunk := make([]byte, 8<<10)
	var extended time.Time // when a write was last given its time: not for every event
	for {
		n, err := resp.Body.Read(chunk)
		if n > 0 {
			if c.first == 0 {
				c.first = time.Since(c.began)
			}
			if now := time.Now(); d.opt.Deadlines.Write > 0 && now.Sub(extended) > d.opt.Deadlines.Write/8 {
				rc.SetWriteDeadline(now.Add(d.opt.Deadlines.Write))
				extended = now
			}
			_, werr := w.Write(chunk[:n])
			if werr == nil {
				werr = rc.Flush()
			}
			if werr != nil {
				c.gone(ctx)
				c.cause = werr
				return context.Canceled
			}
		}
		switch {
		case err == io.EOF: // itself: what ends a link may wrap it
			if resp.StatusCode >= 500 {
				return refuse(scheduler.EngineFailed, "the engine answered %d", resp.StatusCode)
			}
			return nil
		case err != nil && ctx.Err() != nil:
			c.gone(ctx)
			return context.Canceled
		case err != nil:
			no := refuse(scheduler.EngineFailed, "the engine there ended in the middle of its work")
			no.cause, no.died = err, true
			c.refused(no)
			if stream {
				h.Set(headerBroken, string(encodeJSON(no.hop())))
			} else {
				c.aborted = true // a body shorter than its length says it
			}
			return no
		}
	}
}
