//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay/cmd/lab"
	"relay/cmd/stage"
)

const key = "rk-bench"

// onNetwork runs f on an empty lab, with a stage whose peers have no engine.
func onNetwork(f func(l *lab.Lab, s *stage.Stage) error) (err error) {
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s, err := stage.New(stage.Options{On: l.On, Dial: l.Dial, Env: func(string) []string {
		return []string{"RELAY_API_KEY=" + key, "RELAY_LLAMA_BIN=" + filepath.Join(os.DevNull, "none")}
	}})
	if err != nil {
		return err
	}
	s.Key = key
	defer func() { err = errors.Join(err, s.End()) }()
	return f(l, s)
}

// meshOf puts machines on the switch and starts a mesh on them.
func meshOf(ctx context.Context, l *lab.Lab, s *stage.Stage, n int) ([]*stage.Peer, error) {
	var peers []*stage.Peer
	invite := ""
	for i := range n {
		name := fmt.Sprint("peer", i)
		if err := l.Add(name); err != nil {
			return nil, err
		}
		var args []string
		if i > 0 {
			args = []string{"--join", invite}
		}
		p, err := s.Up(ctx, name, args...)
		if err != nil {
			return nil, err
		}
		peers = append(peers, p)
		if i == 0 {
			if invite, err = s.Invite(ctx, p, "--uses", fmt.Sprint(n)); err != nil {
				return nil, err
			}
		}
	}
	return peers, allAlive(ctx, peers)
}

// allAlive waits until each of the peers sees all of them alive, and nobody else.
func allAlive(ctx context.Context, peers []*stage.Peer) error {
	return stage.Until(ctx, fmt.Sprintf("%d peers see one another", len(peers)), func() bool {
		for _, p := range peers {
			seen, err := p.Sees(ctx)
			if err != nil || len(seen) != len(peers) {
				return false
			}
			for _, s := range seen {
				if s.State != "alive" {
					return false
				}
			}
		}
		return true
	})
}

// seconds is the time since a moment.
func seconds(since time.Time) float64 { return time.Since(since).Seconds() }
