package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"sync/atomic"
	"time"
)

// payload is a body in pieces, so that a replaced name costs no copy of it.
type payload [][]byte

func (p payload) reader() io.ReadCloser {
	readers := make([]io.Reader, len(p))
	for i, b := range p {
		readers[i] = bytes.NewReader(b)
	}
	return io.NopCloser(io.MultiReader(readers...))
}

func (p payload) size() (n int64) {
	for _, b := range p {
		n += int64(len(b))
	}
	return n
}

// onward is a request as a door sends it on. Nothing of the asker's headers is
// in it: the engine acts on some of them (X-Conversation-Id keeps it computing
// for a client that has left), and secrets stay at the entrance. Requests to an
// engine should set Close: llama-server ends the connection after every stream
// without announcing it.
func onward(ctx context.Context, path string, body payload, id string) *http.Request {
	r := &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{Scheme: "http", Host: "relay", Path: path},
		Host:   "relay",
		Header: http.Header{
			"Accept-Encoding": {"identity"},
			"Content-Type":    {"application/json"},
			"User-Agent":      {"relay"},
			headerHop:         {"1"},
			headerRequestID:   {id},
		},
		Body:          body.reader(),
		ContentLength: body.size(),
		GetBody:       func() (io.ReadCloser, error) { return body.reader(), nil },
	}
	return r.WithContext(ctx)
}

// freshDial bounds the dialling of a second connection, see roundTrip.
const freshDial = 2 * time.Second

// roundTrip sends a request on. A kept connection may turn out to be closed at
// its other end; then, and only then, the request is sent once more, over a
// fresh one: no byte of an answer has been seen, nor the interim one by which a peer
// says that it is there. net/http by itself does so only where it is sure that nothing
// was read there, which it seldom is for a POST.
func roundTrip(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
	send := func(r *http.Request, got func(kept bool)) (*http.Response, error) {
		trace := &httptrace.ClientTrace{
			GotConn:        func(c httptrace.GotConnInfo) { got(c.Reused) },
			Got1xxResponse: func(int, textproto.MIMEHeader) error { got(false); return nil },
		}
		return rt.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	}
	var kept atomic.Bool
	resp, err := send(r, func(k bool) { kept.Store(k) })
	if err == nil || !kept.Load() || r.Context().Err() != nil {
		return resp, err
	}
	// A peer that is gone may take long to be dialled in vain, while another
	// one is free.
	ctx, cancel := context.WithCancel(r.Context())
	late := time.AfterFunc(freshDial, cancel)
	again := r.Clone(ctx)
	again.Body, _ = r.GetBody()
	resp, second := send(again, func(bool) { late.Stop() })
	late.Stop()
	if second != nil {
		cancel()
		return nil, err // the first error says more
	}
	resp.Body = &cancelBody{resp.Body, cancel}
	return resp, nil
}

// undialled says of roundTrip's error that the request reached nobody.
func undialled(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cancelBody frees its request's context when it is closed.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
