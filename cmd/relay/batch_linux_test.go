package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/api"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

// TestBatchGivesWay: of two slots the requests of a key of batch get one, at whichever
// door they come; the other one is there for those of any other key at once, and a request
// that leaves the queue or its slot makes room. Requests that only read tokens never wait.
func TestBatchGivesWay(t *testing.T) {
	path, err := exec.LookPath("relay")
	if err != nil {
		t.Fatal(err)
	}
	var s *stage.Stage
	s, err = stage.New(stage.Options{Binary: path, Env: func(string) []string {
		return []string{"RELAY_API_KEY=rk-waits", "RELAY_LLAMA_BIN=" + filepath.Join(s.Dir, "llama-server")}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Key = "rk-waits"
	t.Cleanup(func() {
		if err := s.End(); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(s.Dir, "llama-server"), fmt.Appendf(nil, "#!/bin/sh\nexec %s sim-engine --quiet --decode 10 \"$@\"\n", path), 0o700))
	attic, err := s.Up(ctx, "attic", "--sandbox", "off")
	must(err)
	model := filepath.Join(s.Dir, "sim.gguf")
	must(os.WriteFile(model, demo.GGUF(), 0o600))
	must(attic.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: "sim", Paths: []string{model}, Context: 2048, Slots: 2}, &struct{}{}))
	invite, err := s.Invite(ctx, attic)
	must(err)
	den, err := s.Up(ctx, "den", "--join", invite, "--lend", "none")
	must(err)
	out, err := s.Quietly(ctx, attic, "key", "add", "nightly", "--priority", "batch", "--json")
	must(err)
	var nightly api.KeyMade
	must(json.Unmarshal([]byte(out), &nightly))
	for _, p := range []*stage.Peer{attic, den} {
		must(stage.Until(ctx, p.Name+" answers", func() bool { return s.Chat(ctx, p, "sim", "hello", 2, func(string) {}) == nil }))
		must(stage.Until(ctx, p.Name+" knows the key", func() bool {
			k := askFor(ctx, p, nightly.Secret, 1)
			defer k.leave()
			return (<-k.begun).status == http.StatusOK
		}))
	}
	busy := func(inFlight, waiting int) {
		t.Helper()
		must(stage.Until(ctx, fmt.Sprintf("%d requests are there, of which %d wait", inFlight, waiting), func() bool {
			out, _ := s.Command(ctx, den, "status", "--json").Output()
			var st struct {
				Models []struct {
					Replicas []struct{ Inflight, Waiting *int }
				}
			}
			if json.Unmarshal(out, &st) != nil || len(st.Models) != 1 || len(st.Models[0].Replicas) != 1 {
				return false
			}
			r := st.Models[0].Replicas[0]
			return r.Inflight != nil && r.Waiting != nil && *r.Inflight == inFlight && *r.Waiting == waiting
		}))
	}
	busy(0, 0)

	const long = 1500 // Tokens, of ten a second.
	first := askFor(ctx, den, nightly.Secret, long)
	if got := <-first.begun; got.status != http.StatusOK {
		t.Fatalf("the first of batch: %+v", got)
	}
	second, third := askFor(ctx, attic, nightly.Secret, long), askFor(ctx, den, nightly.Secret, long)
	busy(3, 2)
	for _, p := range []*stage.Peer{attic, den} {
		k := askFor(ctx, p, s.Key, 4)
		got := <-k.begun
		if got.status != http.StatusOK || got.queue < 0 || got.queue > time.Second {
			t.Errorf("one that is not of batch, at %s: %+v", p.Name, got)
		}
		<-k.over
		busy(3, 2)
	}
	// Two that are not of batch: one has the slot, the other one waits, though not behind
	// those of batch.
	fourth := askFor(ctx, den, s.Key, long)
	<-fourth.begun
	fifth := askFor(ctx, attic, s.Key, long)
	busy(5, 3)
	status, body, err := post(ctx, den, s.Key, "/v1/tokenize", `{"model":"sim","content":"hello"}`)
	must(err)
	if status != http.StatusOK {
		t.Errorf("tokenize while all is taken: %d %s", status, body)
	}
	third.leave()
	busy(4, 2)
	first.leave()
	if got := <-fifth.begun; got.status != http.StatusOK || got.queue == 0 {
		t.Errorf("the second one that is not of batch: %+v", got)
	}
	busy(3, 1)
	fourth.leave()
	busy(2, 1) // The last free slot is left.
	fifth.leave()
	if got := <-second.begun; got.status != http.StatusOK || got.queue == 0 {
		t.Errorf("the second of batch: %+v", got)
	}
	second.leave()
	busy(0, 0)
}

// asked is a streamed request.
type asked struct {
	begun chan began // The first event has come, or a refusal.
	over  chan struct{}
	leave context.CancelFunc
}

type began struct {
	status int
	queue  time.Duration // As x-relay-queue-ms says; less than 0 where it is missing, as after a comment.
	err    error
}

func askFor(ctx context.Context, p *stage.Peer, key string, tokens int) *asked {
	ctx, leave := context.WithCancel(ctx)
	k := &asked{begun: make(chan began, 1), over: make(chan struct{}), leave: leave}
	go func() {
		defer close(k.over)
		defer leave()
		body := fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"hello"}]}`, tokens)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Door+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			k.begun <- began{err: err}
			return
		}
		r.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			k.begun <- began{err: err}
			return
		}
		defer response.Body.Close()
		b := began{status: response.StatusCode, queue: -1}
		if waited, err := strconv.ParseFloat(response.Header.Get("X-Relay-Queue-Ms"), 64); err == nil {
			b.queue = time.Duration(waited * float64(time.Millisecond))
		}
		told := false
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if !told && !strings.HasPrefix(lines.Text(), ":") && lines.Text() != "" {
				told = true
				k.begun <- b
			}
		}
		if !told {
			k.begun <- b
		}
	}()
	return k
}

func post(ctx context.Context, p *stage.Peer, key, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Door+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}
