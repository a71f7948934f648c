package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// Serve answers clients on l until ctx ends, then lets requests finish for
// Deadlines.Drain and cuts what is left. It returns when no request is served
// any more; nil when ctx was the reason. It closes l.
func (d *Door) Serve(ctx context.Context, l net.Listener) error {
	return d.serve(ctx, l, d.Handler(), nil)
}

// ServeHop answers forwarded requests on l as Serve does. connContext, which
// may be nil, is where the remote peer's id enters a request's context, for
// DoorOptions.HopPeer to find.
func (d *Door) ServeHop(ctx context.Context, l net.Listener, connContext func(context.Context, net.Conn) context.Context) error {
	return d.serve(ctx, l, d.HopHandler(), connContext)
}

func (d *Door) serve(ctx context.Context, l net.Listener, h http.Handler, connContext func(context.Context, net.Conn) context.Context) error {
	var serving sync.WaitGroup
	var fresh freshConns
	limits := d.opt.Deadlines
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: limits.ReadHeader,
		IdleTimeout:       limits.Idle,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       connContext,
		ConnState:         fresh.note,
		// Requests may outlive ctx while they drain.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// What it has to say is about connections of others that broke.
		ErrorLog:                     slog.NewLogLogger(d.opt.Log.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true, // its answer has no body
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		fresh.close()
		drain, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		if limits.Drain > 0 {
			drain, cancel = context.WithTimeout(drain, limits.Drain)
			defer cancel()
		}
		if srv.Shutdown(drain) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(l)
	if stop() {
		srv.Close()
	} else {
		<-stopped
	}
	serving.Wait()
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the door at %s: %w", l.Addr(), err)
}

// freshConns are the connections over which nothing came yet. Shutdown would
// wait some seconds for each of them.
type freshConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func (f *freshConns) note(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(f.conns, c)
	case f.closed:
		c.Close()
	default:
		if f.conns == nil {
			f.conns = make(map[net.Conn]struct{})
		}
		f.conns[c] = struct{}{}
	}
}

func (f *freshConns) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
}
