package llama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"relay/llama/gguf/gguftest"
)

// small is a model whose layers can be put on several machines.
func small(arch string) gguftest.Random {
	m := gguftest.Random{Arch: arch, Type: gguftest.Q8_0, Layers: 6, Width: 256, KVWidth: 128, HeadWidth: 64, FeedForward: 512, Train: 4096}
	if arch == "gemma3" {
		m.Window = 128
	}
	return m
}

// startRPC starts an RPC server that is stopped with the test.
func startRPC(t testing.TB, e Engine, s RPCSpec) *RPCServer {
	t.Helper()
	if s.Name == "" {
		s.Name = "worker"
	}
	if s.RunDir == "" {
		s.RunDir = filepath.Join(t.TempDir(), "run")
	}
	s.Threads = 1
	r, err := e.StartRPC(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// join takes what a coordinator opens to its servers there.
func join(t testing.TB, servers ...*RPCServer) func(context.Context, int, net.Conn) {
	return func(gone context.Context, remote int, c net.Conn) {
		defer c.Close()
		ctx, cancel := context.WithTimeout(gone, 10*time.Second)
		defer cancel()
		d, err := servers[remote].Dial(ctx)
		if err != nil {
			t.Logf("server %d: %v", remote, err)
			return
		}
		defer d.Close()
		defer context.AfterFunc(gone, func() { _ = d.Close() })()
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = io.Copy(d, c)
			_ = d.Close()
		}()
		_, _ = io.Copy(c, d)
		_ = c.Close()
		<-over
	}
}

// greedy are the ids of an engine's most likely tokens behind a prompt, of those
// that are plain text: of others it makes no answer.
func greedy(t testing.TB, p *Process, prompt string, count int) []int {
	t.Helper()
	var never [][]any
	for id := range 300 {
		never = append(never, []any{id, false})
	}
	status, answer, err := p.ask(t.Context(), "POST", "/completion", map[string]any{
		"logit_bias": never, "prompt": prompt, "n_predict": count, "ignore_eos": true, "temperature": 0, "cache_prompt": false, "return_tokens": true,
	})
	var a struct{ Tokens []int }
	if err != nil || status != 200 || json.Unmarshal(answer, &a) != nil || len(a.Tokens) != count {
		t.Fatalf("%d tokens, %d %v: %s", len(a.Tokens), status, err, answer[:min(len(answer), 300)])
	}
	return a.Tokens
}

// layerBytes are the bytes of the weights in some layers of a model.
func layerBytes(t testing.TB, path string, layers ...int) (sum uint64) {
	t.Helper()
	for _, tensor := range tensorsOf(t, path) {
		for _, l := range layers {
			if strings.HasPrefix(tensor.Name, fmt.Sprintf("blk.%d.", l)) {
				sum += uint64(len(tensor.Data))
			}
		}
	}
	return sum
}

func tensorsOf(t testing.TB, path string) []gguftest.Tensor {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguftest.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f.Tensors
}

// shards is a spec for a model of six layers, of which two servers get two each.
func shards(t testing.TB, path string, connected func(context.Context, int, net.Conn)) Spec {
	return Spec{
		Name: "shards", Model: path, Context: 512, Threads: 1, RunDir: filepath.Join(t.TempDir(), "run"),
		Remotes: []Remote{{Layers: []int{2}}, {Layers: []int{2}}}, GPULayers: 5, Connected: connected,
	}
}

const aPrompt = "A prompt of some words."

// alone is what a model answers to aPrompt on one machine.
func alone(t testing.TB, e Engine, path string) []int {
	t.Helper()
	return greedy(t, start(t, e, Spec{
		Name: "alone", Model: path, Context: 512, Threads: 1, RunDir: filepath.Join(t.TempDir(), "run"),
	}), aPrompt, 24)
}

// A model on three machines answers what it answers on one, and its input and
// output stay with the first, also where they are the same tensor.
func TestCoordinator(t *testing.T) {
	e := engine(t)
	for _, arch := range []string{"llama", "gemma3"} {
		for _, unguarded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unguarded=%v", arch, unguarded), func(t *testing.T) {
				path := randomModel(t, small(arch))
				want := alone(t, e, path)
				a, b := startRPC(t, e, RPCSpec{unguarded: unguarded}), startRPC(t, e, RPCSpec{unguarded: unguarded})
				s := shards(t, path, join(t, a, b))
				s.unguarded = unguarded
				p := start(t, e, s)
				if got := greedy(t, p, aPrompt, 24); !slices.Equal(got, want) {
					t.Errorf("%v, alone %v", got, want)
				}
				r := p.Report()
				if r.Offloaded != 5 || r.Layers != 7 || len(r.Remotes) != 2 {
					t.Errorf("%d of %d layers, on %d", r.Offloaded, r.Layers, len(r.Remotes))
				}
				var here, all uint64
				for _, buffer := range r.Buffers {
					all += buffer.Model + buffer.Context + buffer.Compute
					port, _, remote := remoteBuffer(buffer.Device)
					if !remote {
						here += buffer.Model + buffer.Context + buffer.Compute
						continue
					}
					layers := [][]int{{2, 3}, {4, 5}}[slices.Index(p.links.ports, port)]
					// The log has two decimals of a MiB.
					if want := layerBytes(t, path, layers...); math.Abs(float64(buffer.Model)-float64(want)) > 1<<20/100 {
						t.Errorf("%d bytes of weights on %s, its layers have %d", buffer.Model, buffer.Device, want)
					}
				}
				if used := r.Used(); len(used) != 1 || used[HostID] != here || r.Remotes[0]+r.Remotes[1] != all-here {
					t.Errorf("%v used here, %v there: %+v", used, r.Remotes, r.Buffers)
				}
				if guarded := ProbeGuard(t.Context(), nil).OK && !unguarded; r.Guard.OK != guarded || a.Guarded() != guarded ||
					strings.Contains(r.Guard.Text, "local users are trusted") == guarded || a.Text() != r.Guard.Text {
					t.Errorf("%+v %v %s", r.Guard, a.Guarded(), a.Text())
				}
				if full := r.Sandbox.Full(); full != r.Guard.OK && ProbeSandbox().Full() {
					t.Errorf("%+v", r.Sandbox)
				}
			})
		}
	}
}

// listening are the inodes of the sockets of TCP that a process listens on, by its
// own table.
func listening(t testing.TB, pid int) (inodes []string) {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/net/tcp", pid))) {
		if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// needGuard skips a test where there is none.
func needGuard(t testing.TB) {
	t.Helper()
	if g := ProbeGuard(t.Context(), nil); !g.OK {
		t.Skip(g.Text)
	}
}

// The ports of a server and a coordinator are in no network but their own.
func TestGuard(t *testing.T) {
	needGuard(t)
	e := engine(t)
	a, b := startRPC(t, e, RPCSpec{Sandbox: SandboxRequire}), startRPC(t, e, RPCSpec{Sandbox: SandboxRequire})
	s := shards(t, randomModel(t, small("gemma3")), join(t, a, b))
	s.Sandbox = SandboxRequire
	p := start(t, e, s)
	ours := listening(t, os.Getpid())
	networks := []string{link(t, os.Getpid())}
	for name, c := range map[string]struct{ pid, ports int }{"server": {a.PID(), 1}, "server 2": {b.PID(), 1}, "coordinator": {p.PID(), 3}} {
		theirs := listening(t, c.pid)
		if len(theirs) != c.ports {
			t.Errorf("%s listens on %d ports, not on %d", name, len(theirs), c.ports)
		}
		for _, inode := range theirs {
			if slices.Contains(ours, inode) {
				t.Errorf("%s listens where others are", name)
			}
		}
		if n := link(t, c.pid); slices.Contains(networks, n) {
			t.Errorf("%s shares its network", name)
		} else {
			networks = append(networks, n)
		}
	}
	// Other programs, also other users', find nobody there. A port that somebody else
	// has says no hello.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for _, uid := range []int{os.Getuid(), nobody} {
		if uid != os.Getuid() && os.Getuid() != 0 {
			continue
		}
		cmd := exec.Command("/proc/self/exe", "say-hello", fmt.Sprint(doorPort), fmt.Sprint(firstRemotePort), fmt.Sprint(firstRemotePort+1))
		cmd.Args[0] = self
		if uid != os.Getuid() {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "hello") || len(strings.Fields(string(out))) != 3 {
			t.Errorf("user %d: %v %s", uid, err, out)
		}
	}
	// Many at once get through.
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if status, _, err := p.ask(t.Context(), "GET", "/health", nil); err != nil || status != 200 {
				t.Errorf("%d %v", status, err)
			}
		})
	}
	all.Wait()
}

// link names the network of a process.
func link(t testing.TB, pid int) string {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Where there is no guard a server can be reached, and that is said; a coordinator's
// ports still take nobody but the engine.
func TestUnguarded(t *testing.T) {
	e := engine(t)
	r := startRPC(t, e, RPCSpec{unguarded: true})
	if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", listenerPort(t, r.PID()))); err != nil {
		t.Error(err)
	} else {
		if v, err := hello(c); err != nil || v != e.RPC {
			t.Errorf("%s %v", v, err)
		}
		c.Close()
	}
	var taken atomic.Int32
	b := startRPC(t, e, RPCSpec{unguarded: true})
	s := shards(t, randomModel(t, small("gemma3")), func(ctx context.Context, i int, c net.Conn) {
		taken.Add(1)
		join(t, r, b)(ctx, i, c)
	})
	s.unguarded = true
	p := start(t, e, s)
	before := taken.Load()
	if before < 2 {
		t.Errorf("%d connections", before)
	}
	for _, port := range p.links.ports {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a stranger is not refused: %d %v", n, err)
		}
		c.Close()
	}
	if taken.Load() != before {
		t.Error("a stranger's connection was handed on")
	}
}

// listenerPort is the port of this network that a process listens on.
func listenerPort(t testing.TB, pid int) (port int) {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(read(t, "/proc/net/tcp")) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" {
			continue
		}
		for _, file := range files {
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, file.Name())); err == nil && to == "socket:["+f[9]+"]" {
				_, hex, _ := strings.Cut(f[1], ":")
				n, err := strconv.ParseUint(hex, 16, 16)
				if err != nil {
					t.Fatal(err)
				}
				return int(n)
			}
		}
	}
	t.Fatal("it listens nowhere")
	return 0
}

// A server that is killed, or cut off, ends the coordinator's engine by its abort,
// and all connections with it.
func TestRemoteLost(t *testing.T) {
	e := engine(t)
	path := randomModel(t, small("gemma3"))
	for _, c := range []struct {
		name string
		lose func(t *testing.T, r *RPCServer, conns []net.Conn)
	}{
		{"killed", func(t *testing.T, r *RPCServer, _ []net.Conn) {
			if err := unix.Kill(r.PID(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-r.Done()
			if r.Err() == nil {
				t.Error("nothing is said of its end")
			}
		}},
		{"frozen and reset", func(t *testing.T, r *RPCServer, conns []net.Conn) {
			freeze(t, r.PID())
			for _, c := range conns {
				_ = c.Close()
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := startRPC(t, e, RPCSpec{}), startRPC(t, e, RPCSpec{})
			var mu sync.Mutex
			conns := map[int][]net.Conn{}
			p := start(t, e, shards(t, path, func(ctx context.Context, i int, c net.Conn) {
				mu.Lock()
				conns[i] = append(conns[i], c)
				mu.Unlock()
				join(t, a, b)(ctx, i, c)
			}))
			answer := make(chan error, 1)
			go func() {
				_, _, err := p.ask(t.Context(), "POST", "/completion", map[string]any{"prompt": aPrompt, "n_predict": 400, "ignore_eos": true})
				answer <- err
			}()
			mu.Lock()
			lost := conns[1]
			mu.Unlock()
			c.lose(t, b, lost)
			select {
			case <-p.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("the engine lives on")
			}
			if err := p.Err(); !errors.Is(err, ErrAborted) || !errors.Is(err, ErrEngine) {
				t.Errorf("got %v", err)
			}
			<-answer
			mu.Lock()
			defer mu.Unlock()
			for i, list := range conns {
				for _, c := range list {
					if _, err := c.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
						t.Errorf("a connection to server %d is open: %v", i, err)
					}
				}
			}
		})
	}
}

// An engine whose server goes while it loads does not start, and says that it aborted.
func TestRemoteMissing(t *testing.T) {
	e := engine(t)
	s := shards(t, randomModel(t, small("gemma3")), func(_ context.Context, _ int, c net.Conn) { c.Close() })
	fails := e
	fails.Server = "/bin/false"
	for range 10 {
		if _, err := fails.Start(t.Context(), s); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "it ended by itself (exit status 1)") {
			t.Fatalf("an engine that ends at once: %v", err)
		}
	}
	if _, err := e.Start(t.Context(), s); !errors.Is(err, ErrAborted) {
		t.Errorf("got %v", err)
	}
	// Servers with other devices than they were to have: with fewer, and with more, which
	// would get the next one's layers.
	path := randomModel(t, small("gemma3"))
	one, two := startRPC(t, e, RPCSpec{}), startRPC(t, e, RPCSpec{Devices: []string{HostID, "CPU"}})
	s = shards(t, path, join(t, one, two))
	s.Remotes = []Remote{{Layers: []int{1, 1}}, {Layers: []int{1, 1}}}
	if _, err := e.Start(t.Context(), s); !errors.Is(err, ErrEngine) {
		t.Errorf("got %v", err)
	}
	s = shards(t, path, join(t, two, one))
	if _, err := e.Start(t.Context(), s); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "nothing on device 0 of RPC server 1") {
		t.Errorf("got %v", err)
	}
	// As they are it works.
	s.Remotes = []Remote{{Layers: []int{1, 1}}, {Layers: []int{2}}}
	if got, want := greedy(t, start(t, e, s), aPrompt, 24), alone(t, e, path); !slices.Equal(got, want) {
		t.Errorf("%v, alone %v", got, want)
	}
}

// A relay that is killed takes its RPC server and the network with it.
func TestGuardDies(t *testing.T) {
	needGuard(t)
	dir := t.TempDir()
	spec, err := json.Marshal(RPCSpec{Name: "held", RunDir: filepath.Join(dir, "run"), Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	cmd, h := holdBy(t, "hold-rpc", spec)
	server, shim := watch(t, h.Engine), watch(t, h.Shim)
	network := link(t, h.Engine)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.gone(2 * time.Second)
	shim.gone(2 * time.Second)
	processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if to, err := os.Readlink(p); err == nil && to == network {
			t.Errorf("%s has the network", p)
		}
	}
}

// A server that does not start says why.
func TestRPCFails(t *testing.T) {
	e := engine(t)
	s := RPCSpec{Name: "worker", RunDir: filepath.Join(t.TempDir(), "run"), Devices: []string{"CUDA99"}}
	if _, err := e.StartRPC(t.Context(), s); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "unknown device: CUDA99") {
		t.Errorf("a device that is not there: %v", err)
	}
	e.RPC, s.Devices = "5.0.0", nil
	if _, err := e.StartRPC(t.Context(), s); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "not 5.0.0") {
		t.Errorf("another version: %v", err)
	}
	e.RPCServer = "/bin/cat"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := e.StartRPC(ctx, s); !errors.Is(err, ErrEngine) {
		t.Errorf("another program: %v", err)
	}
	if left, err := os.ReadDir(s.RunDir); err != nil || len(left) > 2 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// What is wrong is said before anything is started.
func TestGuardRequired(t *testing.T) {
	for _, c := range []struct {
		mode SandboxMode
		off  bool
		err  error
	}{{SandboxOff, false, nil}, {SandboxAuto, true, nil}} {
		if g, err := guardFor(t.Context(), c.mode, nil, c.off); !errors.Is(err, c.err) || g.OK || !strings.Contains(g.Text, "local users are trusted") {
			t.Errorf("%+v: %+v %v", c, g, err)
		}
	}
	// A shim that cannot make its network, as this one that says so.
	guardProbe.Lock()
	was, known := guardProbe.guard, guardProbe.known
	guardProbe.known = false
	guardProbe.Unlock()
	defer func() { guardProbe.guard, guardProbe.known = was, known }()
	shim := []string{"/bin/sh", "-c", `echo '{"failed":"the loopback device: operation not permitted"}'`}
	g, err := guardFor(t.Context(), SandboxRequire, shim, false)
	if !errors.Is(err, ErrSandbox) || g.OK || !strings.Contains(g.Text, "the loopback device: operation not permitted") {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := guardFor(t.Context(), SandboxAuto, nil, false); err != nil || g.OK { // It is known by now.
		t.Errorf("%+v %v", g, err)
	}
}

// freeze stops a process, and waits until all of it has stopped.
func freeze(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		running := slices.ContainsFunc(threads, func(path string) bool {
			_, state, _ := strings.Cut(read(t, path), ") ")
			return !strings.HasPrefix(state, "T")
		})
		if !running {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("it does not stop")
		}
	}
}

// A shim that hangs holds up nobody for longer than they wait.
func TestGuardFrozen(t *testing.T) {
	needGuard(t)
	r := startRPC(t, engine(t), RPCSpec{})
	shim := r.p.cmd.Process.Pid
	freeze(t, shim)
	dial := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		c, err := r.Dial(ctx)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := dial(200 * time.Millisecond); err == nil {
				t.Error("who connected?")
			}
		})
	}
	all.Wait()
	if err := unix.Kill(shim, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The answers that came too late are nobody's.
	if err := dial(10 * time.Second); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	if err := dial(10 * time.Second); err == nil {
		t.Error("it is gone, and somebody answers")
	}
}

// A connection to a server that is busy waits no longer than its context, and the
// next one gets through when it is free.
func TestDialBusy(t *testing.T) {
	r := startRPC(t, engine(t), RPCSpec{})
	var held []net.Conn
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		c, err := r.Dial(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			break
		}
		if held = append(held, c); len(held) > 100 {
			t.Fatal("it takes all")
		}
	}
	for _, c := range held {
		c.Close()
	}
	if err := r.awaitHello(t.Context(), engine(t).RPC); err != nil {
		t.Error(err)
	}
}
