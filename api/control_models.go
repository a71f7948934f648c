package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"relay/p2p/membership"
	"relay/scheduler"
	"relay/store/content"
)

// routeModels adds what is about models and the disk that they lie on.
func (c *Control) routeModels(mux *http.ServeMux) {
	mux.HandleFunc("GET /v0/models", atOnce(c, func(*http.Request) ([]scheduler.ModelState, error) { return c.Scheduler.ModelStates(), nil }))
	mux.HandleFunc("GET /v0/model", atOnce(c, c.showModel))
	mux.HandleFunc("POST /v0/model/rm", atOnce(c, c.removeModel))
	mux.HandleFunc("POST /v0/model/set", atOnce(c, c.setModel))
	mux.HandleFunc("POST /v0/model/add", inLines(c, c.addModel))
	mux.HandleFunc("POST /v0/model/pull", inLines(c, c.pullModel))
	mux.HandleFunc("POST /v0/model/stop", atOnce(c, c.stopPull))
	mux.HandleFunc("GET /v0/disk", atOnce(c, func(*http.Request) (scheduler.DiskUse, error) { return c.Scheduler.DiskUse(), nil }))
	mux.HandleFunc("POST /v0/cache/prune", atOnce(c, func(r *http.Request) (scheduler.Pruned, error) {
		var q scheduler.PruneOptions
		if err := decodeBody(r.Body, &q); err != nil {
			return scheduler.Pruned{}, err
		}
		return c.Scheduler.Prune(r.Context(), q)
	}))
}

// ModelShown is all that is known of one model.
type ModelShown struct {
	scheduler.ModelState
	// Unanswered are the ids of the peers that were asked what their replicas do and
	// did not answer in time.
	Unanswered []string `json:"unanswered"`
}

func (c *Control) showModel(r *http.Request) (ModelShown, error) {
	m, err := c.Scheduler.Model(r.URL.Query().Get("name"))
	if err != nil {
		return ModelShown{}, err
	}
	shown := ModelShown{m, []string{}}
	peers := c.running(m)
	answers := c.askWorkloads(r.Context(), peers)
	fillIn(&shown.ModelState, answers)
	for _, p := range peers {
		if _, ok := answers[p.ID]; !ok {
			shown.Unanswered = append(shown.Unanswered, p.ID)
		}
	}
	return shown, nil
}

// RemoveRequest says which model goes, and whether its files do.
type RemoveRequest struct {
	Name string `json:"name"`
	// Files deletes the pulled files of this machine; LastCopy also where no
	// other peer has them.
	Files    bool `json:"files,omitempty"`
	LastCopy bool `json:"last_copy,omitempty"`
}

func (c *Control) removeModel(r *http.Request) (scheduler.Removed, error) {
	var q RemoveRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return scheduler.Removed{}, err
	}
	return c.Scheduler.Remove(r.Context(), q.Name, q.Files, q.LastCopy)
}

// ModelSetRequest says what is to be changed of a model; what is left out stays.
type ModelSetRequest struct {
	Name string `json:"name"`
	scheduler.SetOptions
}

const (
	// MaxReplicas bounds the replicas of a model that somebody may ask for, and
	// MaxIdleUnload the time without a request after which one is unloaded.
	MaxReplicas   = 64
	MaxIdleUnload = 365 * 24 * time.Hour
)

// check names what a model cannot be set to.
func (q ModelSetRequest) check() error {
	for _, n := range []*int{q.Min, q.Max} {
		if n != nil && (*n < 0 || *n > MaxReplicas) {
			return scheduler.Errorf(scheduler.InvalidRequest, "the number of replicas cannot be %d: 0 to %d are possible", *n, MaxReplicas)
		}
	}
	switch {
	case q.Min != nil && q.Max != nil && *q.Max > 0 && *q.Min > *q.Max:
		return scheduler.Errorf(scheduler.InvalidRequest, "%d replicas or more and %d at most: that cannot be", *q.Min, *q.Max)
	case q.IdleUnload != nil && (*q.IdleUnload < 0 || *q.IdleUnload > int64(MaxIdleUnload/time.Second)):
		return scheduler.Errorf(scheduler.InvalidRequest, "unloading after %d seconds: 1 to %d are possible, or 0 for never", *q.IdleUnload, MaxIdleUnload/time.Second)
	}
	return nil
}

// ModelSetAnswer is the model after a change, and what changed, each in words.
type ModelSetAnswer struct {
	Model   scheduler.ModelState `json:"model"`
	Changed []string             `json:"changed"`
	// Warnings say what was set and has no effect.
	Warnings []string `json:"warnings"`
}

func (c *Control) setModel(r *http.Request) (ModelSetAnswer, error) {
	var q ModelSetRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return ModelSetAnswer{}, err
	}
	if err := q.check(); err != nil {
		return ModelSetAnswer{}, err
	}
	if q.Only != nil && *q.Only != "" {
		only, err := findPeer(c.Scheduler.Peers(), *q.Only)
		if err != nil {
			return ModelSetAnswer{}, err
		}
		q.Only = &only.ID
	}
	m, changed, err := c.Scheduler.Set(q.Name, q.SetOptions)
	if errors.Is(err, membership.ErrNotAllowed) {
		err = scheduler.Errorf(scheduler.NotAllowed, "models are changed on an admin's machine (relay peer ls shows which)")
	}
	return ModelSetAnswer{m, changed, q.withoutEffect(m)}, err
}

// withoutEffect says what of the question has none on the model as it is now.
func (q ModelSetRequest) withoutEffect(m scheduler.ModelState) []string {
	if m.Pinned && m.IdleUnload > 0 && (q.Pinned != nil || q.IdleUnload != nil) {
		return []string{fmt.Sprintf("%s is pinned: one replica stays loaded, however long nobody asks for it", m.Name)}
	}
	return []string{}
}

func (c *Control) addModel(ctx context.Context, body io.Reader, progress func(ProgressLine)) (scheduler.Outcome, error) {
	var q scheduler.AddOptions
	if err := decodeBody(body, &q); err != nil {
		return scheduler.Outcome{}, err
	}
	if len(q.Paths) == 0 {
		if q.Name != "demo" {
			return scheduler.Outcome{}, scheduler.Errorf(scheduler.InvalidRequest, "say where the file of %q is; only the model called demo comes without one", q.Name)
		}
		path, err := c.DemoPath()
		if err != nil {
			return scheduler.Outcome{}, err
		}
		q.Paths = []string{path}
	}
	return c.Scheduler.Add(ctx, q, report(progress))
}

// PullRequest says which model to bring, and to which peer; none means here.
type PullRequest struct {
	Name string `json:"name"`
	To   string `json:"to,omitempty"`
	// Limit is the most that is received, in bytes a second; 0 is as much as comes.
	Limit int64 `json:"limit,omitempty"`
}

func (c *Control) pullModel(ctx context.Context, body io.Reader, progress func(ProgressLine)) (scheduler.Outcome, error) {
	var q PullRequest
	if err := decodeBody(body, &q); err != nil {
		return scheduler.Outcome{}, err
	}
	to, err := c.other(q.To)
	if err != nil {
		return scheduler.Outcome{}, err
	}
	if to != nil {
		q.To = ""
		return c.peers().pull(ctx, *to, q, progress)
	}
	return c.Scheduler.Pull(ctx, scheduler.PullOptions{Name: q.Name, Limit: q.Limit}, report(progress))
}

// other is the peer of that name, or nil where that is this one or none is named.
func (c *Control) other(name string) (*scheduler.PeerState, error) {
	if name == "" {
		return nil, nil
	}
	to, err := findPeer(c.Scheduler.Peers(), name)
	if err != nil || to.Self {
		return nil, err
	}
	return &to, nil
}

// StopRequest says which pull is stopped, and on which peer; none means here.
type StopRequest struct {
	Name string `json:"name"`
	To   string `json:"to,omitempty"`
	// Cancel deletes what is there of it.
	Cancel bool `json:"cancel,omitempty"`
}

func (c *Control) stopPull(r *http.Request) (scheduler.Stopped, error) {
	var q StopRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return scheduler.Stopped{}, err
	}
	to, err := c.other(q.To)
	if err != nil {
		return scheduler.Stopped{}, err
	}
	if to != nil {
		q.To = ""
		return c.peers().stop(r.Context(), *to, q)
	}
	return c.Scheduler.StopPull(r.Context(), q.Name, q.Cancel)
}

// maxSources bounds the peers that a line of progress names.
const maxSources = 16

func report(progress func(ProgressLine)) func(content.Progress) {
	return func(p content.Progress) { progress(lineOf(p)) }
}

func lineOf(p content.Progress) ProgressLine {
	l := ProgressLine{Phase: string(p.Phase), Why: p.Why, Done: p.Done, Total: p.Total, Fetched: p.Fetched, Rate: p.Rate}
	if p.Rate > 0 && p.Left >= 0 {
		seconds := p.Left.Seconds()
		l.Left = &seconds
	}
	for _, f := range p.From[:min(len(p.From), maxSources)] {
		l.From = append(l.From, SourceLine{f.Name, f.Bytes, f.Rate})
	}
	return l
}
