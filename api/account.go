package api

import (
	"time"

	"relay/api/metrics"
)

// meter is what is noted of a request while it is under way, for its account.
type meter struct {
	// counted is the model under which it is in flight; nil before that is known.
	counted *metrics.Model
	// waited is how long the engine was waited for, on whichever peer.
	waited time.Duration
}

// underWay counts a request as in flight under the name of the model that it is for,
// once that is known to be registered; account ends it.
func (d *Door) underWay(c *call, model string) {}

// account puts down a request of the entrance that has ended: a row of the audit, and
// the metrics. It is called once.
func (d *Door) account(c *call) {}
