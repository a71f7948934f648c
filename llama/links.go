package llama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
)

// maxLinks is how many connections an engine may open to its Remotes in all. It
// opens some to each while it loads, and keeps one.
const maxLinks = 1024

// links are an engine's connections to its Remotes: the listeners that it connects
// to, and what it has opened.
type links struct {
	connected func(ctx context.Context, remote int, c net.Conn)
	ctx       context.Context // of those who have a connection
	cancel    context.CancelFunc
	log       *slog.Logger
	name      string
	ports     []int // of Remotes; set before anybody sees the Process

	working sync.WaitGroup // those who listen, and those who have a connection

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	open      []net.Conn
}

func newLinks(s Spec, log *slog.Logger) *links {
	ctx, cancel := context.WithCancel(context.Background())
	return &links{connected: s.Connected, ctx: ctx, cancel: cancel, log: log, name: s.Name}
}

// listenLocally listens on ports of this machine, for count Remotes.
func listenLocally(count int) (ports []int, list []net.Listener, err error) {
	for range count {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			for _, l := range list {
				_ = l.Close() // nobody uses it
			}
			return nil, nil, fmt.Errorf("%w: no port for an RPC server: %w", ErrState, err)
		}
		ports, list = append(ports, l.Addr().(*net.TCPAddr).Port), append(list, l)
	}
	return ports, list, nil
}

// serve begins to take connections from listeners, one for each of Remotes.
// mayConnect, where it is set, says why one is not the engine's.
func (l *links) serve(listeners []net.Listener, mayConnect func(net.Conn) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = listeners
	if l.closed {
		l.closeListeners()
		return
	}
	for i, listener := range l.listeners {
		l.working.Go(func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						l.log.Warn("engine cannot reach an RPC server any more", "model", l.name, "remote", i, "err", err)
					}
					return
				}
				l.take(i, c, mayConnect)
			}
		})
	}
}

// take hands a connection to its owner.
func (l *links) take(remote int, c net.Conn, mayConnect func(net.Conn) error) {
	refuse := func(err error) {
		l.log.Warn("connection to an RPC server refused", "model", l.name, "remote", remote, "err", err)
		_ = c.Close() // nobody has it
	}
	if mayConnect != nil {
		if err := mayConnect(c); err != nil {
			refuse(err)
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.open) == maxLinks {
		refuse(errors.New("the engine has ended, or has too many"))
		return
	}
	l.open = append(l.open, c)
	l.working.Go(func() {
		defer c.Close() // its owner may have done so
		l.connected(l.ctx, remote, c)
	})
}

// close ends all connections and waits for their owners, who may be held by what
// they have opened themselves: they are told first.
func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	l.closeListeners()
	for _, c := range l.open {
		_ = c.Close() // its owner may have done so
	}
	l.mu.Unlock()
	l.cancel()
	l.working.Wait()
}

// closeListeners is called with mu held.
func (l *links) closeListeners() {
	for _, listener := range l.listeners {
		_ = listener.Close() // it may be closed already
	}
}
