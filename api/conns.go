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
	waiting *list.List // of net.Conn, the one that waits longest first
	stopped bool
}

// conn is one of them.
type conn struct {
	// place is in the list of those that wait; nil while a request is served.
	place *list.Element
	// asked says that a request came on it.
	asked bool
}

func newConns(most, mostWaiting int) *conns {
	return &conns{max: most, maxWaiting: mostWaiting, open: map[net.Conn]*conn{}, waiting: list.New()}
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
		o.open[c] = &conn{place: o.waiting.PushBack(c)}
		if len(o.open) > o.max || o.waiting.Len() > o.maxWaiting {
			o.drop()
		}
	case http.StateIdle:
		if k := o.open[c]; k != nil && k.place == nil {
			k.place = o.waiting.PushBack(c)
			if o.waiting.Len() > o.maxWaiting {
				o.drop()
			}
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
	if k := o.open[c]; k != nil && k.place != nil {
		o.waiting.Remove(k.place)
		k.place, k.asked = nil, true
	}
}

// drop closes the connection that has waited longest. The lock is held.
func (o *conns) drop() {
	c := o.waiting.Front().Value.(net.Conn)
	o.forget(c)
	c.Close()
}

func (o *conns) forget(c net.Conn) {
	if k := o.open[c]; k != nil {
		if k.place != nil {
			o.waiting.Remove(k.place)
		}
		delete(o.open, c)
	}
}

// stop closes those on which no request came yet, and from now on every new one:
// Shutdown would wait some seconds for each of them.
func (o *conns) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for c, k := range o.open {
		if !k.asked {
			o.forget(c)
			c.Close()
		}
	}
}
