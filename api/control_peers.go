package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/membership"
	"relay/scheduler"
)

// maxPeerAnswer bounds one answer, or one line of one, from another peer.
const maxPeerAnswer = 1 << 20

// PeerHandler answers what other peers ask over streams: what this one's replicas
// do, what is asked of the leader of a model, where the tensors lie that a worker is to
// have, to take in the models that a new member brings along, and, for admins' machines, to pull a model and to stop that.
func (c *Control) PeerHandler() http.Handler {
	mux := http.NewServeMux()
	// Older releases ask for this.
	mux.HandleFunc("GET /load", atOnce(c, func(*http.Request) (map[string]int, error) { return c.Scheduler.InFlight(), nil }))
	mux.HandleFunc("GET /workload", atOnce(c, func(*http.Request) ([]scheduler.Workload, error) {
		return append([]scheduler.Workload{}, c.Scheduler.Workload()...), nil
	}))
	mux.HandleFunc("POST /act", atOnce(c, c.obey))
	mux.HandleFunc("GET /tensors", atOnce(c, func(r *http.Request) ([]scheduler.TensorAt, error) {
		from, _ := p2p.RemotePeer(r.Context())
		return c.Scheduler.TensorsOf(from, r.URL.Query().Get("uid"))
	}))
	mux.HandleFunc("POST /pull", c.ofAdmins(inLines(c, func(ctx context.Context, body io.Reader, progress func(ProgressLine)) (scheduler.Outcome, error) {
		var q PullRequest
		if err := decodePeerBody(body, &q); err != nil {
			return scheduler.Outcome{}, err
		}
		out, err := c.Scheduler.Pull(ctx, scheduler.PullOptions{Name: q.Name, Limit: q.Limit}, report(progress))
		out.Limit = q.Limit
		return out, err
	})))
	mux.HandleFunc("POST /stop", c.ofAdmins(atOnce(c, func(r *http.Request) (scheduler.Stopped, error) {
		var q StopRequest
		if err := decodePeerBody(r.Body, &q); err != nil {
			return scheduler.Stopped{}, err
		}
		return c.Scheduler.StopPull(r.Context(), q.Name, q.Cancel)
	})))
	mux.HandleFunc("POST /carried", atOnce(c, func(r *http.Request) (struct{}, error) {
		var list []scheduler.Carried
		if err := decodePeerBody(r.Body, &list); err != nil {
			return struct{}{}, err
		}
		from, _ := p2p.RemotePeer(r.Context())
		return struct{}{}, c.Scheduler.TakeIn(from, list)
	}))
	c.routePeerAudit(mux)
	return http.MaxBytesHandler(mux, maxControlBody)
}

// ofAdmins serves what only an admin's machine may tell another one to do.
func (c *Control) ofAdmins(h http.HandlerFunc) http.HandlerFunc {
	no := atOnce(c, func(*http.Request) (struct{}, error) {
		return struct{}{}, scheduler.Errorf(scheduler.NotAllowed, "only an admin's machine may tell another one to pull, or to stop that")
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if from, _ := p2p.RemotePeer(r.Context()); !c.isAdmin(from) {
			no(w, r)
			return
		}
		h(w, r)
	}
}

func (c *Control) isAdmin(id peer.ID) bool {
	m, ok := c.Mesh.Roster().Member(id)
	return ok && m.Role == membership.RoleAdmin
}

// peerClient asks other peers.
type peerClient struct{ mesh ControlMesh }

func (c *Control) peers() peerClient { return peerClient{c.Mesh} }

func (p peerClient) do(ctx context.Context, to, method, path string, body any) (*http.Response, error) {
	id, err := peer.Decode(to)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://peer"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return p.mesh.Control(id).RoundTrip(r)
}

func (p peerClient) pull(ctx context.Context, to scheduler.PeerState, q PullRequest, progress func(ProgressLine)) (scheduler.Outcome, error) {
	response, err := p.do(ctx, to.ID, http.MethodPost, "/pull", q)
	if err != nil {
		return scheduler.Outcome{}, scheduler.Errorf(scheduler.PeerGone, "%s cannot be reached: %w", to.Name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(response.Body, maxPeerAnswer))
		return scheduler.Outcome{}, peerRefusal(to, response, data)
	}
	out, err := readLines[scheduler.Outcome](response.Body, decodeTold, progress)
	if err == nil && out.Limit != q.Limit {
		out.Warnings = append(out.Warnings, to.Name+" is of an older release that knows no limits: it has pulled as fast as it could")
	}
	return out, err
}

func (p peerClient) stop(ctx context.Context, to scheduler.PeerState, q StopRequest) (scheduler.Stopped, error) {
	var stopped scheduler.Stopped
	response, err := p.do(ctx, to.ID, http.MethodPost, "/stop", q)
	if err != nil {
		return stopped, scheduler.Errorf(scheduler.PeerGone, "%s cannot be reached: %w", to.Name, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxPeerAnswer))
	if err != nil {
		return stopped, scheduler.Errorf(scheduler.PeerGone, "%s went away before it had answered: %w", to.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		return stopped, peerRefusal(to, response, data)
	}
	return stopped, decodeTold(data, &stopped)
}

// peerRefusal is why another peer did not do what it was asked.
func peerRefusal(to scheduler.PeerState, response *http.Response, data []byte) error {
	var line Line[struct{}]
	if decodeTold(data, &line) == nil && line.Error != nil {
		return line.Error
	}
	return fmt.Errorf("%s answered %d %s (is it of an older version?)", to.Name, response.StatusCode, http.StatusText(response.StatusCode))
}

// ReadLines reads the streamed answer of the peer on this machine to its outcome.
func ReadLines[T any](body io.Reader, progress func(ProgressLine)) (T, error) {
	return readLines[T](body, json.Unmarshal, progress)
}

func readLines[T any](body io.Reader, decode func([]byte, any) error, progress func(ProgressLine)) (T, error) {
	var none T
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxPeerAnswer)
	for lines.Scan() {
		var l Line[T]
		if err := decode(lines.Bytes(), &l); err != nil {
			return none, fmt.Errorf("an answer that is no JSON: %w", err)
		}
		switch {
		case l.Error != nil:
			return none, l.Error
		case l.Result != nil:
			return *l.Result, nil
		case l.Progress != nil && progress != nil:
			progress(*l.Progress)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return none, fmt.Errorf("a line of the answer is longer than the %d bytes that are taken", maxPeerAnswer)
	}
	return none, &scheduler.Error{Why: scheduler.PeerGone, Message: "the peer went away before it was done", Err: lines.Err()}
}
