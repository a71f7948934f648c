//go:build linux

package seam

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"relay/cmd/stage"
)

// victim is a peer that is cut from a stream, and its engine.
type victim struct {
	peer   *stage.Peer
	engine engine
}

// Cut is a way in which a stream loses the peer that serves it.
type Cut struct {
	Name string
	// do lets it happen; undo brings the peer back, once the stream has ended.
	do   func(ctx context.Context, m *Mesh, v victim) error
	undo func(ctx context.Context, m *Mesh, v victim) error
	// lasts is how long it lasts at least: a peer that is back sooner is taken for one
	// whose link falls silent for moments, and its next silence is noticed later.
	lasts time.Duration
	// slow: it takes time to let it happen, and the client reads on meanwhile.
	slow bool
}

// outage is how long a peer is frozen or unplugged at least.
const outage = 2 * time.Second

// The ways.
var (
	// Killed is kill -9 of a peer and of its engine. It is put up again.
	Killed = Cut{"killed",
		func(_ context.Context, _ *Mesh, v victim) error { return v.signal(syscall.SIGKILL) },
		func(ctx context.Context, m *Mesh, v victim) error {
			select {
			case <-v.peer.Ended():
			case <-ctx.Done():
				return ctx.Err()
			}
			return m.up(ctx, v.peer.Name)
		}, 0, false}
	// Frozen is a peer and an engine that are stopped where they stand, and whose
	// connections stay. They go on after the stream.
	Frozen = Cut{"frozen",
		func(_ context.Context, _ *Mesh, v victim) error { return v.signal(syscall.SIGSTOP) },
		func(_ context.Context, _ *Mesh, v victim) error { return v.signal(syscall.SIGCONT) }, outage, false}
	// Unplugged is a machine whose cable is pulled; it needs a lab. The cable is put back.
	Unplugged = Cut{"unplugged",
		func(_ context.Context, m *Mesh, v victim) error {
			if m.lab == nil {
				return errors.New("there are no cables on loopback")
			}
			return m.lab.Pull(v.peer.Name)
		},
		func(_ context.Context, m *Mesh, v victim) error { return m.lab.Plug(v.peer.Name) }, outage, true}
	// Drained is a peer that is told to move away what runs there: `relay peer drain`.
	Drained = Cut{"drained",
		func(ctx context.Context, m *Mesh, v victim) error { return m.drain(ctx, v, true) },
		func(ctx context.Context, m *Mesh, v victim) error { return m.drain(ctx, v, false) }, 0, true}
)

func (m *Mesh) drain(ctx context.Context, v victim, yes bool) error {
	return m.Entrance.Ask(ctx, "/v0/peer/set", map[string]any{"peer": v.peer.Name, "drain": yes}, nil)
}

// Cut asks, and lets it happen to the peer that serves when the client has read so many
// pieces of the answer. It returns when the stream has ended and the peer is on its way
// back. Two replicas are ready when it begins. Where the answer has fewer pieces nothing
// happens. What is wrong with the stream is in it; an error is one of the mesh.
func (m *Mesh) Cut(ctx context.Context, c Cut, q Question, after int) (Stream, error) {
	if err := m.Ready(ctx, 2); err != nil {
		return Stream{}, err
	}
	all, err := m.engines()
	if err != nil {
		return Stream{}, err
	}
	var v victim
	done := make(chan error, 1)
	happened := false
	var at time.Time
	s := m.ask(ctx, q, func(id string) {
		name := m.names[id]
		v = victim{m.Peer(name), all[name]}
	}, func(pieces int) {
		if pieces != after || v.peer == nil || v.engine.pid == 0 {
			return
		}
		happened, at = true, time.Now()
		if !c.slow {
			done <- c.do(ctx, m, v)
			return
		}
		go func() { done <- c.do(ctx, m, v) }()
	})
	switch {
	case happened:
		if err := <-done; err != nil {
			return s, err
		}
		select {
		case <-time.After(time.Until(at.Add(c.lasts))):
		case <-ctx.Done(): // What was frozen has to go on all the same.
		}
		return s, c.undo(ctx, m, v)
	case s.Broken == nil && v.engine.pid == 0:
		return s, fmt.Errorf("it was served by %q, of which no engine was found", s.Peer)
	}
	return s, nil
}
