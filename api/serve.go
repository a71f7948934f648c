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
	// Deadlines: ReadHeader, Idle, Write and Drain count here; Write only on TCP: what
	// comes by other ways is this machine's own.
	Deadlines Deadlines
	// ConnContext is where a remote peer's id enters a request's context, for
	// DoorOptions.HopPeer to find; nil for none.
	ConnContext func(context.Context, net.Conn) context.Context
	// MaxConns bounds the connections that are open at one time. One more is closed at
	// once, unless another one that serves no request can be. 0 means 4096, or a third
	// of the files that this process may open where that is less: a request takes two,
	// and there are others.
	MaxConns int
	// MaxWaiting bounds the connections on which no request is served: those whose
	// header has not come yet, and kept ones between two requests. Where there is one
	// more, one is closed: the oldest on which no request came yet, else the one that was
	// kept longest. 0 means 2048, or half of MaxConns where that is less.
	MaxWaiting int
	// Log may be nil.
	Log *slog.Logger
}

func (o ServeOptions) withDefaults() ServeOptions {
	if o.MaxConns == 0 {
		o.MaxConns = 4096
		if files, ok := openFiles(); ok {
			o.MaxConns = max(1, min(o.MaxConns, files/3))
		}
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = max(1, min(2048, o.MaxConns/2))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Serve answers on l until ctx ends, then lets requests finish for
// Deadlines.Drain and cuts what is left. It returns when no request is served
// any more; nil when ctx was the reason. It closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, o ServeOptions) error {
	limits := o.Deadlines.withDefaults()
	o = o.withDefaults()
	var serving sync.WaitGroup
	open := newConns(o.MaxConns, o.MaxWaiting)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			open.serves(r.Context())
			if c, ok := r.Context().Value(connKey{}).(*patientConn); ok {
				c.serving.Store(true)
				defer c.serving.Store(false)
			}
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: limits.ReadHeader,
		IdleTimeout:       limits.Idle,
		MaxHeaderBytes:    64 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if o.ConnContext != nil {
				ctx = o.ConnContext(ctx, inner(c))
			}
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: open.note,
		// Requests may outlive ctx while they drain.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// What it has to say is about connections of others that broke.
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true, // its answer has no body
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		open.stop()
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
	err := srv.Serve(withPatience(l, limits.Write))
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
