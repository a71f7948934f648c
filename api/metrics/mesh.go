package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Mesh is what a peer knows of its mesh at one moment.
type Mesh struct {
	// Peers are the members by state, this one included.
	Peers map[string]int
	// Links are those to the other members.
	Links    []Link
	Replicas []Replica
}

// Link is how this peer reaches another one.
type Link struct {
	// Peer is its id, Via direct, relay, or none while there is no link.
	Peer, Via string
	// RTT is 0 while it is not known.
	RTT time.Duration
}

// Replica is one replica, of a model by its name, in its state.
type Replica struct{ Model, State string }

// meshCollector asks for the mesh when somebody looks.
type meshCollector struct {
	mesh                       func() Mesh
	peers, rtt, up, replicasOf *prometheus.Desc
}

func newMeshCollector(mesh func() Mesh) *meshCollector {
	return &meshCollector{
		mesh:       mesh,
		peers:      prometheus.NewDesc("relay_peers", "Members of the mesh as this peer sees them.", []string{"state"}, nil),
		rtt:        prometheus.NewDesc("relay_link_rtt_seconds", "Round trip to another peer, smoothed.", []string{"peer", "via"}, nil),
		up:         prometheus.NewDesc("relay_link_up", "Whether there is a link to another peer.", []string{"peer", "via"}, nil),
		replicasOf: prometheus.NewDesc("relay_replicas", "Replicas of a model in the mesh.", []string{"model", "state"}, nil),
	}
}

// Describe names the metrics.
func (c *meshCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.peers, c.rtt, c.up, c.replicasOf} {
		to <- d
	}
}

// Collect asks and tells.
func (c *meshCollector) Collect(to chan<- prometheus.Metric) {
	mesh := c.mesh()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for state, n := range mesh.Peers {
		gauge(c.peers, float64(n), state)
	}
	for _, l := range mesh.Links {
		up := 1.0
		if l.Via == "none" {
			up = 0
		}
		gauge(c.up, up, l.Peer, l.Via)
		if up == 1 && l.RTT > 0 {
			gauge(c.rtt, l.RTT.Seconds(), l.Peer, l.Via)
		}
	}
	for r, n := range countReplicas(mesh.Replicas) {
		gauge(c.replicasOf, float64(n), r.Model, r.State)
	}
}

// countReplicas counts them by model and state, with no more than MostModels models.
func countReplicas(list []Replica) map[Replica]int {
	models, counts := map[string]bool{}, map[Replica]int{}
	for _, r := range list {
		r = Replica{label(r.Model), label(r.State)}
		if !models[r.Model] && len(models) >= MostModels {
			r.Model = Other
		} else {
			models[r.Model] = true
		}
		counts[r]++
	}
	return counts
}
