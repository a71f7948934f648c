package api

import (
	"net"
	"time"
)

// withPatience bounds every write on a listener's TCP connections: whoever asks and
// does not read the answers, refusals among them, loses the connection.
func withPatience(l net.Listener, patience time.Duration) net.Listener {
	if patience <= 0 || l.Addr().Network() != "tcp" {
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
	return &patientConn{c, l.patience}, nil
}

type patientConn struct {
	net.Conn
	patience time.Duration
}

func (c *patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// inner is a connection as it was accepted.
func inner(c net.Conn) net.Conn {
	if p, ok := c.(*patientConn); ok {
		return p.Conn
	}
	return c
}
