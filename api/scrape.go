package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/api/metrics"
	"relay/scheduler"
)

const (
	// maxScrape bounds the metrics of another peer, in bytes, and scrapePatience the time
	// it has for them: Prometheus itself waits for 10 s.
	maxScrape      = 8 << 20
	scrapePatience = 5 * time.Second
	// peerMetrics is the beginning of the paths under which other peers' are.
	peerMetrics = "/metrics/peers/"
)

// Scraped is where a door finds the metrics of the other peers. Without it there are
// those of its own peer alone.
type Scraped struct {
	// Peers lists the members.
	Peers func() []scheduler.PeerState
	// Control reaches the control handler of a member.
	Control func(peer.ID) http.RoundTripper
}

// showMetrics answers GET /metrics.
func (d *Door) showMetrics(w http.ResponseWriter, _ *http.Request, c *call) {
	text, err := textOf(d.opt.Metrics)
	if err != nil {
		d.refuse(w, c, internal(err, c.id))
		return
	}
	writeMetrics(w, text)
}

// target is one entry of what http_sd_configs takes.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// listTargets answers GET /metrics/targets: every peer of the mesh, each behind the
// address at which this door was asked. Most other doors listen for their own machine
// alone.
func (d *Door) listTargets(w http.ResponseWriter, r *http.Request, _ *call) {
	list := []target{}
	if d.opt.Scraped.Peers == nil {
		list = append(list, target{[]string{r.Host}, map[string]string{"__metrics_path__": "/metrics"}})
	} else {
		for _, p := range d.opt.Scraped.Peers() {
			path := peerMetrics + p.ID
			if p.Self {
				path = "/metrics"
			}
			list = append(list, target{[]string{r.Host}, map[string]string{"__metrics_path__": path, "relay_peer": p.ID, "relay_name": p.Name}})
		}
	}
	writeJSON(w, http.StatusOK, encodeJSON(list))
}

// showPeerMetrics answers GET /metrics/peers/{id} with the metrics of any peer.
func (d *Door) showPeerMetrics(w http.ResponseWriter, r *http.Request, c *call) {
	id := strings.TrimPrefix(r.URL.Path, peerMetrics)
	if d.opt.Scraped.Peers != nil {
		for _, p := range d.opt.Scraped.Peers() {
			switch {
			case p.ID != id:
			case p.Self:
				d.showMetrics(w, r, c)
				return
			default:
				text, no := d.scrape(r.Context(), p)
				if no != nil {
					d.refuse(w, c, no)
					return
				}
				writeMetrics(w, text)
				return
			}
		}
	}
	d.refuse(w, c, refuse(scheduler.NotFound, "no peer of this mesh has the id %.80q; GET /metrics/targets lists them", id))
}

// scrape gets the metrics of another peer, those of them that this release knows.
func (d *Door) scrape(ctx context.Context, p scheduler.PeerState) (text []byte, no *refusal) {
	ctx, cancel := context.WithTimeout(ctx, scrapePatience)
	defer cancel()
	gone := func(err error) *refusal {
		no := refuse(scheduler.PeerGone, "%s cannot be reached for its metrics", p.Name)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			no = refuse(scheduler.Timeout, "%s did not send its metrics within %s", p.Name, scrapePatience)
		}
		no.cause = err
		return no
	}
	id, err := peer.Decode(p.ID)
	if err != nil {
		return nil, gone(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://peer/metrics", nil)
	if err != nil {
		return nil, gone(err)
	}
	response, err := d.opt.Scraped.Control(id).RoundTrip(r)
	if err != nil {
		return nil, gone(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refuse(scheduler.NotYet, "%s answered %d to the question for its metrics (is it of an older release?)", p.Name, response.StatusCode)
	}
	text, err = io.ReadAll(io.LimitReader(response.Body, maxScrape+1))
	switch {
	case err != nil:
		return nil, gone(err)
	case len(text) > maxScrape:
		return nil, refuse(scheduler.EngineFailed, "%s has more than the %d bytes of metrics that are taken", p.Name, maxScrape)
	}
	if text, err = metrics.Foreign(text); err != nil {
		no := refuse(scheduler.EngineFailed, "what %s has of metrics is not taken", p.Name)
		no.cause = err
		return nil, no
	}
	return text, nil
}

func textOf(m *metrics.Metrics) ([]byte, error) {
	var text bytes.Buffer
	err := m.Write(&text)
	return text.Bytes(), err
}

func writeMetrics(w http.ResponseWriter, text []byte) {
	h := w.Header()
	h.Set("Content-Type", metrics.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	w.Write(text)
}

// MeshFigures says for the metrics what a scheduler knows of its mesh.
func MeshFigures(peers []scheduler.PeerState, models []scheduler.ModelState) metrics.Mesh {
	mesh := metrics.Mesh{Peers: map[string]int{}}
	for _, p := range peers {
		mesh.Peers[p.State]++
		if p.Self {
			continue
		}
		l := metrics.Link{Peer: p.ID, Via: p.Link.Path}
		if p.Link.RTTMS != nil {
			l.RTT = time.Duration(*p.Link.RTTMS * float64(time.Millisecond))
		}
		mesh.Links = append(mesh.Links, l)
	}
	for _, m := range models {
		for _, r := range m.Replicas {
			state := r.State
			switch state {
			case scheduler.StateLoading, scheduler.StateReady, scheduler.StateDraining, scheduler.StateFailed, scheduler.StateRefused:
			default: // Of another release.
				state = metrics.Other
			}
			mesh.Replicas = append(mesh.Replicas, metrics.Replica{Model: m.Name, State: state})
		}
	}
	return mesh
}
