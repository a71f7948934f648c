package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
	"relay/scheduler"
)

const (
	key  = "rk-bench"
	name = "large"
	// layers is how many the model has; its file has some 385 MB.
	layers = 8
	// needsTwo and needsThree are how many MiB each peer lends where two of them, or
	// three, are to be needed.
	needsTwo, needsThree = 330, 250
	// plenty is enough for the whole model.
	plenty = 1024
)

// writeModel makes the model: random weights, of which those of the feed-forward
// layers are over 10 MiB each.
func writeModel(path string) error {
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		return err
	}
	return gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: layers, Width: 2048, KVWidth: 512, HeadWidth: 64, FeedForward: 5632, Train: 4096}.Write(path, from)
}

// mesh is peers of this machine and the model, which the first ones hold.
type mesh struct {
	*stage.Stage
	peers []*stage.Peer
	ids   map[string]string // Of the peers, by name.
	names map[string]string // Of the peers, by id.
	lend  int
	path  string // Of the model's file.
	met   time.Time
}

// onMesh runs f on as many peers, which lend one core and so many MiB each. The first
// few of them hold the model.
func onMesh(ctx context.Context, peers, lend, holders int, f func(*mesh) error) (err error) {
	s, err := stage.New(stage.Options{Env: func(string) []string { return []string{"RELAY_API_KEY=" + key} }})
	if err != nil {
		return err
	}
	s.Key = key
	defer func() { err = errors.Join(err, s.End()) }()
	m := &mesh{Stage: s, ids: map[string]string{}, names: map[string]string{}, lend: lend, path: filepath.Join(s.Dir, "large.gguf")}
	if err := writeModel(m.path); err != nil {
		return err
	}
	for i, name := range []string{"attic", "den", "cellar"}[:peers] {
		var join []string
		if i > 0 {
			invite, err := s.Invite(ctx, m.peers[0])
			if err != nil {
				return err
			}
			join = []string{"--join", invite}
		}
		if err := m.up(ctx, name, join...); err != nil {
			return err
		}
	}
	if err := m.meet(ctx); err != nil {
		return err
	}
	// --poll 0: threads sleep while they wait.
	if err := m.peers[0].Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: name, Paths: []string{m.path}, Context: 1024, Slots: 1, Args: []string{"--poll", "0"}}, &struct{}{}); err != nil {
		return err
	}
	for _, p := range m.peers[1:holders] {
		if err := stage.Until(ctx, p.Name+" knows the model", func() bool {
			_, err := m.sees(ctx, p)
			return err == nil
		}); err != nil {
			return err
		}
		if err := p.Follow(ctx, "/v0/model/pull", map[string]string{"name": name}, &struct{}{}); err != nil {
			return err
		}
	}
	return f(m)
}

// up starts a peer, and puts it at the end of the list.
func (m *mesh) up(ctx context.Context, name string, args ...string) error {
	p, err := m.Up(ctx, name, append(args, "--lend-cores", "1", "--lend-mb", fmt.Sprint(m.lend))...)
	if err != nil {
		return err
	}
	m.peers = append(m.peers, p)
	return nil
}

// meet waits until all see all alive, and learns their ids.
func (m *mesh) meet(ctx context.Context) error {
	err := stage.Until(ctx, "all peers see one another", func() bool {
		for _, p := range m.peers {
			seen, err := p.Sees(ctx)
			if err != nil || len(seen) != len(m.peers) {
				return false
			}
			for name, s := range seen {
				if s.State != "alive" {
					return false
				}
				m.ids[name], m.names[s.ID] = s.ID, name
			}
		}
		return true
	})
	m.met = time.Now()
	return err
}

// sees is the model as a peer knows it at this moment, without asking others.
func (m *mesh) sees(ctx context.Context, p *stage.Peer) (scheduler.ModelState, error) {
	var all []scheduler.ModelState
	if err := p.Ask(ctx, "/v0/models", nil, &all); err != nil {
		return scheduler.ModelState{}, err
	}
	for _, is := range all {
		if is.Name == name {
			return is, nil
		}
	}
	return scheduler.ModelState{}, fmt.Errorf("%s knows no %s", p.Name, name)
}

// group is the replica that serves on several peers, as a peer knows it now.
func (m *mesh) group(ctx context.Context, p *stage.Peer) (scheduler.ReplicaState, bool) {
	is, err := m.sees(ctx, p)
	for _, r := range is.Replicas {
		if err == nil && r.State == scheduler.StateReady && len(r.Shares) > 0 {
			return r, true
		}
	}
	return scheduler.ReplicaState{}, false
}

// spread has the model run on so many peers, and says how long that took.
func (m *mesh) spread(ctx context.Context, peers int) (time.Duration, error) {
	began := time.Now()
	if err := m.peers[0].Follow(ctx, "/v0/model/load", map[string]any{"name": name, "force": true}, &struct{}{}); err != nil {
		return 0, err
	}
	took := time.Since(began)
	r, ok := m.group(ctx, m.peers[0])
	if !ok || len(r.Shares) != peers-1 {
		return 0, fmt.Errorf("it does not run on %d peers: %+v", peers, r)
	}
	figure.Say("on %d peers after %s: %s", peers, took.Round(time.Millisecond), m.layout(r))
	return took, nil
}

// layout is who has which layers.
func (m *mesh) layout(r scheduler.ReplicaState) string {
	text := m.names[r.Peer] + " coordinates"
	for _, s := range r.Shares {
		text += fmt.Sprintf(", %s has layers %d to %d", m.names[s.Peer], s.From, s.From+s.Layers-1)
	}
	return text
}

// size is the length of the model's file, in bytes.
func (m *mesh) size() (int64, error) {
	info, err := os.Stat(m.path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
