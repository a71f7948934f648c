//go:build linux

package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/lab"
	"relay/cmd/stage"
)

// busyFor is how long the machine is kept busy.
var busyFor = flag.Duration("busy", 10*time.Minute, "how long the cores are kept busy for false_suspects_per_hour")

// falseSuspects: how often a peer takes another for suspect or gone while
// nothing happens to any of them, but every core is kept busy by a program of
// somebody else's. The sum over all peers of the mesh.
func falseSuspects(ctx context.Context) error {
	return onNetwork(func(l *lab.Lab, s *stage.Stage) error {
		peers, err := meshOf(ctx, l, s, watched)
		if err != nil {
			return err
		}
		before, err := suspicions(peers)
		if err != nil {
			return err
		}
		busy, stop := context.WithTimeout(ctx, *busyFor)
		defer stop()
		var hogs []*exec.Cmd
		for range runtime.NumCPU() {
			hog := exec.CommandContext(busy, "sh", "-c", "while :; do :; done")
			if err := hog.Start(); err != nil {
				return err
			}
			hogs = append(hogs, hog)
		}
		figure.Say("%d cores are busy for %s; %d peers watch one another", len(hogs), *busyFor, len(peers))
		began := time.Now()
		for _, hog := range hogs {
			_ = hog.Wait() // Killed when its time is over.
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		took := time.Since(began)
		after, err := suspicions(peers)
		if err != nil {
			return err
		}
		figure.Value("false_suspects_per_hour", float64(after-before)/took.Hours(), "1/h")
		return nil
	})
}

// suspicions counts what the peers' logs say of others that fell silent.
func suspicions(peers []*stage.Peer) (n int, err error) {
	for _, p := range peers {
		log, err := os.ReadFile(p.Log())
		if err != nil {
			return 0, err
		}
		n += bytes.Count(log, []byte(`"peer is suspect"`)) + bytes.Count(log, []byte(`"peer is gone"`))
	}
	return n, nil
}
