package scheduler

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// cuts are the requests that this entrance has under way at other peers: they end
// at once where the peer may not see them any more, whatever it does itself.
type cuts struct {
	mu  sync.Mutex
	way map[string]map[*underWay]bool // By peer.
}

type underWay struct{ cancel context.CancelCauseFunc }

func newCuts() *cuts { return &cuts{way: map[string]map[*underWay]bool{}} }

func (c *cuts) add(peer string, cancel context.CancelCauseFunc) (over func()) {
	u := &underWay{cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.way[peer] == nil {
		c.way[peer] = map[*underWay]bool{}
	}
	c.way[peer][u] = true
	return func() {
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.way[peer], u); len(c.way[peer]) == 0 {
			delete(c.way, peer)
		}
	}
}

// judge cuts what is under way at peers that may not serve.
func (c *cuts) judge(v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer, list := range c.way {
		if v.serves(peer) {
			continue
		}
		for u := range list {
			u.cancel(errNoMoreTrust)
		}
	}
}

// errNoMoreTrust ends requests at a peer that may not see them any more.
var errNoMoreTrust = &Error{Why: PeerGone, Retry: RetryElsewhere, Message: "the peer that served may not serve any more"}

// cuttable is a way to a peer whose requests end with errNoMoreTrust once it may
// not serve.
func (s *Scheduler) cuttable(peer string, way http.RoundTripper) http.RoundTripper {
	return cutTripper{s, peer, way}
}

type cutTripper struct {
	s    *Scheduler
	peer string
	way  http.RoundTripper
}

func (t cutTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	over := t.s.cuts.add(t.peer, cancel)
	if v, _ := t.s.latest(); !v.serves(t.peer) { // It was judged before this request was there.
		cancel(errNoMoreTrust)
	}
	response, err := t.way.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = cutCause(ctx, err)
		over()
		return nil, err
	}
	response.Body = &cutBody{response.Body, ctx, over}
	return response, nil
}

// cutBody is the body of an answer that may be cut.
type cutBody struct {
	io.ReadCloser
	ctx  context.Context
	over func()
}

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = cutCause(b.ctx, err)
	}
	return n, err
}

func (b *cutBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

func cutCause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errNoMoreTrust) {
		return errNoMoreTrust
	}
	return err
}
