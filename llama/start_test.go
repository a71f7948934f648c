//go:build unix

package llama

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// post sends a body to a running engine.
func post(t testing.TB, p *Process, path, body string) (int, string) {
	t.Helper()
	// Scheme, host and port of the address do not count.
	resp, err := (&http.Client{Transport: p.Client()}).Post("https://user@any.example:1"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if resp.Header["Access-Control-Allow-Origin"] != nil {
		t.Error("the engine's header about other sites was passed on")
	}
	return resp.StatusCode, string(data)
}

const (
	question = `{"messages":[{"role":"user","content":"What is relay?"}],"temperature":0}`
	answer   = "relay is a peer-to-peer mesh of machines."
)

func TestStart(t *testing.T) {
	e := engine(t)
	for _, onPort := range []bool{false, true} {
		t.Run(fmt.Sprintf("port=%v", onPort), func(t *testing.T) {
			s := demoSpec(t)
			s.onPort = onPort
			s.Args = []string{"--temp", "0", "--top-k=1"}
			p := start(t, e, s)
			for range 3 {
				if status, got := post(t, p, "/v1/chat/completions?x=1", question); status != 200 || !strings.Contains(got, answer) || !strings.Contains(got, `"model":"demo"`) {
					t.Fatalf("answered %d %s", status, got)
				}
			}
			if status, got := post(t, p, "/slots", ""); status < 400 {
				t.Errorf("the slots, which hold prompts, are shown: %d %s", status, got)
			}
			r := p.Report()
			if r.Layers != 7 || r.Offloaded != 0 || r.GPU() || r.Load <= 0 {
				t.Errorf("report %+v", r)
			}
			i := slices.IndexFunc(r.Buffers, func(b Buffer) bool { return b.Context > 0 })
			if want := uint64(1.5 * (1 << 20)); i < 0 || r.Buffers[i].Context < want || r.Buffers[i].Context > want+1<<16 {
				t.Errorf("2 slots of 512 tokens are %d bytes, not those of %+v", want, r.Buffers)
			}
			if err := p.Err(); err != nil {
				t.Errorf("it runs, and yet %v", err)
			}
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := p.Err(); err != nil {
				t.Errorf("stopped on purpose, and yet %v", err)
			}
			left, err := filepath.Glob(filepath.Join(s.RunDir, "box", "*.sock"))
			if err != nil || left != nil {
				t.Errorf("left behind: %v %v", left, err)
			}
			if err := p.Stop(t.Context()); err != nil {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// A run folder is used again and again, also after a crash.
func TestStartAgain(t *testing.T) {
	e := engine(t)
	s := demoSpec(t)
	if err := os.MkdirAll(filepath.Join(s.RunDir, "box"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.RunDir, "box", "engine.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := start(t, e, s)
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStartLongPath(t *testing.T) {
	e := engine(t)
	s := demoSpec(t)
	s.RunDir = filepath.Join(t.TempDir(), strings.Repeat("long/", 30), "run")
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	p := start(t, e, s)
	if dir := filepath.Dir(p.place.path); filepath.Dir(filepath.Dir(dir)) != base {
		t.Errorf("the socket is %s, not below %s", p.place.path, base)
	}
	if _, got := post(t, p, "/v1/chat/completions", question); !strings.Contains(got, answer) {
		t.Errorf("answered %s", got)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestStartBadModel(t *testing.T) {
	e := engine(t)
	good := demoSpec(t)
	data, err := os.ReadFile(good.Model)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
		text string
	}{
		{"none", nil, ErrFile, "no such file"},
		{"text", []byte("this is not a model"), ErrEngine, "invalid magic"},
		{"short", data[:len(data)/2], ErrEngine, "not within the file bounds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := demoSpec(t)
			s.Model = filepath.Join(t.TempDir(), "m.gguf")
			if c.data != nil {
				if err := os.WriteFile(s.Model, c.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := e.Start(t.Context(), s)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), `"demo"`) {
				t.Errorf("got %v", err)
			}
			t.Log(err)
		})
	}
}

func TestStartFails(t *testing.T) {
	for _, c := range []struct {
		name string
		in   time.Duration
		want error
		text string
	}{
		{"dies", 0, ErrEngine, "the tensors are made of cheese"},
		{"silent", 0, ErrEngine, "exit status 3"},
		{"aborts", 0, ErrEngine, "GGML_ASSERT(false)"},
		{"refuses", 0, ErrEngine, "no compute for you"},
		{"empty", 0, ErrEngine, "nothing in it"},
		{"loads for ever", 300 * time.Millisecond, ErrTimeout, "not ready in time"},
		{"hangs", 300 * time.Millisecond, ErrTimeout, "not ready in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := fakeSpec(t, c.name)
			s.ReadyIn = c.in
			p, err := fakeServer(t).Start(t.Context(), s)
			if err == nil {
				t.Fatal("it started", p.Stop(t.Context()))
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
			t.Log(err)
		})
	}
}

func TestStartGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(100*time.Millisecond, cancel)
	defer timer.Stop()
	if _, err := fakeServer(t).Start(ctx, fakeSpec(t, "loads for ever")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestStartKinds(t *testing.T) {
	for _, kind := range []Kind{KindChat, KindEmbed, KindRerank} {
		s := fakeSpec(t, "kind")
		s.Kind = kind
		p := start(t, fakeServer(t), s)
		_, args := post(t, p, "/args", "")
		if got, want := strings.Contains(args, "--embeddings"), kind == KindEmbed; got != want {
			t.Errorf("%s: --embeddings %v", kind, got)
		}
		if got, want := strings.Contains(args, "--reranking"), kind == KindRerank; got != want {
			t.Errorf("%s: --reranking %v", kind, got)
		}
	}
}

// An engine that does not end when it is asked to is killed.
func TestStopStubborn(t *testing.T) {
	p, err := fakeServer(t).Start(t.Context(), fakeSpec(t, "stubborn"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("it is not gone")
	}
}

func TestEnvironment(t *testing.T) {
	for _, name := range []string{"RELAY_API_KEY", "HF_TOKEN", "LLAMA_ARG_HOST", "LLAMA_API_KEY", "AWS_SECRET_ACCESS_KEY", "AIP_MODE", "SSH_AUTH_SOCK"} {
		t.Setenv(name, "secret-value")
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	p := start(t, fakeServer(t), fakeSpec(t, "env"))
	_, env := post(t, p, "/env", "")
	if strings.Contains(env, "secret-value") {
		t.Errorf("the engine sees secrets:\n%s", env)
	}
	for _, want := range []string{"GGML_NO_BACKTRACE=1", "CUDA_VISIBLE_DEVICES=1", "PATH=", "HOME=" + filepath.Dir(p.place.path)} {
		if !strings.Contains(env, want) {
			t.Errorf("no %s in\n%s", want, env)
		}
	}
}

// What users write must not come into the log, whatever the engine says of it.
func TestLogHoldsNoText(t *testing.T) {
	const secret = "xyzzy-my-secret"
	s := demoSpec(t)
	p := start(t, engine(t), s)
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + secret + `"}],"max_tokens":5}`},
		{"/v1/chat/completions", `{"messages":"` + secret},
		{"/v1/chat/completions", `{"messages":[{"role":"` + secret + `","content":"a"}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:` + secret + `"}}]}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"` + secret + `"}]}]}`},
		{"/completion", `{"prompt":"a","n_predict":5,"grammar":"root ::= ` + secret + ` [` + secret + `"}`},
		{"/completion", `{"prompt":"a","n_predict":5,"json_schema":{"type":"` + secret + `"}}`},
		{"/completion", `{"prompt":"a","n_predict":5,"samplers":["` + secret + `"]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"` + secret + `","parameters":{"type":"` + secret + `"}}}],"max_tokens":5}`},
		{"/" + secret, ``},
		{"/tokenize", `{"content":"` + secret + `","with_pieces":true}`},
	} {
		post(t, p, c.path, c.body)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(s.RunDir, "engine.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "model loaded") {
		t.Errorf("the log has nothing of the start:\n%s", data)
	}
	for _, line := range append(strings.Split(string(data), "\n"), p.LogTail()...) {
		if strings.Contains(line, "xyzzy") || strings.Contains(line, "my-secret") {
			t.Errorf("in the log: %s", line)
		}
	}
}

func TestDevicesReal(t *testing.T) {
	l, err := engine(t).List(t.Context(), Listing{})
	if err != nil {
		t.Fatal(err)
	}
	list, _ := l.Look(t.Context(), Own{})
	ram := list[len(list)-1]
	if ram.Kind != DeviceRAM || !ram.Known || ram.Total < 1<<28 || ram.Free == 0 || ram.Free > ram.Total {
		t.Errorf("%+v", list)
	}
	for _, d := range list[:len(list)-1] {
		if d.Kind != DeviceGPU || !deviceID.MatchString(d.ID) {
			t.Errorf("%+v", d)
		}
	}
}

func TestClientHeaders(t *testing.T) {
	p := start(t, fakeServer(t), fakeSpec(t, "headers"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/headers", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "x-conversation-id", "X-Request-Id"} {
		req.Header.Set(name, "value-of-"+name)
	}
	resp, err := p.Client().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "value-of-"); n != 1 || !strings.Contains(string(data), "value-of-X-Request-Id") {
		t.Errorf("the engine gets\n%s", data)
	}
	if resp.Header.Get("Access-Control-Allow-Origin") != "" || len(req.Header) != 5 {
		t.Errorf("answer %v, request afterwards %v", resp.Header, req.Header)
	}
}

// Many requests at once and one after another, over connections that the engine
// closes after a hundred requests each.
func TestClient(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 3 {
				if status, got := post(t, p, "/v1/chat/completions", question); status != 200 || !strings.Contains(got, answer) {
					t.Errorf("%d %s", status, got)
				}
			}
		})
	}
	wg.Wait()
	for range 250 {
		if status, _, err := p.ask(t.Context(), http.MethodGet, "/health", nil); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
}

// Idle connections do not keep new ones waiting until they close: with as many
// threads as the engine takes by itself, requests beyond them waited 3 s.
func TestClientIdle(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	for _, at := range []int{8, 16, 32} {
		var wg sync.WaitGroup
		for range at {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				if status, _, err := p.ask(ctx, http.MethodGet, "/health", nil); status != 200 || err != nil {
					t.Errorf("%d at once: %d %v", at, status, err)
				}
			})
		}
		wg.Wait()
	}
}

// Whoever runs the hidden command by hand is told what it is.
func TestShimByHand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		stdin string
		text  string
	}{
		{[]string{"engine-shim"}, "", "no order"},
		{[]string{"engine-shim"}, "what is this?\n", "the order"},
		{[]string{"engine-shim", "--help"}, "", "relay's own use"},
	} {
		cmd := exec.Command(self, c.args...)
		cmd.Stdin = strings.NewReader(c.stdin)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), c.text) {
			t.Errorf("%q: %v %s", c.args, err, out)
		}
	}
}
