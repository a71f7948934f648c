package api

import (
	"net"
	"sync/atomic"
	"time"
)

// withPatience bounds every write on a listener's TCP connections, where patience is more
// than 0: whoever asks and does not read the answers, refusals among them, loses the
// connection. And it has clients watched while they are served, whatever they send.
func withPatience(l net.Listener, patience time.Duration) net.Listener {
	if l.Addr().Network() != "tcp" {
		return l
	}
	return patientListener{l, patience}
}

type patientListener struct {
	net.Listener
	patience time.Duration
}

func (l patientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &patientConn{Conn: c, patience: l.patience}, nil
}

type patientConn struct {
	net.Conn
	patience time.Duration
	// serving: a request of it is being served.
	serving atomic.Bool
	// early came meanwhile. Only Read has it, which net/http calls once at a time.
	early []byte
}

// mostEarly is how much is kept of what a client sends before its turn, in bytes, beside what
// came together with its request. One that sends more, which may be its next request, is no
// longer watched until that is read.
const mostEarly = 4 << 10

// Read reads on while a request is served. net/http watches for the client's going by
// reading one byte, and would watch no more once there is one; so that what comes early is
// kept here until it is asked for.
func (c *patientConn) Read(b []byte) (int, error) {
	if len(b) != 1 || !c.serving.Load() {
		if len(c.early) == 0 {
			return c.Conn.Read(b)
		}
		n := copy(b, c.early)
		if c.early = c.early[n:]; len(c.early) == 0 {
			c.early = nil
		}
		return n, nil
	}
	for space := b; len(c.early) <= mostEarly; {
		n, err := c.Conn.Read(space)
		c.early = append(c.early, space[:n]...)
		if err != nil { // Also the deadline by which net/http ends its watch.
			return 0, err
		}
		if len(space) == 1 {
			space = make([]byte, 512)
		}
	}
	n := copy(b, c.early)
	c.early = c.early[n:]
	return n, nil
}

func (c *patientConn) Write(b []byte) (int, error) {
	if c.patience <= 0 {
		return c.Conn.Write(b)
	}
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// CloseWrite lets net/http say that an answer was the last one, before it closes.
func (c *patientConn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// inner is a connection as it was accepted.
func inner(c net.Conn) net.Conn {
	if p, ok := c.(*patientConn); ok {
		return p.Conn
	}
	return c
}
