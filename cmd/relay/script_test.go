package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/llama"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine-shim" { // Started by a relay that is this very binary.
		os.Exit(llama.ShimMain(os.Args[2:]))
	}
	testscript.Main(m, map[string]func(){"relay": main})
}

// scriptKey opens every door of the scripts.
const scriptKey = "rk-script-key"

// TestScripts drives the program as people do: real processes, the real
// engine, loopback only. The commands beside testscript's own are below.
func TestScripts(t *testing.T) {
	if _, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")}); err != nil {
		t.Skipf("no engine: run `make engine` first (%v)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("RELAY_API_KEY", scriptKey)
			if bin := os.Getenv("RELAY_LLAMA_BIN"); bin != "" {
				e.Setenv("RELAY_LLAMA_BIN", bin)
			}
			e.Values[stageKey{}] = &stage{peers: map[string]*peerProcess{}, ports: map[string]int{}, p2p: map[string]int{}}
			e.Defer(func() { stageOf(e.Values).end() })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"up": cmdUp, "on": cmdOn, "crash": cmdCrash, "down": cmdDown, "eventually": cmdEventually,
			"chat": cmdChat, "http": cmdHTTP, "gone": cmdGone, "invite": cmdInvite, "json": cmdJSON, "holdport": cmdHoldPort, "truncate": cmdTruncate, "killengine": cmdKillEngine, "tmpfs": cmdTmpfs, "recoverycode": cmdRecoveryCode, "ended": cmdEnded,
		},
	})
}

type stageKey struct{}

// stage is the peers of one script.
type stage struct {
	peers  map[string]*peerProcess
	ports  map[string]int // Of /v1, kept over restarts.
	p2p    map[string]int
	closed []io.Closer
}

type peerProcess struct {
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func stageOf(values map[any]any) *stage { return values[stageKey{}].(*stage) }

func scriptStage(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

func (s *stage) end() {
	for _, p := range s.peers {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	for _, c := range s.closed {
		_ = c.Close()
	}
}

// environ is the script's environment with the state folder of one peer.
func environ(ts *testscript.TestScript, name string) []string {
	var env []string
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "RELAY_API_KEY", "RELAY_LLAMA_BIN", "RELAY_MODELS_DIR", "RELAY_DEBUG", "SYSTEMROOT"} {
		if v := ts.Getenv(key); v != "" {
			env = append(env, key+"="+v)
		}
	}
	return append(env, "RELAY_STATE_DIR="+stateOf(ts, name))
}

func stateOf(ts *testscript.TestScript, name string) string {
	return ts.MkAbs(filepath.Join("state", name))
}

// relayPath is the command relay as testscript put it on the path.
func relayPath(ts *testscript.TestScript) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, "relay"); fileExists(path) {
			return path
		}
	}
	ts.Fatalf("relay is not on the path")
	return ""
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// up NAME [flags…] starts a peer and waits until its door answers.
// "! up NAME [flags…]" wants it to end by itself, and leaves what it said in
// stderr for checking with `stderr`.
func cmdUp(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 {
		ts.Fatalf("usage: up NAME [flags…]")
	}
	s, name := scriptStage(ts), args[0]
	if neg {
		cmdOn(ts, true, append([]string{name, "relay", "up", "--p2p-listen", "/ip4/127.0.0.1/tcp/0"}, args[1:]...))
		return
	}
	if s.ports[name] == 0 {
		s.ports[name], s.p2p[name] = freePort(ts), freePort(ts)
	}
	p := &peerProcess{log: &logBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(relayPath(ts), append([]string{"up", "--name", name, "--listen", s.door(name), "--p2p-listen", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", s.p2p[name])}, args[1:]...)...)
	p.cmd.Env = environ(ts, name)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	ts.Check(p.cmd.Start())
	s.peers[name] = p
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	s.wait(ts, 30*time.Second, name+" answers", func() error {
		select {
		case <-p.done:
			ts.Fatalf("%s ended: %s", name, p.log)
		default:
		}
		response, err := http.Get("http://" + s.door(name) + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it says %s", response.Status)
		}
		return nil
	})
}

func (s *stage) door(name string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports[name]))
}

func freePort(ts *testscript.TestScript) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// wait polls until f has no error; the logs of all peers are shown when it never does.
func (s *stage) wait(ts *testscript.TestScript, within time.Duration, what string, f func() error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			for name, p := range s.peers {
				ts.Logf("--- %s\n%s", name, tail(p.log.String(), 4000))
			}
			ts.Fatalf("not within %s: %s: %v", within, what, err)
		}
	}
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

// on NAME relay ARGS… runs a command on a peer's machine.
func cmdOn(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || args[1] != "relay" {
		ts.Fatalf("usage: on NAME relay ARGS…")
	}
	code, stdout, stderr := runOn(ts, args[0], args[2:])
	ts.Setenv("code", strconv.Itoa(code))
	_, _ = io.WriteString(ts.Stdout(), stdout)
	_, _ = io.WriteString(ts.Stderr(), stderr)
	if neg == (code == 0) {
		ts.Fatalf("relay %s on %s: exit %d\n%s%s", strings.Join(args[2:], " "), args[0], code, stdout, stderr)
	}
}

func runOn(ts *testscript.TestScript, name string, args []string) (code int, stdout, stderr string) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, relayPath(ts), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = environ(ts, name), &out, &errs, ts.MkAbs(".")
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("relay %s: %v", strings.Join(args, " "), err)
	}
	return code, out.String(), errs.String()
}

// eventually SECONDS NAME relay ARGS… runs a command until it succeeds;
// eventually SECONDS NAME json EXPR WANT until a status says what is wanted.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: eventually SECONDS NAME relay ARGS… | json KEY WANT")
	}
	seconds, err := strconv.Atoi(args[0])
	ts.Check(err)
	scriptStage(ts).wait(ts, time.Duration(seconds)*time.Second, strings.Join(args[1:], " "), func() error {
		if args[2] == "json" {
			return checkStatus(ts, args[1], args[3], args[4])
		}
		code, stdout, stderr := runOn(ts, args[1], args[3:])
		if code != 0 {
			return fmt.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
}

// json NAME KEY WANT compares one figure of `relay status --json`.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json NAME KEY WANT")
	}
	if err := checkStatus(ts, args[0], args[1], args[2]); (err != nil) != neg {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

// checkStatus knows these keys: alive, models, holders, serving (names of the
// peers that have a ready replica), admins, mesh, replica (states).
func checkStatus(ts *testscript.TestScript, name, key, want string) error {
	_, stdout, stderr := runOn(ts, name, []string{"status", "--json"})
	var s struct {
		Mesh struct {
			ID, Name string
			Admins   []string
		}
		Peers  []struct{ ID, Name, State string }
		Models []struct {
			Name     string
			Holders  []string
			Replicas []struct{ Peer, State, Reason string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		return fmt.Errorf("%v: %s%s", err, stdout, stderr)
	}
	names := map[string]string{}
	alive := 0
	for _, p := range s.Peers {
		names[p.ID] = p.Name
		if p.State == "alive" {
			alive++
		}
	}
	var models, holders, serving, states []string
	for _, m := range s.Models {
		models = append(models, m.Name)
		for _, h := range m.Holders {
			holders = append(holders, names[h])
		}
		for _, r := range m.Replicas {
			states = append(states, r.State)
			if r.State == "ready" {
				serving = append(serving, names[r.Peer])
			}
		}
	}
	slices.Sort(holders)
	got := map[string]string{
		"alive": strconv.Itoa(alive), "models": strings.Join(models, ","), "holders": strings.Join(holders, ","),
		"serving": strings.Join(serving, ","), "admins": strconv.Itoa(len(s.Mesh.Admins)), "mesh": s.Mesh.Name, "replicas": strings.Join(states, ","),
	}[key]
	if got != want {
		return fmt.Errorf("%s is %q, not %q", key, got, want)
	}
	return nil
}

// crash NAME kills a peer's process as a crash would.
func cmdCrash(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptStage(ts)
	for _, name := range args {
		p := s.peers[name]
		if p == nil || neg {
			ts.Fatalf("usage: crash NAME…")
		}
		ts.Check(p.cmd.Process.Kill())
		<-p.done
		delete(s.peers, name)
	}
}

// down NAME stops a peer with `relay down`, and wants it to end well.
func cmdDown(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptStage(ts)
	for _, name := range args {
		p := s.peers[name]
		if p == nil || neg {
			ts.Fatalf("usage: down NAME…")
		}
		if code, stdout, stderr := runOn(ts, name, []string{"down"}); code != 0 {
			ts.Fatalf("relay down on %s: exit %d: %s%s\n%s", name, code, stdout, stderr, tail(p.log.String(), 2000))
		}
		<-p.done
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			ts.Fatalf("%s ended with exit %d:\n%s", name, code, tail(p.log.String(), 4000))
		}
		delete(s.peers, name)
	}
}

// chat NAME MODEL QUESTION streams an answer to stdout. "! chat" wants an error
// and leaves its JSON in stdout.
func cmdChat(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: chat NAME MODEL QUESTION")
	}
	status, body := post(ts, args[0], "/v1/chat/completions", map[string]any{
		"model": args[1], "stream": true, "temperature": 0, "max_tokens": 100,
		"messages": []map[string]string{{"role": "user", "content": args[2]}},
	})
	if (status != http.StatusOK) != neg {
		ts.Fatalf("chat on %s: %d: %s", args[0], status, body)
	}
	if neg {
		fmt.Fprintf(ts.Stdout(), "%d %s\n", status, body)
		return
	}
	var text strings.Builder
	done := false
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		ts.Check(json.Unmarshal([]byte(data), &event))
		for _, c := range event.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	if !done {
		ts.Fatalf("the stream had no [DONE]: %s", body)
	}
	fmt.Fprintln(ts.Stdout(), text.String())
}

func post(ts *testscript.TestScript, name, path string, body any) (int, string) {
	data, err := json.Marshal(body)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+scriptStage(ts).door(name)+path, bytes.NewReader(data))
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+scriptKey)
	r.Header.Set("Content-Type", "application/json")
	return send(ts, r)
}

func send(ts *testscript.TestScript, r *http.Request) (int, string) {
	response, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	ts.Check(err)
	return response.StatusCode, string(data)
}

// http NAME METHOD PATH [BODY] prints the status and the body; HEADER in the
// environment, "Name: value", goes along, and no key unless it is that.
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: http NAME METHOD PATH [BODY]")
	}
	body := ""
	if len(args) > 3 {
		body = args[3]
	}
	r, err := http.NewRequest(args[1], "http://"+scriptStage(ts).door(args[0])+args[2], strings.NewReader(body))
	ts.Check(err)
	if name, value, ok := strings.Cut(ts.Getenv("HEADER"), ": "); ok {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	status, answer := send(ts, r)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", status, answer)
}

// gone NAME wants no process to be left whose command line names the peer's
// state folder.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone NAME")
	}
	mark := []byte(stateOf(ts, args[0]) + string(filepath.Separator))
	scriptStage(ts).wait(ts, 5*time.Second, "no process of "+args[0]+" is left", func() error {
		entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, path := range entries {
			if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, mark) {
				return fmt.Errorf("%s: %s", path, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
			}
		}
		return nil
	})
}

// killengine NAME kills the llama-server processes of a peer.
func cmdKillEngine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killengine NAME")
	}
	mark := []byte(stateOf(ts, args[0]) + string(filepath.Separator))
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	killed := 0
	for _, path := range entries {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, mark) || filepath.Base(string(bytes.SplitN(line, []byte{0}, 2)[0])) != "llama-server" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		ts.Check(err)
		process, err := os.FindProcess(pid)
		ts.Check(err)
		ts.Check(process.Kill())
		killed++
	}
	if killed == 0 {
		ts.Fatalf("no engine of %s runs", args[0])
	}
}

// ended NAME PATTERN waits for a peer to end by itself, saying so.
func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME PATTERN")
	}
	s := scriptStage(ts)
	p := s.peers[args[0]]
	s.wait(ts, 20*time.Second, args[0]+" ends", func() error {
		select {
		case <-p.done:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	delete(s.peers, args[0])
	if !regexp.MustCompile(args[1]).MatchString(p.log.String()) {
		ts.Fatalf("%s ended, but said: %s", args[0], tail(p.log.String(), 2000))
	}
}

// recoverycode NAME VARIABLE takes the code from what a founder printed.
func cmdRecoveryCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: recoverycode NAME VARIABLE")
	}
	m := regexp.MustCompile(`recovery\s+(\S+)`).FindStringSubmatch(scriptStage(ts).peers[args[0]].log.String())
	if m == nil {
		ts.Fatalf("%s printed no recovery code", args[0])
	}
	ts.Setenv(args[1], m[1])
}

// invite NAME VARIABLE [flags…] makes an invite.
func cmdInvite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: invite NAME VARIABLE [flags…]")
	}
	code, stdout, stderr := runOn(ts, args[0], append([]string{"peer", "invite", "--json"}, args[2:]...))
	var answer struct{ Invite string }
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || code != 0 {
		ts.Fatalf("no invite: exit %d: %s%s", code, stdout, stderr)
	}
	ts.Setenv(args[1], answer.Invite)
}

// holdport VARIABLE takes a port for as long as the script runs.
func cmdHoldPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: holdport VARIABLE")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	s := scriptStage(ts)
	s.closed = append(s.closed, l)
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// truncate FILE BYTES cuts a file short.
func cmdTruncate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: truncate FILE BYTES")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}
