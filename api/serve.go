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

// ServeOptions say how a listener is served. Zero values mean the defaults.
type ServeOptions struct {
	// Deadlines: ReadHeader, Idle and Drain count here.
	Deadlines Deadlines
	// ConnContext is where a remote peer's id enters a request's context, for
	// DoorOptions.HopPeer to find; nil for none.
	ConnContext func(context.Context, net.Conn) context.Context
	// Log may be nil.
	Log *slog.Logger
}

// Serve answers on l until ctx ends, then lets requests finish for
// Deadlines.Drain and cuts what is left. It returns when no request is served
// any more; nil when ctx was the reason. It closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, o ServeOptions) error {
	limits := o.Deadlines.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var serving sync.WaitGroup
	var fresh freshConns
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: limits.ReadHeader,
		IdleTimeout:       limits.Idle,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       o.ConnContext,
		ConnState:         fresh.note,
		// Requests may outlive ctx while they drain.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// What it has to say is about connections of others that broke.
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
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
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
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
