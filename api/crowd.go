package api

import (
	"sync/atomic"

	"relay/scheduler"
)

// crowd counts requests that are served at one time, against a bound.
type crowd struct {
	max int64
	now atomic.Int64
}

// enter reports whether one more may be served; if so, leave must follow.
func (c *crowd) enter() bool {
	if c.now.Add(1) <= c.max {
		return true
	}
	c.now.Add(-1)
	return false
}

func (c *crowd) leave() { c.now.Add(-1) }

func busyCrowd() *refusal {
	return refuse(scheduler.Busy, "this peer serves as many requests at a time as it may; ask again in a moment, or ask another peer")
}
