package llama

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"relay/llama/gguf/gguftest"
)

// hashed is how large a tensor must at least be, in bytes, for the engine to ask for it by
// its hash.
const hashed = 10<<20 + 1

// counted is join, with what is sent to the servers counted.
func counted(t testing.TB, sent *atomic.Int64, servers ...*RPCServer) func(context.Context, int, net.Conn) {
	to := join(t, servers...)
	return func(ctx context.Context, remote int, c net.Conn) {
		ours, theirs := net.Pipe()
		var both sync.WaitGroup
		both.Go(func() { to(ctx, remote, theirs) })
		both.Go(func() {
			_, _ = io.Copy(c, ours)
			_ = c.Close()
		})
		n, _ := io.Copy(ours, c)
		sent.Add(n)
		_ = ours.Close()
		both.Wait()
	}
}

// contents are what is in a folder: names with sizes and times.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all[path] = fmt.Sprintln(info.Size(), info.ModTime(), info.Mode())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Weights that are in its folder do not go to a server, and what it is sent never
// gets there.
func TestTensors(t *testing.T) {
	if s := ProbeSandbox(); !s.Full() {
		t.Skipf("nothing keeps it from writing: %s", s.Text)
	}
	e := engine(t)
	path := randomModel(t, gguftest.Random{Arch: "gemma3", Type: gguftest.Q8_0, Layers: 3, Width: 1536, KVWidth: 256, HeadWidth: 64, FeedForward: 8192, Window: 128, Train: 4096})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rpc"), 0o700); err != nil {
		t.Fatal(err)
	}
	var all, small int64
	for _, tensor := range tensorsOf(t, path) {
		if !strings.HasPrefix(tensor.Name, "blk.1.") && !strings.HasPrefix(tensor.Name, "blk.2.") {
			continue
		}
		all += int64(len(tensor.Data))
		if len(tensor.Data) < hashed {
			small += int64(len(tensor.Data))
			continue
		}
		h := fnv.New64a()
		_, _ = h.Write(tensor.Data) // it never fails
		if err := os.WriteFile(filepath.Join(dir, "rpc", fmt.Sprintf("%016x", h.Sum64())), tensor.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if small > all/4 {
		t.Fatalf("%d of %d bytes in small tensors", small, all)
	}
	for _, tensors := range []string{dir, t.TempDir(), ""} {
		before := contents(t, dir)
		r := startRPC(t, e, RPCSpec{Tensors: tensors})
		if r.Cached() != (tensors != "") {
			t.Errorf("%q: uses the folder: %v", tensors, r.Cached())
		}
		var sent atomic.Int64
		s := Spec{
			Name: "shards", Model: path, Context: 256, Threads: 1, RunDir: filepath.Join(t.TempDir(), "run"),
			Remotes: []Remote{{Layers: []int{2}}}, GPULayers: 3, Connected: counted(t, &sent, r),
		}
		stop(t, start(t, e, s)) // then all is counted
		want := all
		if tensors == dir {
			want = small
		}
		// What else is sent: graphs, and what goes into them.
		if n := sent.Load(); n < want || n > want+all/50 {
			t.Errorf("%q: %d bytes were sent, of tensors %d", tensors, n, want)
		}
		if after := contents(t, dir); !maps.Equal(before, after) {
			t.Errorf("%q: the folder was %v and is %v", tensors, before, after)
		}
		if tensors != "" && tensors != dir && len(contents(t, tensors)) != 2 {
			t.Errorf("there is something in the empty folder: %v", contents(t, tensors))
		}
	}
}

// stop stops an engine now.
func stop(t testing.TB, p *Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// What a long prompt makes is large as well, and would be kept.
func TestTensorsOfPrompts(t *testing.T) {
	if s := ProbeSandbox(); !s.Full() {
		t.Skipf("nothing keeps it from writing: %s", s.Text)
	}
	e := engine(t)
	path := randomModel(t, small("gemma3"))
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "rpc"), 0o777), os.WriteFile(filepath.Join(dir, "rpc", "0123456789abcdef"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	ids := make([]int, 4000)
	for i := range ids {
		ids[i] = 300 + i%700
	}
	prompt := func(connected func(context.Context, int, net.Conn)) {
		s := shards(t, path, connected)
		s.Remotes, s.GPULayers, s.Context, s.Args = []Remote{{Layers: []int{4}}}, 5, 4096, []string{"-b", "2048", "-ub", "2048"}
		p := start(t, e, s)
		// What it says to that may be no text, which is an error of its own.
		if _, _, err := p.ask(t.Context(), "POST", "/completion", map[string]any{"prompt": ids, "n_predict": 1}); err != nil {
			t.Fatal(err)
		}
		stop(t, p)
	}
	r := startRPC(t, e, RPCSpec{Tensors: dir})
	if !r.Cached() {
		t.Error("it does not use its folder")
	}
	before := contents(t, dir)
	prompt(join(t, r))
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Errorf("the folder was %v and is %v", before, after)
	}
	// A server that may write there does: this test would notice.
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(e.RPCServer, "-p", fmt.Sprint(port), "-t", "1", "-d", "CPU", "-c")
	cmd.Env = append(os.Environ(), tensorsVariable+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	free := &RPCServer{newProcess(Spec{}, endpoint{port: port}, socketPlace{}, nil)}
	if err := free.awaitHello(t.Context(), e.RPC); err != nil {
		t.Fatal(err)
	}
	prompt(join(t, free))
	if after := contents(t, dir); maps.Equal(before, after) {
		t.Error("the prompt makes nothing large")
	}
}

// Without a sandbox there is nothing that keeps a server from writing.
func TestTensorsFree(t *testing.T) {
	r := startRPC(t, engine(t), RPCSpec{Tensors: t.TempDir(), Sandbox: SandboxOff})
	if r.Cached() || r.Guarded() {
		t.Errorf("cached %v, guarded %v", r.Cached(), r.Guarded())
	}
	dir := t.TempDir()
	if onlyReads(dir) || len(contents(t, dir)) != 1 {
		t.Errorf("a folder to write in: %v", contents(t, dir))
	}
	if onlyReads(filepath.Join(dir, "none")) {
		t.Error("a folder that is not there")
	}
}

// All of it works for a user without special rights.
func TestShardsAsNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become nobody")
	}
	e := engine(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "relay-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const nobody = 65534
	files := []string{self, e.Server, e.RPCServer, filepath.Join(filepath.Dir(e.Server), "build.json")}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not all builds have one
		}
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, filepath.Base(self)), "-test.run", "^(TestCoordinator|TestGuard|TestGuardDies|TestTensors|TestTensorsOfPrompts|TestUnguarded)$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"RELAY_LLAMA_BIN=" + dir, "TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "SKIP") && ProbeGuard(t.Context(), nil).OK && ProbeSandbox().Full() {
			t.Errorf("left out: %s", line)
		}
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
