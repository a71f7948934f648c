// Package tunnel joins two connections into one: what comes on either is written
// to the other at once, until one of them ends; then both do.
//
// It knows nothing of who is at the ends, keeps no byte, and starts nothing that
// outlives Join.
package tunnel

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// bufferSize is how much is read at a time, in bytes: on loopback 16 KiB moved a
	// tenth less, and 256 KiB no more.
	bufferSize = 64 << 10
	// afterEnd is how long the second direction may take to end after the first.
	afterEnd = 5 * time.Second
)

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// Join copies both ways between a and b until either ends or fails, and closes
// both before it returns. The end of one direction is passed on as such where the
// other side can be told so (CloseWrite), and what is on its way back has five
// seconds more; where it cannot, both end. m, which may be nil, counts. The error is
// what broke it, nil where both directions came to their ends; a connection that
// was broken off is reset (see Reset), so that nobody waits for the rest.
//
// While one end takes nothing, that the other one is gone may not be noticed: who
// wants a tunnel to end closes both connections, and it ends at once, whatever is
// under way.
func Join(a, b net.Conn, m *Meter) error {
	j := joint{ends: [2]net.Conn{a, b}, meter: m}
	if m == nil {
		j.meter = new(Meter)
	}
	var back sync.WaitGroup
	back.Go(func() { j.copy(b, a, &j.meter.in, wasIn) })
	j.copy(a, b, &j.meter.out, wasOut)
	back.Wait()
	if j.err == nil {
		return errors.Join(a.Close(), b.Close())
	}
	return j.err
}

// joint is two connections that are one.
type joint struct {
	ends  [2]net.Conn
	meter *Meter
	last  atomic.Uint32 // The direction of what was copied last.

	broken sync.Once
	err    error // What broke it.
}

const (
	wasIn  = 1
	wasOut = 2
)

// copy moves one direction until it ends.
func (j *joint) copy(from, to net.Conn, moved *atomic.Uint64, direction uint32) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(*buffer)
		if n > 0 {
			moved.Add(uint64(n))
			// Only this direction sets its own value, so no change is counted twice.
			if j.last.Load() != direction && j.last.Swap(direction) == wasOut {
				j.meter.turns.Add(1)
			}
			if _, err := to.Write((*buffer)[:n]); err != nil {
				j.breakOff(err)
				return
			}
		}
		switch {
		case err == io.EOF:
			j.end(to)
			return
		case err != nil:
			j.breakOff(err)
			return
		}
	}
}

// end passes the end of a direction on, and bounds the other one.
func (j *joint) end(to net.Conn) {
	half, can := to.(interface{ CloseWrite() error })
	if !can {
		j.breakOff(io.EOF)
		return
	}
	if err := half.CloseWrite(); err != nil {
		j.breakOff(err)
		return
	}
	for _, c := range j.ends {
		_ = c.SetDeadline(time.Now().Add(afterEnd))
	}
}

// breakOff ends both connections at once, for the first reason that it is told.
func (j *joint) breakOff(err error) {
	j.broken.Do(func() {
		j.err = err
		for _, c := range j.ends {
			_ = Reset(c)
		}
	})
}

// Reset ends a connection at once, in both directions: what is under way is dropped,
// and the other side need not take anything for it to end. It calls the connection's
// own Reset where it has one; of a TCP connection the other side sees a reset. A
// connection that wraps another one hides both, as well as CloseWrite, and has to
// forward them: its Reset is tunnel.Reset of what it wraps.
func Reset(c net.Conn) error {
	switch c := c.(type) {
	case interface{ Reset() error }:
		return c.Reset()
	case interface{ SetLinger(sec int) error }:
		_ = c.SetLinger(0)
	}
	return c.Close()
}
