package llama

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"
)

// Who has a connection and is held by something else hears that the engine is gone.
func TestLinksClose(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan struct{})
	far, held := net.Pipe() // nobody reads from it
	defer far.Close()
	links := newLinks(Spec{Name: "m", Connected: func(ctx context.Context, _ int, c net.Conn) {
		defer context.AfterFunc(ctx, func() { _ = held.Close() })()
		close(taken)
		_, _ = held.Write([]byte("x"))
	}}, slog.New(slog.DiscardHandler))
	links.serve([]net.Listener{l}, nil)
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-taken
	closed := make(chan struct{})
	go func() { links.close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("it waits for who waits for it")
		_ = held.Close()
		<-closed
	}
}
