package api

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// conns are the connections of a listener, and which of them wait for a request:
// whoever opens many and says little, or says it slowly, only closes their own.
type conns struct {
	max, maxWaiting int

	mu      sync.Mutex
	open    map[net.Conn]*conn
	fresh   list.List // Of net.Conn: no request came on them yet; the oldest first.
	kept    list.List // Those between two requests; the one that waits longest first.
	stopped bool
}

// conn is one of them.
type conn struct {
	// in is the list of those that wait in which it has its place; nil while a request is
	// served.
	in    *list.List
	place *list.Element
}

func newConns(most, mostWaiting int) *conns {
	return &conns{max: most, maxWaiting: mostWaiting, open: map[net.Conn]*conn{}}
}

// connKey is under what a request's context has its connection.
type connKey struct{}

// note follows what the server says of a connection.
func (o *conns) note(c net.Conn, state http.ConnState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch state {
	case http.StateNew:
		if o.stopped {
			c.Close()
			return
		}
		o.open[c] = &conn{in: &o.fresh, place: o.fresh.PushBack(c)}
		o.bound()
	case http.StateIdle:
		if k := o.open[c]; k != nil && k.in == nil {
			k.in, k.place = &o.kept, o.kept.PushBack(c)
			o.bound()
		}
	case http.StateClosed, http.StateHijacked:
		o.forget(c)
	}
}

// serves notes that a request has come, by its context.
func (o *conns) serves(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.open[c]; k != nil {
		k.leave()
	}
}

// bound closes one of those that wait if there are too many: rather one that never
// asked for anything. The lock is held.
func (o *conns) bound() {
	if len(o.open) <= o.max && o.fresh.Len()+o.kept.Len() <= o.maxWaiting {
		return
	}
	oldest := o.fresh.Front()
	if oldest == nil {
		oldest = o.kept.Front() // There is one: the newest is in one of the two.
	}
	o.close(oldest.Value.(net.Conn))
}

func (o *conns) close(c net.Conn) {
	o.forget(c)
	c.Close()
}

func (o *conns) forget(c net.Conn) {
	if k := o.open[c]; k != nil {
		k.leave()
		delete(o.open, c)
	}
}

func (k *conn) leave() {
	if k.in != nil {
		k.in.Remove(k.place)
		k.in, k.place = nil, nil
	}
}

// stop closes those on which no request came yet, and from now on every new one:
// Shutdown would wait some seconds for each of them.
func (o *conns) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for o.fresh.Len() > 0 {
		o.close(o.fresh.Front().Value.(net.Conn))
	}
}
