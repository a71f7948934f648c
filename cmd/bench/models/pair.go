//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"relay/cmd/stage"
)

// patience bounds every command.
const patience = 10 * time.Minute

// pair is a mesh of two peers without engines: what one has, the other pulls.
type pair struct {
	stage          *stage.Stage
	holder, puller *stage.Peer
}

// settings of both peers.
var lendNothing = []string{"--lend", "none"}

// onPair runs f with a pair whose folders, all of them, are in dir.
func onPair(ctx context.Context, dir string, f func(*pair) error) (err error) {
	s, err := stage.New(stage.Options{Parent: dir, Env: func(peer string) []string {
		return []string{"RELAY_MODELS_DIR=" + modelsOf(dir, peer), "RELAY_LLAMA_BIN=" + filepath.Join(os.DevNull, "none")}
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	p := &pair{stage: s}
	if p.holder, err = s.Up(ctx, "holder", lendNothing...); err != nil {
		return err
	}
	// As an admin, it may take models out of the mesh again.
	invite, err := s.Invite(ctx, p.holder, "--admin")
	if err != nil {
		return err
	}
	if p.puller, err = s.Up(ctx, "puller", append([]string{"--join", invite}, lendNothing...)...); err != nil {
		return err
	}
	return f(p)
}

func modelsOf(dir, peer string) string { return filepath.Join(dir, peer+"-models") }

// models is the folder of a peer's pulled models.
func (p *pair) models(peer *stage.Peer) string { return modelsOf(p.stage.Parent, peer.Name) }

// add registers a file on the holder, and returns how long the command took.
func (p *pair) add(ctx context.Context, path string) (seconds float64, err error) {
	return timed(ctx, func(ctx context.Context) *exec.Cmd {
		return p.stage.Command(ctx, p.holder, "model", "add", modelOf(path), path)
	})
}

// modelOf is the name under which a file is added.
func modelOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".gguf") }

// pull brings a file that was added to the puller, and returns how long the
// command took and where the file lies.
func (p *pair) pull(ctx context.Context, path string) (seconds float64, pulled string, err error) {
	if err := p.known(ctx, path); err != nil {
		return 0, "", err
	}
	seconds, err = timed(ctx, func(ctx context.Context) *exec.Cmd {
		return p.stage.Command(ctx, p.puller, "model", "pull", modelOf(path))
	})
	if err != nil {
		return 0, "", err
	}
	pulled, err = p.pulled()
	return seconds, pulled, err
}

// known waits until the puller has heard of a file that was added, and reaches
// the holder.
func (p *pair) known(ctx context.Context, path string) error {
	return stage.Until(ctx, "the puller knows the model and its holder", func() bool {
		var model struct{ Holders []string }
		seen, err := p.puller.Sees(ctx)
		return err == nil && seen[p.holder.Name].State == "alive" &&
			p.puller.Ask(ctx, "/v0/model?name="+modelOf(path), nil, &model) == nil && len(model.Holders) == 1
	})
}

// pulled is the one file that the puller has.
func (p *pair) pulled() (string, error) {
	dir := p.models(p.puller)
	found, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s holds %d models instead of one", dir, len(found))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// drop takes a model out of the mesh, and deletes what the puller pulled.
func (p *pair) drop(ctx context.Context, path string) error {
	_, err := p.stage.Relay(ctx, p.puller, "model", "rm", modelOf(path), "--files", "--last-copy")
	return err
}

// timed runs a command and returns how long it took, from before its process
// started until after it ended.
func timed(ctx context.Context, command func(context.Context) *exec.Cmd) (seconds float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := command(ctx)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return time.Since(began).Seconds(), nil
}
