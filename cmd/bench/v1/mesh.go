//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

const (
	key  = "rk-bench"
	name = "sim"
	// slots is as many as a model may have.
	slots = 64
)

// engine is how the stand-in behaves.
type engine struct {
	// decode is how many tokens a second each answer has; 0 means at once.
	decode float64
	// stamped: events carry the time at which the engine sent them, see stampEvents.
	stamped bool
}

// way is one of the ways to the engine.
type way struct {
	name   string
	url    string
	client *http.Client
	// pids are the processes on it, but for the client and the engine.
	pids []int
}

// mesh is a peer with the engine, one without, and nginx where there is one.
type mesh struct {
	*stage.Stage
	serving, entrance *stage.Peer
	direct            *way
	ways              []*way // The others: local, hop, and nginx where it is there.
}

// onMesh runs f with both peers up and the model loaded.
func onMesh(ctx context.Context, e engine, f func(*mesh) error) (err error) {
	var s *stage.Stage
	s, err = stage.New(stage.Options{Env: func(string) []string {
		return []string{"RELAY_API_KEY=" + key, "RELAY_LLAMA_BIN=" + filepath.Join(s.Dir, "llama-server")}
	}})
	if err != nil {
		return err
	}
	s.Key = key
	defer func() { err = errors.Join(err, s.End()) }()
	if err := e.write(s.Dir, s.Binary); err != nil {
		return err
	}
	m := &mesh{Stage: s}
	if m.serving, err = s.Up(ctx, "attic", "--sandbox", "off"); err != nil {
		return err
	}
	path := filepath.Join(s.Dir, "sim.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		return err
	}
	if err := m.serving.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: name, Paths: []string{path}, Context: 1024, Slots: slots}, &struct{}{}); err != nil {
		return err
	}
	invite, err := s.Invite(ctx, m.serving)
	if err != nil {
		return err
	}
	if m.entrance, err = s.Up(ctx, "den", "--join", invite, "--lend", "none"); err != nil {
		return err
	}
	for _, p := range []*stage.Peer{m.serving, m.entrance} {
		if err := stage.Until(ctx, p.Name+" answers", func() bool { return s.Chat(ctx, p, name, "hello", 2, func(string) {}) == nil }); err != nil {
			return err
		}
	}
	socket, err := engineSocket(s.Dir)
	if err != nil {
		return err
	}
	m.direct = &way{name: "direct", url: "http://engine", client: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
	m.ways = []*way{
		{name: "local", url: m.serving.Door, client: keeping(), pids: []int{m.serving.Pid()}},
		{name: "hop", url: m.entrance.Door, client: keeping(), pids: []int{m.entrance.Pid(), m.serving.Pid()}},
	}
	if proxy, stop, err := startNginx(ctx, s.Dir, socket); err == nil {
		defer stop()
		m.ways = append(m.ways, proxy)
	} else {
		figure.Say("NO FIGURES OF NGINX: %v", err)
	}
	return f(m)
}

// all are the ways, direct first.
func (m *mesh) all() []*way { return append([]*way{m.direct}, m.ways...) }

// keeping is a client that keeps its connections.
func keeping() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute}}
}

// write makes the script that a peer takes for llama-server. It notes with which
// arguments the engine was started, and gives it more slots, and longer ones, than
// relay knows of: the engine is not to be what is measured.
func (e engine) write(dir, relay string) error {
	program := relay + " sim-engine"
	if e.stamped {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		program = self + " " + stampingEngine + " " + relay
	}
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" --alias "*) printf '%%s\n' "$@" >%s;; esac
exec %s --quiet --decode %g "$@" --parallel 1024 --ctx-size 67108864
`, filepath.Join(dir, "args"), program, e.decode)
	return os.WriteFile(filepath.Join(dir, "llama-server"), []byte(script), 0o700)
}

// engineSocket is where the engine listens that was started last.
func engineSocket(dir string) (string, error) {
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		return "", err
	}
	_, after, found := strings.Cut(string(args), "--host\n")
	socket, _, _ := strings.Cut(after, "\n")
	if !found || !strings.HasSuffix(socket, ".sock") {
		return "", fmt.Errorf("the engine was started without a socket: %q", args)
	}
	return socket, nil
}
