//go:build linux

package seam

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"relay/cmd/lab"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

const (
	// model is what the mesh serves.
	model = "tiny"
	// contextTokens is what one answer may take: what the demo model was made for.
	contextTokens = 2048
	key           = "rk-seam"
	// entrance is the peer that clients ask. It lends nothing, and is never cut.
	entrance = "entrance"
)

// Options are what a mesh is made of.
type Options struct {
	// Binary is the program; empty means bin/relay.
	Binary string
	// Serving is how many peers serve the model, each with a replica: at least two.
	Serving int
	// Args are further arguments for the engines.
	Args []string
	// File is a model's file; empty means the demo model.
	File string
	// Lab has each peer on a machine of its own, whose cable can be pulled; nil means
	// loopback.
	Lab *lab.Lab
}

// Mesh is peers that serve one model, and one that only lets clients in. Its methods
// are for one goroutine.
type Mesh struct {
	*stage.Stage
	Entrance *stage.Peer

	lab     *lab.Lab
	serving []string
	ids     map[string]string // Of the peers, by name.
	names   map[string]string // And the other way round.
	client  *http.Client
	bare    *bare            // The engine that is asked without relay.
	wholes  map[string]chain // By question: what it says that nobody disturbs.
}

// New puts the peers up, and returns when all of them serve. End is to be called then.
func New(ctx context.Context, o Options) (m *Mesh, err error) {
	so := stage.Options{Binary: o.Binary, Env: func(string) []string { return []string{"RELAY_API_KEY=" + key} }}
	if o.Lab != nil {
		so.On, so.Dial = o.Lab.On, o.Lab.Dial
	}
	s, err := stage.New(so)
	if err != nil {
		return nil, err
	}
	s.Key = key
	defer func() {
		if err != nil {
			err = errors.Join(err, s.End())
		}
	}()
	m = &Mesh{Stage: s, lab: o.Lab, ids: map[string]string{}, names: map[string]string{}, wholes: map[string]chain{}}
	for i := range o.Serving {
		m.serving = append(m.serving, fmt.Sprint("serving", i))
	}
	for _, name := range append([]string{entrance}, m.serving...) {
		if o.Lab != nil {
			if err := o.Lab.Add(name); err != nil {
				return nil, err
			}
		}
	}
	m.client = m.clientOf()
	if m.Entrance, err = s.Up(ctx, entrance, "--lend", "none"); err != nil {
		return nil, err
	}
	invite, err := s.Invite(ctx, m.Entrance, "--uses", fmt.Sprint(o.Serving))
	if err != nil {
		return nil, err
	}
	for _, name := range m.serving {
		if err := m.up(ctx, name, "--join", invite); err != nil {
			return nil, err
		}
	}
	if err := m.meet(ctx); err != nil {
		return nil, err
	}
	if err := m.load(ctx, o); err != nil {
		return nil, err
	}
	m.bare, err = m.startBare(ctx)
	return m, err
}

// End takes everything down.
func (m *Mesh) End() error {
	m.bare.stop()
	return m.Stage.End()
}

// up starts a peer that serves. One thread is enough for a small model, and leaves the
// machine's other cores to the other peers.
func (m *Mesh) up(ctx context.Context, name string, args ...string) error {
	_, err := m.Up(ctx, name, append(args, "--lend-cores", "1")...)
	return err
}

// meet waits until the entrance sees all alive, and learns their ids.
func (m *Mesh) meet(ctx context.Context) error {
	return stage.Until(ctx, "the entrance sees all peers", func() bool {
		seen, err := m.Entrance.Sees(ctx)
		if err != nil || len(seen) != len(m.serving)+1 {
			return false
		}
		for name, s := range seen {
			if s.State != "alive" {
				return false
			}
			m.ids[name], m.names[s.ID] = s.ID, name
		}
		return true
	})
}

// load adds the model at the entrance, has the others pull it, and waits until each
// has a replica.
func (m *Mesh) load(ctx context.Context, o Options) (err error) {
	if o.File == "" {
		if o.File, err = demo.Write(m.Dir); err != nil {
			return err
		}
	}
	if err := m.Entrance.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: model, Paths: []string{o.File}, Context: contextTokens, Slots: 2, Args: o.Args}, &struct{}{}); err != nil {
		return err
	}
	for _, name := range m.serving {
		p := m.Peer(name)
		if err := stage.Until(ctx, name+" knows who has the model", func() bool {
			var all []scheduler.ModelState
			return p.Ask(ctx, "/v0/models", nil, &all) == nil && len(all) > 0 && len(all[0].Holders) > 0
		}); err != nil {
			return err
		}
		if err := p.Follow(ctx, "/v0/model/pull", map[string]string{"name": model}, &struct{}{}); err != nil {
			return err
		}
	}
	if err := m.Entrance.Ask(ctx, "/v0/model/set", map[string]any{"name": model, "min": o.Serving}, nil); err != nil {
		return err
	}
	return m.Ready(ctx, o.Serving)
}

// Ready waits until so many replicas are ready on peers that are alive, as the entrance
// sees it.
func (m *Mesh) Ready(ctx context.Context, replicas int) error {
	return stage.Until(ctx, fmt.Sprintf("%d replicas are ready", replicas), func() bool {
		var all []scheduler.ModelState
		seen, err := m.Entrance.Sees(ctx)
		if err != nil || m.Entrance.Ask(ctx, "/v0/models", nil, &all) != nil || len(all) != 1 {
			return false
		}
		ready := 0
		for _, r := range all[0].Replicas {
			if r.State == scheduler.StateReady && seen[m.names[r.Peer]].State == "alive" {
				ready++
			}
		}
		return ready >= replicas
	})
}
