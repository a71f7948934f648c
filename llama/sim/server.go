package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server is one stand-in engine.
type Server struct {
	opt     Options
	tickets chan struct{} // one for each free slot
	media   string        // stands for an image in a prompt's text
	started int64
	ready   chan struct{}
	addr    net.Addr

	// requests are waited for by Run. mu guards what is below it.
	requests sync.WaitGroup
	mu       sync.Mutex
	free     []*slot
	faults   []Fault
	state    State
	work     work
	changed  chan struct{}
}

// New checks the options.
func New(opt Options) (*Server, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	s := &Server{
		opt: opt, tickets: make(chan struct{}, opt.Slots), media: "<__media_" + randomID() + "__>", started: time.Now().Unix(),
		ready: make(chan struct{}), changed: make(chan struct{}),
	}
	for i := range opt.Slots {
		s.free = append(s.free, &slot{n: i})
		s.tickets <- struct{}{}
	}
	return s, s.SetFaults(opt.Faults...)
}

// Ready is closed when Run listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where Run listens; it may only be called after Ready.
func (s *Server) Addr() net.Addr { return s.addr }

// Run listens at Options.Listen and serves until ctx ends; then it cuts every
// connection, as a killed engine would, and returns nil. It can run once.
func (s *Server) Run(ctx context.Context) error {
	l, err := listen(ctx, s.opt.Listen)
	if err != nil {
		return err
	}
	s.addr = l.Addr()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if c, ok := c.(*conn); ok && state == http.StateIdle && c.streamed.Load() {
				c.Close()
			}
		},
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(closed); srv.Close() })
	close(s.ready)
	err = srv.Serve(listener{l})
	if stop() {
		srv.Close() // Serve failed by itself
	} else {
		<-closed
	}
	cancel()
	s.requests.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("sim engine at %s: %w", s.addr, err)
}

// conn is a connection that is closed after a stream, unannounced, as
// llama-server does it. A client that keeps connections must bear that.
type conn struct {
	net.Conn
	streamed atomic.Bool
}

type connKey struct{}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	network := "tcp"
	if strings.HasSuffix(address, ".sock") {
		network = "unix"
		if info, err := os.Lstat(address); err == nil && info.Mode()&os.ModeSocket != 0 {
			if err := os.Remove(address); err != nil {
				return nil, fmt.Errorf("sim engine: cannot replace the old socket: %w", err)
			}
		}
	}
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("sim engine: cannot listen: %w", err)
	}
	return l, nil
}
