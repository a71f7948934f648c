package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
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
	if len(os.Args) == 3 && os.Args[1] == "hold-lock" { // Started by a test of `relay down`.
		holdLock(os.Args[2])
	}
	testscript.Main(m, map[string]func(){"relay": main})
}

// scriptKey opens every door of the scripts.
const scriptKey = "rk-script-key-for-all"

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
			e.Values[stageKey{}] = &stage{peers: map[string]*peerProcess{}, ports: map[string]int{}, p2p: map[string]int{}, answers: map[string]chan answer{}, begun: map[string]chan ending{}, flows: map[string]*flow{}}
			e.Defer(func() { stageOf(e.Values).end() })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"up": cmdUp, "start": cmdStart, "said": cmdSaid, "code": cmdCode, "deaf": cmdDeaf,
			"freeze": cmdFreeze, "thaw": cmdThaw, "ask": cmdAsk, "answered": cmdAnswered, "quit": cmdQuit, "on": cmdOn, "crash": cmdCrash, "down": cmdDown, "eventually": cmdEventually,
			"chat": cmdChat, "http": cmdHTTP, "gone": cmdGone, "invite": cmdInvite, "json": cmdJSON, "holdport": cmdHoldPort, "truncate": cmdTruncate, "killengine": cmdKillEngine, "tmpfs": cmdTmpfs, "recoverycode": cmdRecoveryCode, "ended": cmdEnded, "engines": cmdEngines,
			"begin": cmdBegin, "finish": cmdFinish, "split": cmdSplit, "projector": cmdProjector, "fatten": cmdFatten,
			"flow": cmdFlow, "flowed": cmdFlowed, "refused": cmdRefused,
			"random": cmdRandom, "prompt": cmdPrompt, "uses": cmdUses, "pids": cmdPIDs, "replaced": cmdReplaced, "away": cmdAway,
			"wide": cmdWide, "partof": cmdPartOf, "fact": cmdFact, "besides": cmdBesides, "tokens": cmdTokens, "stream": cmdStream, "streamed": cmdStreamed, "halt": cmdHalt,
			"secret": cmdSecret, "hasonly": cmdHasOnly, "unsaid": cmdUnsaid, "cached": cmdCached, "recite": cmdRecite,
			"watch": cmdWatch, "seen": cmdSeen, "interrupt": cmdInterrupt,
		},
	})
}

type stageKey struct{}

// stage is the peers of one script.
type stage struct {
	peers   map[string]*peerProcess
	ports   map[string]int // Of /v1, kept over restarts.
	p2p     map[string]int
	closed  []io.Closer
	frozen  []*os.Process
	answers map[string]chan answer // By the peer that was asked.
	begun   map[string]chan ending // Commands in the background.
	flows   map[string]*flow       // By the peer that is asked.
	watched *peerProcess           // The command that goes on.
}

// answer is that of a question which was asked in the background.
type answer struct {
	status int
	body   string
	err    error
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
	thaw(s)
	for _, p := range s.peers {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	for _, f := range s.flows { // Nobody answers them any more.
		f.end()
	}
	for _, c := range s.closed {
		_ = c.Close()
	}
}

// environ is the script's environment with the state folder of one peer.
func environ(ts *testscript.TestScript, name string) []string {
	var env []string
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "RELAY_API_KEY", "RELAY_LLAMA_BIN", "RELAY_MODELS_DIR", "RELAY_MODELS_MAX", "RELAY_CACHE_MAX", "RELAY_DEBUG", "SYSTEMROOT"} {
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
		// Ports of their own: scripts run side by side. A later --listen counts.
		cmdOn(ts, true, append([]string{name, "relay", "up", "--listen", "127.0.0.1:0", "--p2p-listen", "/ip4/127.0.0.1/tcp/0"}, args[1:]...))
		return
	}
	p := startPeer(ts, name, args[1:])
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

func startPeer(ts *testscript.TestScript, name string, flags []string) *peerProcess {
	s := scriptStage(ts)
	if s.ports[name] == 0 {
		s.ports[name], s.p2p[name] = freePort(ts), freePort(ts)
	}
	p := &peerProcess{log: &logBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(relayPath(ts), append([]string{"up", "--name", name, "--listen", s.door(name), "--p2p-listen", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", s.p2p[name])}, flags...)...)
	p.cmd.Env = environ(ts, name)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	ts.Check(p.cmd.Start())
	s.peers[name] = p
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// start NAME [flags…] starts a peer and does not wait for it.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: start NAME [flags…]")
	}
	startPeer(ts, args[0], args[1:])
}

func runningPeer(ts *testscript.TestScript, name string) *peerProcess {
	p := scriptStage(ts).peers[name]
	if p == nil {
		ts.Fatalf("%s was not started", name)
	}
	return p
}

// said NAME PATTERN wants it in what a peer has printed since it was started.
func cmdSaid(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: said NAME PATTERN")
	}
	text := runningPeer(ts, args[0]).log.String()
	if regexp.MustCompile("(?m)"+args[1]).MatchString(text) == neg {
		ts.Fatalf("%s said:\n%s", args[0], tail(text, 4000))
	}
}

// code N wants the last command of `on` or `! up` to have ended with that code.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: code N")
	}
	if got := ts.Getenv("code"); got != args[0] {
		ts.Fatalf("exit code %s", got)
	}
}

// deaf NAME takes the place of a peer that is down: who dials it is connected
// and gets no answer.
func cmdDeaf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: deaf NAME")
	}
	s := scriptStage(ts)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.p2p[args[0]])))
	ts.Check(err)
	s.closed = append(s.closed, l)
}

// freeze NAME stops the engines of a peer for a while, until thaw.
func cmdFreeze(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeze NAME")
	}
	s := scriptStage(ts)
	for _, process := range enginesOf(ts, args[0]) {
		ts.Check(suspend(process))
		s.frozen = append(s.frozen, process)
	}
}

func cmdThaw(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: thaw")
	}
	thaw(scriptStage(ts))
}

func thaw(s *stage) {
	for _, process := range s.frozen {
		_ = resume(process)
	}
	s.frozen = nil
}

// ask NAME MODEL QUESTION asks in the background; answered NAME waits for the
// answer and leaves its status and body in stdout.
func cmdAsk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: ask NAME MODEL QUESTION")
	}
	s := scriptStage(ts)
	r, cancel := chatRequest(ts, args[0], args[1], args[2])
	done := make(chan answer, 1)
	s.answers[args[0]] = done
	go func() {
		defer cancel()
		var a answer
		a.status, a.body, a.err = sendRequest(r)
		done <- a
	}()
}

func cmdAnswered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || scriptStage(ts).answers[args[0]] == nil {
		ts.Fatalf("usage: answered NAME, after ask NAME")
	}
	a := <-scriptStage(ts).answers[args[0]]
	ts.Check(a.err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", a.status, a.body)
}

// quit NAME tells a peer to stop and does not wait; ended NAME does.
func cmdQuit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: quit NAME")
	}
	ts.Check(runningPeer(ts, args[0]).cmd.Process.Signal(os.Interrupt))
}

func (s *stage) door(name string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports[name]))
}

// freePort is a port that is free, below those that the kernel gives to
// connections: it is to be free again when a peer is restarted.
func freePort(ts *testscript.TestScript) int {
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = l.Close() // It was only tried.
		if given.take(port) {
			return port
		}
	}
	ts.Fatalf("no port is free")
	return 0
}

// given are the ports that scripts of this process have been given.
var given ports

type ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

func (p *ports) take(port int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[port] {
		return false
	}
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	p.taken[port] = true
	return true
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
	if len(args) < 2 || args[1] != "relay" && args[1] != "sh" {
		ts.Fatalf("usage: on NAME relay ARGS… | sh ARGS…")
	}
	path := args[1]
	if path == "relay" {
		path = relayPath(ts)
	}
	code, stdout, stderr := runAs(ts, args[0], path, args[2:])
	ts.Setenv("code", strconv.Itoa(code))
	_, _ = io.WriteString(ts.Stdout(), stdout)
	_, _ = io.WriteString(ts.Stderr(), stderr)
	if neg == (code == 0) {
		ts.Fatalf("%s %s on %s: exit %d\n%s%s", args[1], strings.Join(args[2:], " "), args[0], code, stdout, stderr)
	}
}

func runOn(ts *testscript.TestScript, name string, args []string) (code int, stdout, stderr string) {
	return runAs(ts, name, relayPath(ts), args)
}

func runAs(ts *testscript.TestScript, name, path string, args []string) (code int, stdout, stderr string) {
	code, stdout, stderr, err := runCommand(environ(ts, name), ts.MkAbs("."), path, args)
	if err != nil {
		ts.Fatalf("relay %s: %v", strings.Join(args, " "), err)
	}
	return code, stdout, stderr
}

// runCommand fails only where the command could not be run.
func runCommand(env []string, dir, path string, args []string) (code int, stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = env, &out, &errs, dir
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
	}
	return code, out.String(), errs.String(), err
}

// eventually SECONDS NAME relay ARGS… runs a command until it succeeds;
// eventually SECONDS NAME json KEY WANT until a status says what is wanted;
// eventually SECONDS NAME door STATUS TEXT until its door answers that, with HEADER as for http;
// eventually SECONDS NAME says PATTERN relay ARGS… runs a command until what it
// prints matches, whatever its exit code.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: eventually SECONDS NAME relay ARGS… | json KEY WANT | door STATUS TEXT | says PATTERN relay ARGS…")
	}
	seconds, err := strconv.Atoi(args[0])
	ts.Check(err)
	scriptStage(ts).wait(ts, time.Duration(seconds)*time.Second, strings.Join(args[1:], " "), func() error {
		switch args[2] {
		case "json":
			return checkStatus(ts, args[1], args[3], args[4])
		case "door":
			return checkDoor(ts, args[1], args[3], args[4])
		case "says":
			code, stdout, stderr := runOn(ts, args[1], args[5:])
			if !regexp.MustCompile("(?m)" + args[3]).MatchString(stdout + stderr) {
				return fmt.Errorf("exit %d: %s%s", code, stdout, stderr)
			}
			return nil
		}
		code, stdout, stderr := runOn(ts, args[1], args[3:])
		if code != 0 {
			return fmt.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
}

// checkDoor wants a peer's door to answer with a status and a text.
func checkDoor(ts *testscript.TestScript, name, status, text string) error {
	r, err := http.NewRequest(http.MethodGet, "http://"+scriptStage(ts).door(name)+"/v1/models", nil)
	ts.Check(err)
	addHeader(ts, r)
	got, body, err := sendRequest(r)
	if err == nil && (strconv.Itoa(got) != status || !strings.Contains(body, text)) {
		err = fmt.Errorf("it says %d %s", got, body)
	}
	return err
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

// checkStatus wants a fact of statusFacts to be what is wanted.
func checkStatus(ts *testscript.TestScript, name, key, want string) error {
	facts, err := statusFacts(ts, name)
	if err != nil {
		return err
	}
	if got := facts[key]; got != want {
		return fmt.Errorf("%s is %q, not %q", key, got, want)
	}
	return nil
}

// statusFacts knows these keys: alive, models, holders, serving (names of the
// peers that have a ready replica), admins, mesh, replicas (states), inflight,
// pinned, partly (names), pulls (unfinished ones on its machine, with running or stopped),
// full (no room can be made on its disk), wiping, behind (names of the peers that are, or do not answer), state:PEER,
// trust:PEER, label:PEER:KEY, asleep (names), parked (MODEL@PEER), leader:MODEL, serving:MODEL, runs:MODEL (PEER:WAY of
// each ready replica), coordinator:MODEL and workers:MODEL of a group that is ready,
// share:MODEL:PEER (its first layer-its last one).
func statusFacts(ts *testscript.TestScript, name string) (map[string]string, error) {
	_, stdout, stderr := runOn(ts, name, []string{"status", "--json"})
	var s struct {
		Mesh struct {
			ID, Name string
			Admins   []string
		}
		Peers []struct {
			ID, Name, State, Trust string
			Behind                 *int
			Labels                 map[string]string
		}
		Wiping []struct{ Name string }
		Disk   struct {
			Stuck      string
			Unfinished []struct {
				Name    string
				Running bool
			}
		}
		Models []struct {
			Name     string
			Holders  []string
			Partly   []string
			Pinned   bool
			Asleep   bool
			Leader   struct{ Peer string }
			Parked   []struct{ Peer string }
			Replicas []struct {
				Peer, State, Reason, Way string
				InFlight                 *int
				Shares                   []struct {
					Peer         string
					From, Layers int
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		return nil, fmt.Errorf("%v: %s%s", err, stdout, stderr)
	}
	names, facts := map[string]string{}, map[string]string{}
	alive := 0
	var behind, wiping []string
	for _, p := range s.Peers {
		names[p.ID] = p.Name
		if p.State == "alive" {
			alive++
		}
		if p.Behind == nil || *p.Behind > 0 {
			behind = append(behind, p.Name)
		}
		facts["state:"+p.Name], facts["trust:"+p.Name] = p.State, p.Trust
		for key, value := range p.Labels {
			facts["label:"+p.Name+":"+key] = value
		}
	}
	for _, p := range s.Wiping {
		wiping = append(wiping, p.Name)
	}
	var models, pinned, asleep, parked, holders, partly, pulls, serving, states []string
	for _, p := range s.Disk.Unfinished {
		state := "stopped"
		if p.Running {
			state = "running"
		}
		pulls = append(pulls, p.Name+":"+state)
	}
	inFlight := 0
	for _, m := range s.Models {
		models = append(models, m.Name)
		for _, h := range m.Holders {
			holders = append(holders, names[h])
		}
		if m.Pinned {
			pinned = append(pinned, m.Name)
		}
		for _, h := range m.Partly {
			partly = append(partly, names[h])
		}
		if m.Asleep {
			asleep = append(asleep, m.Name)
		}
		for _, p := range m.Parked {
			parked = append(parked, m.Name+"@"+names[p.Peer])
		}
		var on, runs []string
		for _, r := range m.Replicas {
			states = append(states, r.State)
			if r.InFlight != nil {
				inFlight += *r.InFlight
			}
			if r.State == "ready" {
				on, runs = append(on, names[r.Peer]), append(runs, names[r.Peer]+":"+r.Way)
			}
			var workers []string
			for _, share := range r.Shares {
				workers = append(workers, names[share.Peer])
				facts["share:"+m.Name+":"+names[share.Peer]] = fmt.Sprintf("%d-%d", share.From, share.From+share.Layers-1)
			}
			if r.State == "ready" && len(workers) > 0 {
				facts["coordinator:"+m.Name], facts["workers:"+m.Name] = names[r.Peer], strings.Join(workers, ",")
			}
		}
		serving = append(serving, on...)
		slices.Sort(on)
		slices.Sort(runs)
		facts["leader:"+m.Name], facts["serving:"+m.Name], facts["runs:"+m.Name] = names[m.Leader.Peer], strings.Join(on, ","), strings.Join(runs, ",")
	}
	slices.Sort(holders)
	maps.Copy(facts, map[string]string{
		"wiping": strings.Join(wiping, ","), "behind": strings.Join(behind, ","),
		"alive": strconv.Itoa(alive), "models": strings.Join(models, ","), "holders": strings.Join(holders, ","),
		"serving": strings.Join(serving, ","), "admins": strconv.Itoa(len(s.Mesh.Admins)), "mesh": s.Mesh.Name, "replicas": strings.Join(states, ","),
		"inflight": strconv.Itoa(inFlight), "partly": strings.Join(partly, ","), "pinned": strings.Join(pinned, ","), "pulls": strings.Join(pulls, ","),
		"full": strconv.FormatBool(s.Disk.Stuck != ""), "asleep": strings.Join(asleep, ","), "parked": strings.Join(parked, ","),
	})
	return facts, nil
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
	r, cancel := chatRequest(ts, args[0], args[1], args[2])
	defer cancel()
	status, body := send(ts, r)
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

func chatRequest(ts *testscript.TestScript, name, model, question string) (*http.Request, context.CancelFunc) {
	r, cancel, err := newChat("http://"+scriptStage(ts).door(name), model, question)
	ts.Check(err)
	addHeader(ts, r)
	return r, cancel
}

// newChat is a question for the door at that URL.
func newChat(door, model, question string) (*http.Request, context.CancelFunc, error) {
	data, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "temperature": 0, "max_tokens": 100,
		"messages": []map[string]string{{"role": "user", "content": question}},
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, door+"/v1/chat/completions", bytes.NewReader(data))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+scriptKey)
	r.Header.Set("Content-Type", "application/json")
	return r, cancel, nil
}

func send(ts *testscript.TestScript, r *http.Request) (int, string) {
	status, body, err := sendRequest(r)
	ts.Check(err)
	return status, body
}

func sendRequest(r *http.Request) (status int, body string, err error) {
	response, body, err := sendWhole(r)
	if response == nil {
		return 0, "", err
	}
	return response.StatusCode, body, err
}

// sendWhole reads the whole body as well.
func sendWhole(r *http.Request) (response *http.Response, body string, err error) {
	response, err = http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response, string(data), err
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
	addHeader(ts, r)
	status, answer := send(ts, r)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", status, answer)
}

// addHeader gives a request the HEADER of the environment, "Name: value".
func addHeader(ts *testscript.TestScript, r *http.Request) {
	if name, value, ok := strings.Cut(ts.Getenv("HEADER"), ": "); ok {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
}

// secret NAME VARIABLE ARGS… runs relay ARGS… on a peer's machine, and keeps the
// secret that it makes.
func cmdSecret(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: secret NAME VARIABLE ARGS…")
	}
	code, stdout, stderr := runOn(ts, args[0], append(slices.Clone(args[2:]), "--json"))
	var answer struct{ Secret string }
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || code != 0 || answer.Secret == "" {
		ts.Fatalf("no secret: exit %d: %s%s", code, stdout, stderr)
	}
	ts.Setenv(args[1], answer.Secret)
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
	for _, process := range enginesOf(ts, args[0]) {
		ts.Check(process.Kill())
	}
}

// engines NAME N waits, two seconds at most, until that many llama-server
// processes of a peer run.
func cmdEngines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: engines NAME N")
	}
	scriptStage(ts).wait(ts, 5*time.Second, args[1]+" engines of "+args[0], func() error {
		if n := len(runningEngines(ts, args[0])); strconv.Itoa(n) != args[1] {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
}

// enginesOf finds the llama-server processes of a peer; there has to be one.
func enginesOf(ts *testscript.TestScript, name string) []*os.Process {
	list := runningEngines(ts, name)
	if len(list) == 0 {
		ts.Fatalf("no engine of %s runs", name)
	}
	return list
}

func runningEngines(ts *testscript.TestScript, name string) (list []*os.Process) {
	mark := []byte(stateOf(ts, name) + string(filepath.Separator))
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	for _, path := range entries {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, mark) || filepath.Base(string(bytes.SplitN(line, []byte{0}, 2)[0])) != "llama-server" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		ts.Check(err)
		process, err := os.FindProcess(pid)
		if err != nil { // It ended meanwhile.
			continue
		}
		list = append(list, process)
	}
	return list
}

// ended NAME PATTERN waits for a peer to end by itself, saying so; code N then
// looks at its exit code.
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
	ts.Setenv("code", strconv.Itoa(p.cmd.ProcessState.ExitCode()))
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
