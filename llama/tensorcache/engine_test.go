package tensorcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/llama"
	"relay/llama/demo"
	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
)

// patience is how long an engine may take to load some hundred MB.
const patience = 2 * time.Minute

// TestEngineReads: a real rpc-server takes each large tensor of its layers out of
// the cache, so that only the small ones cross the link to it.
func TestEngineReads(t *testing.T) {
	e, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil || e.RPCServer == "" {
		t.Skipf("no engine with an rpc-server (%v): `make engine` builds one", err)
	}
	const layers, first = 6, 2 // those from the first on are the rpc-server's
	path := model(t, layers)
	h, err := gguf.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := h.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := open(t, t.TempDir(), Options{})
	var large, small int64
	for _, x := range tensors {
		switch {
		case x.Layer < first || x.Layer >= layers:
		case x.Bytes > Least:
			large += x.Bytes
			r := io.NewSectionReader(file, x.Offset, x.Bytes)
			if err := c.Fill(t.Context(), Key{"bafymodel", x.Offset, x.Bytes}, r); err != nil {
				t.Fatal(err)
			}
		default:
			small += x.Bytes
		}
	}
	before := names(t, c.Dir(), tensorFolder)
	if c.Bytes() != large || len(before) != 3*(layers-first) {
		t.Fatalf("%d bytes in %d files, of %d bytes in large tensors", c.Bytes(), len(before), large)
	}

	worker, port := freePort(t), freePort(t)
	run(t, []string{"LLAMA_CACHE=" + c.Dir()}, "tcp", worker, e.RPCServer, "-t", "1", "-H", "127.0.0.1", "-p", worker, "-d", "CPU", "-c")
	link := tunnel(t, "127.0.0.1:"+worker)
	run(t, nil, "http", port, e.Server, "-m", path, "--rpc", link.addr, "--device", "RPC0", "-ngl", fmt.Sprint(layers+1-first), "-ot", "^output=CPU",
		"-fit", "off", "-c", "256", "-np", "1", "--cache-ram", "0", "-t", "1", "--poll", "0", "--no-warmup", "--no-ui", "--host", "127.0.0.1", "--port", port)

	crossed := link.bytes.Load()
	excess := float64(max(crossed-small, small-crossed)) / float64(h.TensorBytes)
	t.Logf("of %.1f MB of layers, %.1f MB in small tensors, %.1f MB crossed the link: excess %.4f of the model's %.1f MB",
		float64(large+small)/1e6, float64(small)/1e6, float64(crossed)/1e6, excess, float64(h.TensorBytes)/1e6)
	if excess > 0.02 || large < 4*small {
		t.Errorf("%d bytes crossed the link, and small tensors have %d", crossed, small)
	}
	if after := names(t, c.Dir(), tensorFolder); !slices.Equal(after, before) {
		t.Errorf("the rpc-server left %q, of %q", after, before)
	}
	sound(t, c)
}

// model writes a random model of more than 300 MB, no two tensors of it alike.
func model(t *testing.T, layers int) string {
	t.Helper()
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	m := gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: layers, Width: 2048, KVWidth: 512, HeadWidth: 128, FeedForward: 8192, Train: 4096}
	if err := m.Write(path, from); err != nil {
		t.Fatal(err)
	}
	h, err := gguf.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := h.Tensors()
	if err != nil || h.TensorBytes < 300<<20 {
		t.Fatalf("%d bytes: %v", h.TensorBytes, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, x := range tensors {
		if x.Layer < 0 || x.Bytes <= Least {
			continue
		}
		// Behind the scale of its first block.
		if _, err := f.WriteAt(binary.LittleEndian.AppendUint32(nil, uint32(i)), x.Offset+2); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// freePort is a port of this machine that nobody listened on just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// run starts a program that ends with the test, and waits until it answers at a
// port: takes connections, or says by HTTP that it is well.
func run(t *testing.T, env []string, how, port string, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	var log bytes.Buffer // read when it has ended
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &log, &log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	tick, late := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for answers(how, "127.0.0.1:"+port) != nil {
		select {
		case <-tick.C:
			continue
		case <-ended:
		case <-late:
		}
		stop()
		t.Fatalf("%s does not answer: %s", filepath.Base(program), log.Bytes()[max(0, log.Len()-4000):])
	}
}

func answers(how, addr string) error {
	if how == "tcp" {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + addr + "/health")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// A link counts the bytes between a coordinator and its rpc-server, both ways.
type link struct {
	addr  string
	bytes atomic.Int64
}

func (l *link) Write(b []byte) (int, error) {
	l.bytes.Add(int64(len(b)))
	return len(b), nil
}

// tunnel passes on what comes, until the test ends.
func tunnel(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: listener.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		all.Wait() // the coordinator ended before, and its connections with it
	})
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				near.Close()
				return
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, io.TeeReader(from, l))
				to.Close()
				from.Close()
			}
			all.Go(func() { pass(near, far) })
			all.Go(func() { pass(far, near) })
		}
	})
	return l
}
