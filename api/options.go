package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"relay/api/metrics"
	"relay/p2p/keys"
	"relay/scheduler"
	"relay/store/audit"
)

// Scheduler is what the door asks of the scheduler.
type Scheduler interface {
	// Models lists what clients may ask for.
	Models() []scheduler.ServedModel
	// Resolve finds the model that a name, uid or alias means now.
	Resolve(name string) (scheduler.ServedModel, bool)
	// Route picks a replica for a request. It may wait for one to come up, up to ctx.
	// The door calls the route's Done once, with nil when the
	// engine did its part (an answer, or a refusal of a request that is at fault),
	// context.Canceled when the client left, or an error with a reason.
	Route(ctx context.Context, want scheduler.Want) (scheduler.Route, error)
	// Serve takes a slot of this peer's own replica for a forwarded request. The
	// lease ends like a route.
	Serve(ctx context.Context, want scheduler.Want) (scheduler.Lease, error)
}

// Keys says what a secret that a request came with may do.
type Keys interface {
	// Check finds the key of a secret. Its error has a reason and is shown: the secret is
	// unknown, or its key has expired or was taken back. It compares in constant time.
	Check(secret string) (keys.Grant, error)
	// Any reports whether there is a key at all that opens this door.
	Any() bool
}

// Quota bounds what keys may use, over the whole mesh.
type Quota interface {
	// Admit counts one more request of a key, or refuses it with a reason and with the
	// time after which it may be asked again. Standing is right in both cases. A ticket is
	// there exactly where there is no error, and must be ended by Done.
	Admit(g keys.Grant) (keys.Ticket, keys.Standing, error)
}

// DoorOptions are what a door is made of. Scheduler and Keys are needed; the
// zero value of everything else is a default that is fit for use.
type DoorOptions struct {
	Scheduler Scheduler
	Keys      Keys
	// Heard says whether this peer knows of the keys that were made while it was down, or
	// has waited long enough to hear of them: until then a key that it does not know is
	// refused for the moment only. nil means that it does.
	Heard func() bool
	// Quota bounds what keys may use; nil bounds nothing.
	Quota Quota
	// Audit is given the row of every request of a client that is over, from the
	// goroutine that served it; it must not wait. nil keeps none.
	Audit func(audit.Row)
	// Self is this peer's id, for the rows.
	Self string
	// Listen is the address that clients reach the door at, "host:port". When
	// its host is loopback the door refuses foreign Hosts and cross-site posts.
	// Empty counts as loopback.
	Listen string
	// Ready backs /readyz: nil, or the sentence why this peer is not ready. A
	// nil func means always ready.
	Ready func() error
	// HopPeer finds the id of the peer that a forwarded request came from in
	// the request's context; empty means that there is none, and the request is
	// refused. Without it the hop handler refuses everything.
	HopPeer func(ctx context.Context) (peer string)
	// Metrics may be nil: then nobody sees what is counted. Scraped is where those of other
	// peers come from.
	Metrics *metrics.Metrics
	Scraped Scraped
	// MaxBody is the largest request body in bytes; 0 means 32 MiB.
	MaxBody int64
	// MaxHeld bounds the bytes of request bodies and unstreamed answers that
	// are held in memory at one time, all requests together; 0 means 512 MiB.
	MaxHeld int64
	// MaxRequests bounds the requests that are served at one time, those of clients and
	// those that other peers forward each for itself; one more is refused as busy. 0
	// means 2048.
	MaxRequests int
	// Attempts is how many replicas a request may be tried on before its first
	// data event, and then again without its answer coming farther, 1 to 10; 0 means 3.
	Attempts int
	// Deadlines bound every wait.
	Deadlines Deadlines
	// Log may be nil.
	Log *slog.Logger
}

// Deadlines bound the door's waits. In each, 0 means the default and a negative
// value means no bound.
type Deadlines struct {
	// Dial is for reaching the replica; default 5 s.
	Dial time.Duration
	// Headers is for the first sign of the peer that serves that it works on a request:
	// the interim answer 102 of its door, or the answer itself; default 15 s. It does not
	// count for this peer's own engine, which says nothing until its first token.
	Headers time.Duration
	// ReadHeader is for a request's header; default 10 s.
	ReadHeader time.Duration
	// ReadBody is for a request's body; default 2 min.
	ReadBody time.Duration
	// Idle is how long a kept connection may wait for its next request;
	// default 3 min.
	Idle time.Duration
	// Route is for the scheduler's answers to a request, all together, loading on demand
	// included, which has its own budget; default 30 min.
	Route time.Duration
	// FirstToken is from handing a request to a replica to the first data event
	// of a stream: queue and prefill; default 10 min.
	FirstToken time.Duration
	// BetweenTokens is between two data events of a stream; default 5 min
	// (engines hold text back while they parse a tool call). As long may it take, all in
	// all, until another replica goes on with an answer whose own is lost.
	BetweenTokens time.Duration
	// Total is for the whole answer, over all attempts, from the first one on; default 1 h.
	Total time.Duration
	// Write is for a client to take what is sent to it; default 1 min.
	Write time.Duration
	// KeepAlive is after how long without a byte a waiting stream gets a
	// comment, and then again; default 10 s. From the first comment on the
	// status is 200, and a failure is an error event.
	KeepAlive time.Duration
	// Retry is how long the scheduler may take to name another replica for a
	// request that a living one has answered with a failure, or is too busy
	// for; default 2 s.
	Retry time.Duration
	// Drain is how long requests may go on after Serve is told to stop;
	// default 10 s.
	Drain time.Duration
}

func (d Deadlines) withDefaults() Deadlines {
	set := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
		if *v < 0 {
			*v = 0 // from here on: no bound
		}
	}
	set(&d.Dial, 5*time.Second)
	set(&d.Headers, 15*time.Second)
	set(&d.ReadHeader, 10*time.Second)
	set(&d.ReadBody, 2*time.Minute)
	set(&d.Idle, 3*time.Minute)
	set(&d.Route, 30*time.Minute)
	set(&d.FirstToken, 10*time.Minute)
	set(&d.BetweenTokens, 5*time.Minute)
	set(&d.Total, time.Hour)
	set(&d.Write, time.Minute)
	set(&d.KeepAlive, 10*time.Second)
	set(&d.Retry, 2*time.Second)
	set(&d.Drain, 10*time.Second)
	return d
}

func (o DoorOptions) withDefaults() DoorOptions {
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	if o.MaxHeld == 0 {
		o.MaxHeld = 512 << 20
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 2048
	}
	if o.Attempts == 0 {
		o.Attempts = 3
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Heard == nil {
		o.Heard = func() bool { return true }
	}
	if o.HopPeer == nil {
		o.HopPeer = func(context.Context) string { return "" }
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New(metrics.Options{})
	}
	o.Deadlines = o.Deadlines.withDefaults()
	return o
}

// Validate names the setting at fault.
func (o DoorOptions) Validate() error {
	switch {
	case o.Scheduler == nil:
		return fmt.Errorf("scheduler: a door needs one")
	case o.Keys == nil:
		return fmt.Errorf("keys: a door needs a way to check them")
	case o.MaxBody < 0:
		return fmt.Errorf("max body: %d bytes is less than none", o.MaxBody)
	case o.MaxHeld < 0:
		return fmt.Errorf("max held: %d bytes is less than none", o.MaxHeld)
	case o.MaxRequests < 0:
		return fmt.Errorf("max requests: %d is less than none", o.MaxRequests)
	case o.Attempts < 0 || o.Attempts > 10:
		return fmt.Errorf("attempts: %d is not from 1 to 10", o.Attempts)
	}
	if o.Listen != "" {
		if _, _, err := net.SplitHostPort(o.Listen); err != nil {
			return fmt.Errorf("listen: %q is not host:port", o.Listen)
		}
	}
	return nil
}
