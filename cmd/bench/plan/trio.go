package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

const (
	key      = "rk-bench"
	question = "What is relay?"
	// elections is how many models are added until the wanted peer leads one: who
	// does is drawn by the model's id.
	elections = 40
	// standing is how old a mesh is when something happens to it: peers look for each
	// other's open ports every five seconds until they have found one, and only then
	// tell at once that a peer is dead rather than silent.
	standing = 7 * time.Second
)

// trio is three peers and a model: one serves it, one holds it and has not loaded
// it, and one has nothing of it and is asked.
type trio struct {
	*stage.Stage
	serving, holding, asked *stage.Peer
	model                   string
	ids                     map[string]string // Of the peers, by name.
}

// onStage runs f on an empty stage whose key is known.
func onStage(ctx context.Context, f func(*stage.Stage) error) (err error) {
	s, err := stage.New(stage.Options{Env: func(string) []string { return []string{"RELAY_API_KEY=" + key} }})
	if err != nil {
		return err
	}
	s.Key = key
	defer func() { err = errors.Join(err, s.End()) }()
	return f(s)
}

// onTrio runs f on three peers of which leads says whether it is to lead the model.
func onTrio(ctx context.Context, leads func(t *trio, p *stage.Peer) bool, f func(t *trio) error) error {
	return onStage(ctx, func(s *stage.Stage) error {
		t, err := newTrio(ctx, s, leads)
		if err != nil {
			return err
		}
		return f(t)
	})
}

func newTrio(ctx context.Context, s *stage.Stage, leads func(t *trio, p *stage.Peer) bool) (t *trio, err error) {
	t = &trio{Stage: s, ids: map[string]string{}}
	if t.serving, err = s.Up(ctx, "attic"); err != nil {
		return nil, err
	}
	invite, err := s.Invite(ctx, t.serving, "--uses", "2")
	if err != nil {
		return nil, err
	}
	if t.holding, err = s.Up(ctx, "den", "--join", invite); err != nil {
		return nil, err
	}
	if t.asked, err = s.Up(ctx, "cellar", "--join", invite); err != nil {
		return nil, err
	}
	if err := t.meet(ctx); err != nil {
		return nil, err
	}
	met := time.Now()
	path, err := demo.Write(s.Dir)
	if err != nil {
		return nil, err
	}
	if err := t.elect(ctx, path, leads); err != nil {
		return nil, err
	}
	if err := t.holding.Follow(ctx, "/v0/model/pull", map[string]string{"name": t.model}, &struct{}{}); err != nil {
		return nil, err
	}
	if err := stage.Until(ctx, "all know both holders", func() bool {
		for _, p := range t.peers() {
			if m, err := t.sees(ctx, p); err != nil || len(m.Holders) != 2 {
				return false
			}
		}
		return true
	}); err != nil {
		return nil, err
	}
	if err := pass(ctx, standing-time.Since(met)); err != nil {
		return nil, err
	}
	return t, s.Chat(ctx, t.asked, t.model, question, 4, func(string) {}) // All connections stand.
}

func (t *trio) peers() []*stage.Peer { return []*stage.Peer{t.serving, t.holding, t.asked} }

// meet waits until all see all alive, and learns their ids.
func (t *trio) meet(ctx context.Context) error {
	return stage.Until(ctx, "three peers see one another", func() bool {
		for _, p := range t.peers() {
			seen, err := p.Sees(ctx)
			if err != nil || len(seen) != len(t.peers()) {
				return false
			}
			for name, s := range seen {
				if s.State != "alive" {
					return false
				}
				t.ids[name] = s.ID
			}
		}
		return true
	})
}

// elect adds the model under one name after another until the right peer leads it.
func (t *trio) elect(ctx context.Context, path string, leads func(*trio, *stage.Peer) bool) error {
	for i := range elections {
		t.model = fmt.Sprint("tiny", i)
		if err := t.serving.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: t.model, Paths: []string{path}}, &struct{}{}); err != nil {
			return err
		}
		var leader *stage.Peer
		if err := stage.Until(ctx, t.model+" is served", func() bool {
			m, err := t.sees(ctx, t.asked)
			leader = t.leader(m)
			return err == nil && leader != nil && m.ready(t.ids[t.serving.Name])
		}); err != nil {
			return err
		}
		if leads(t, leader) {
			figure.Say("%s leads %s, %s serves it, %s holds it too, %s is asked", leader.Name, t.model, t.serving.Name, t.holding.Name, t.asked.Name)
			return nil
		}
		if err := t.serving.Ask(ctx, "/v0/model/rm", map[string]string{"name": t.model}, nil); err != nil {
			return err
		}
	}
	return fmt.Errorf("of %d models none is led by the peer that was to lead it", elections)
}

// leader is the peer that leads, or nil.
func (t *trio) leader(m model) *stage.Peer {
	for _, p := range t.peers() {
		if m.Leader != nil && m.Leader.Peer == t.ids[p.Name] {
			return p
		}
	}
	return nil
}

// model is the part of a peer's view of one that is looked at here.
type model struct {
	Name     string
	Leader   *struct{ Peer string }
	Holders  []string
	Replicas []struct{ Peer, State string }
}

func (m model) ready(peer string) bool {
	for _, r := range m.Replicas {
		if r.Peer == peer && r.State == scheduler.StateReady {
			return true
		}
	}
	return false
}

// sees is the model as a peer knows it at this moment, without asking others.
func (t *trio) sees(ctx context.Context, p *stage.Peer) (model, error) {
	var all []model
	if err := p.Ask(ctx, "/v0/models", nil, &all); err != nil {
		return model{}, err
	}
	for _, m := range all {
		if m.Name == t.model {
			return m, nil
		}
	}
	return model{}, fmt.Errorf("%s knows no %s", p.Name, t.model)
}

// looks is how often something is looked at that is waited for.
const looks = 10 * time.Millisecond

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
