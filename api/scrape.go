package api

import (
	"net/http"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/scheduler"
)

// Scraped is where a door finds the metrics of the whole mesh. Without it there are
// those of its own peer alone.
type Scraped struct {
	// Peers lists the members.
	Peers func() []scheduler.PeerState
	// Control reaches the control handler of a member.
	Control func(peer.ID) http.RoundTripper
}

// showMetrics answers GET /metrics.
func (d *Door) showMetrics(w http.ResponseWriter, r *http.Request, c *call) {}

// listTargets answers GET /metrics/targets: all peers, for http_sd_configs.
func (d *Door) listTargets(w http.ResponseWriter, r *http.Request, c *call) {}

// showPeerMetrics answers GET /metrics/peers/{id}.
func (d *Door) showPeerMetrics(w http.ResponseWriter, r *http.Request, c *call) {}
