package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"relay/cmd/stage"
	"relay/llama"
)

// plain is an engine and its rpc-servers as a person would start them: by TCP on
// loopback, with nothing in between.
type plain struct {
	door    string
	running []*exec.Cmd
	said    ending
}

// ending keeps the end of what several processes print.
type ending struct {
	mu   sync.Mutex
	text []byte
}

func (e *ending) Write(p []byte) (int, error) {
	const most = 2048
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, p...)
	e.text = e.text[max(0, len(e.text)-most):]
	return len(p), nil
}

func (e *ending) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.text)
}

// startPlain starts what runs in a mesh a second time, with the same arguments and the
// same layers at each server, but for where they listen.
func startPlain(ctx context.Context, m *mesh) (p *plain, err error) {
	e, err := llama.Find(ctx, llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil {
		return nil, err
	}
	args, err := engineArgs(m.path)
	if err != nil {
		return nil, err
	}
	p = &plain{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	r, ok := m.group(ctx, m.peers[0])
	if !ok {
		return nil, errors.New("no group runs that could be started a second time")
	}
	var servers []string
	for range r.Shares {
		at, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(at)
		if err := p.start(m.Dir, e.RPCServer, "--host", "127.0.0.1", "--port", port, "--threads", "1", "--device", "CPU"); err != nil {
			return nil, err
		}
		if err := stage.Until(ctx, "an rpc-server listens", func() bool { return listens(at) }); err != nil {
			return nil, err
		}
		servers = append(servers, at)
	}
	at, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(at)
	args = with(with(args, "--host", ""), "--port", "")
	args = with(with(args, "--api-key-file", ""), "--rpc", strings.Join(servers, ","))
	args = append(args, "--host", "127.0.0.1", "--port", port)
	if err := p.start(m.Dir, e.Server, args...); err != nil {
		return nil, err
	}
	p.door = "http://" + at
	return p, stage.Until(ctx, "the plain engine is ready", func() bool {
		response, err := http.Get(p.door + "/health")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func (p *plain) start(dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GGML_NO_BACKTRACE=1", "LLAMA_CACHE="+filepath.Join(dir, "plain"))
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running = append(p.running, cmd)
	return nil
}

// stop ends the engine, and then its servers.
func (p *plain) stop() {
	for _, cmd := range slices.Backward(p.running) {
		_ = cmd.Process.Kill() // It may have ended by itself.
		_ = cmd.Wait()
	}
}

// listens says whether a port of this machine is listened on, without a connection: an
// rpc-server serves one at a time.
func listens(at string) bool {
	_, port, _ := net.SplitHostPort(at)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err == nil {
		_ = l.Close()
	}
	return err != nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// engineArgs are the arguments of the engine that runs with a model's file.
func engineArgs(path string) ([]string, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		said, err := os.ReadFile(line)
		if err != nil {
			continue // It has ended.
		}
		words := strings.Split(string(bytes.TrimSuffix(said, []byte{0})), "\x00")
		if filepath.Base(words[0]) == "llama-server" && slices.Contains(words, path) {
			return words[1:], nil
		}
	}
	return nil, fmt.Errorf("no engine runs with %s", path)
}

// with is some arguments with another value of an option that is among them, or
// without it. They stay in order: devices have to be known before they are named.
func with(args []string, option, value string) []string {
	i := slices.Index(args, option)
	switch args = slices.Clone(args); {
	case i < 0:
	case value == "":
		args = slices.Delete(args, i, i+2)
	default:
		args[i+1] = value
	}
	return args
}
