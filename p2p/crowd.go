package p2p

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// A stream of ProtocolCrowd carries so many requests at a time, and another one is
	// opened for more.
	requestsPerStream = 250
	// dialsForCrowd is how many such streams are opened at a time, for requests that find
	// none.
	dialsForCrowd = 8
	// requestBuffer is how much of an answer, or of a request, waits here for who is to
	// read it: then the other side waits, and no other request with it. All requests of
	// one stream that wait here have requestsBuffer.
	requestBuffer  = 256 << 10
	requestsBuffer = 2 << 20
	// crowdPiece is how much of an answer is read at a time.
	crowdPiece = 4 << 10
)

// requestTripper sends requests of clients to one peer: as HTTP/1.1 over a stream each,
// and those beyond ownStreams at a time as HTTP/2, many to a stream.
type requestTripper struct {
	web *web
	to  peer.ID
}

func (t requestTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	from, over := t.web.n.links.use(t.to)
	response, err := t.send(r)
	if err != nil {
		over()
		return nil, err
	}
	if from != nil {
		response.Body = heardBody{response.Body, from}
	}
	response.Body = leavingBody{response.Body, sync.OnceFunc(over)}
	return response, nil
}

func (t requestTripper) send(r *http.Request) (*http.Response, error) {
	if !t.web.crowds.enter(t.to) {
		return t.sendInCrowd(r)
	}
	leave := sync.OnceFunc(func() { t.web.crowds.leave(t.to) })
	response, err := t.web.to(t.to, ProtocolHTTP).RoundTrip(r)
	if err != nil {
		leave()
		return nil, err
	}
	response.Body = leavingBody{response.Body, leave}
	return response, nil
}

// sendInCrowd has the body of the answer read by a goroutine of its own, so that who asked
// can leave at any time: where one sends a long body to a peer that takes nothing, the
// library lets nobody on the stream leave until the connection ends.
func (t requestTripper) sendInCrowd(r *http.Request) (*http.Response, error) {
	work := &t.web.n.work
	if !work.begin() {
		return nil, ErrPeerGone
	}
	ctx, leave := context.WithCancel(r.Context())
	stay := context.AfterFunc(t.web.n.ctx, leave) // The node's end waits for what is read here.
	response, err := t.web.to(t.to, ProtocolCrowd).RoundTrip(r.WithContext(ctx))
	if err != nil {
		stay()
		leave()
		work.end()
		return nil, err
	}
	body := response.Body
	near, far := io.Pipe()
	go func() {
		defer work.end()
		defer stay()
		defer context.AfterFunc(ctx, func() { _ = near.CloseWithError(ctx.Err()) })()
		_, err := io.CopyBuffer(far, body, make([]byte, crowdPiece))
		_ = far.CloseWithError(err)
		_ = body.Close()
	}()
	response.Body = leavingBody{near, leave}
	return response, nil
}

// leavingBody says when an answer is done with.
type leavingBody struct {
	io.ReadCloser
	leave func()
}

func (b leavingBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}

// crowds counts, by peer, the requests that have a stream to themselves.
type crowds struct {
	mu  sync.Mutex
	own map[peer.ID]int
}

// enter takes a place for one of them, if there is one.
func (c *crowds) enter(to peer.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[to] >= ownStreams {
		return false
	}
	if c.own == nil {
		c.own = map[peer.ID]int{}
	}
	c.own[to]++
	return true
}

func (c *crowds) leave(to peer.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[to]--; c.own[to] == 0 {
		delete(c.own, to)
	}
}

func newCrowdTransport(dial dialStream) *http.Transport {
	t := newTransport(dial, dialsForCrowd)
	t.Protocols = onlyHTTP2()
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: requestBuffer}
	return t
}

func serveCrowds(s *http.Server) {
	s.Protocols = onlyHTTP2()
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: requestsPerStream, MaxReceiveBufferPerStream: requestBuffer, MaxReceiveBufferPerConnection: requestsBuffer}
}

// onlyHTTP2 is HTTP/2 from the first byte on: the connection is secure already.
func onlyHTTP2() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}
