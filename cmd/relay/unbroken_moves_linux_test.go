package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

const (
	movesKey = "rk-moves"
	// movesRate is the tokens a second of an answer, and movesTokens how long it is: far
	// longer than what is done to its peer takes, where that does not wait for the answer.
	movesRate, movesTokens = 20, 120
	// movesAfter is the piece at which that is done.
	movesAfter = 20
)

// moves is a mesh of two peers that serve, and an entrance that does not.
type moves struct {
	*testing.T
	*stage.Stage
	entrance *stage.Peer
}

func newMoves(t *testing.T) *moves {
	t.Helper()
	m, own := &moves{T: t}, t.TempDir()
	m.Stage = newStage(t, stage.Options{Env: func(peer string) []string {
		engine := filepath.Join(own, "llama-server")
		if peer == "entrance" {
			engine = os.DevNull
		}
		return []string{"RELAY_API_KEY=" + movesKey, "RELAY_SANDBOX=off", "RELAY_LLAMA_BIN=" + engine}
	}})
	m.Key = movesKey
	m.must(os.WriteFile(filepath.Join(own, "llama-server"), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' sim-engine --quiet --seed 3 --decode %d \"$@\"\n", m.Binary, movesRate), 0o700))
	var err error
	m.entrance, err = m.Up(t.Context(), "entrance", "--lend", "none")
	m.must(err)
	invite, err := m.Invite(t.Context(), m.entrance, "--uses", "2")
	m.must(err)
	file, err := demo.Write(own)
	m.must(err)
	m.must(m.entrance.Follow(t.Context(), "/v0/model/add", scheduler.AddOptions{Name: "sim", Paths: []string{file}, Context: 1024, Slots: 4}, &struct{}{}))
	for _, name := range []string{"attic", "den"} {
		p, err := m.Up(t.Context(), name, "--join", invite)
		m.must(err)
		m.must(stage.Until(t.Context(), name+" knows who has the model", func() bool {
			var all []scheduler.ModelState
			return p.Ask(t.Context(), "/v0/models", nil, &all) == nil && len(all) > 0 && len(all[0].Holders) > 0
		}))
		m.must(p.Follow(t.Context(), "/v0/model/pull", map[string]string{"name": "sim"}, &struct{}{}))
	}
	m.must(m.entrance.Ask(t.Context(), "/v0/model/set", map[string]any{"name": "sim", "min": 2}, nil))
	return m
}

func (m *moves) must(errs ...error) {
	m.Helper()
	if err := errors.Join(errs...); err != nil {
		m.Fatal(err)
	}
}

// ready waits until both serve, as the entrance sees it.
func (m *moves) ready() {
	m.Helper()
	m.must(stage.Until(m.Context(), "both serve", func() bool {
		var all []scheduler.ModelState
		if m.entrance.Ask(m.Context(), "/v0/models", nil, &all) != nil || len(all) == 0 {
			return false
		}
		n := 0
		for _, r := range all[0].Replicas {
			if r.State == scheduler.StateReady && r.Stage == "" {
				n++
			}
		}
		return n == 2
	}))
}

// told is one answer as its client got it.
type told struct {
	text     string
	seams    []string // The comments about them.
	gap      time.Duration
	from     string // The name of the peer that began it.
	whole    time.Duration
	complete bool
}

var seamComment = regexp.MustCompile(`^: relay continued from=(\S+) to=(\S+) tokens=\d+ by=(ids|text)$`)

// ask has the entrance answer, and calls at with the peer that serves once there are
// movesAfter pieces.
func (m *moves) ask(at func(serving *stage.Peer)) (is told) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	defer cancel()
	body, err := json.Marshal(map[string]any{"model": "sim", "stream": true, "temperature": 0, "max_tokens": movesTokens, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": "Tell me of machines."}}})
	m.must(err)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.entrance.Door+"/v1/chat/completions", bytes.NewReader(body))
	m.must(err)
	r.Header.Set("Authorization", "Bearer "+movesKey)
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := http.DefaultClient.Do(r)
	m.must(err)
	defer response.Body.Close()
	seen, err := m.entrance.Sees(ctx)
	m.must(err)
	for name, p := range seen {
		if p.ID == response.Header.Get("X-Relay-Peer") {
			is.from = name
		}
	}
	pieces, last := 0, time.Now()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, ": relay continued") {
			is.seams = append(is.seams, line)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			is.complete = true
			break
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
			Error   *struct{ Message string }
		}
		m.must(json.Unmarshal([]byte(data), &event))
		if event.Error != nil {
			m.Errorf("it ended with an error: %s", event.Error.Message)
		}
		for _, c := range event.Choices {
			is.text += c.Delta.Content
		}
		if pieces++; pieces > 1 {
			is.gap = max(is.gap, time.Since(last))
		}
		if last = time.Now(); pieces == movesAfter && at != nil {
			at(m.Peer(is.from))
		}
	}
	is.whole = time.Since(began)
	return is
}

// engineOf is the process of a peer's engine.
func (m *moves) engineOf(p *stage.Peer) int {
	m.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	m.must(err)
	for _, path := range lines {
		said, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(said), "sim-engine") || !strings.Contains(string(said), p.State()+string(filepath.Separator)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		m.must(err)
		return pid
	}
	m.Fatalf("%s has no engine", p.Name)
	return 0
}

// TestStreamsMove: what somebody wants of a machine or a model does not wait for the
// answers that are under way there, where another replica is ready: they go on there at
// once, and are what they would have been. An engine that is frozen is left in seconds.
func TestStreamsMove(t *testing.T) {
	m := newMoves(t)
	m.ready()
	undisturbed := m.ask(nil)
	if !undisturbed.complete || len(undisturbed.seams) != 0 || undisturbed.whole < movesTokens/movesRate*time.Second*3/4 {
		t.Fatalf("undisturbed, after %s: %+v", undisturbed.whole, undisturbed)
	}
	for _, c := range []struct {
		name string
		do   func(serving *stage.Peer) error
		undo func(name string) error
		gap  time.Duration // The longest that may be.
	}{
		{"drained", func(p *stage.Peer) error {
			_, err := m.Relay(t.Context(), m.entrance, "peer", "drain", p.Name)
			return err
		}, func(name string) error {
			_, err := m.Relay(t.Context(), m.entrance, "peer", "undrain", name)
			return err
		}, 3 * time.Second},
		{"restarted", func(*stage.Peer) error {
			_, err := m.Relay(t.Context(), m.entrance, "model", "restart", "sim")
			return err
		}, nil, 3 * time.Second},
		{"stopped", func(p *stage.Peer) error {
			began := time.Now()
			if _, err := m.Relay(t.Context(), p, "down"); err != nil {
				return err
			}
			<-p.Ended()
			t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
			return nil
		}, func(name string) error {
			_, err := m.Up(t.Context(), name)
			return err
		}, 3 * time.Second},
		{"engine frozen", func(p *stage.Peer) error { return syscall.Kill(m.engineOf(p), syscall.SIGSTOP) }, nil, 15 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.ready()
			done := make(chan error, 1)
			var took time.Duration
			got := m.ask(func(serving *stage.Peer) {
				began := time.Now()
				go func() {
					err := c.do(serving)
					took = time.Since(began)
					done <- err
				}()
			})
			ended := time.Now()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if late := time.Since(ended); late > time.Second {
				t.Errorf("it waited for the answer: %s, %s longer", took, late)
			}
			if c.undo != nil {
				if err := c.undo(got.from); err != nil {
					t.Fatal(err)
				}
			}
			if !got.complete || got.text != undisturbed.text {
				t.Errorf("had  %q\nwant %q", got.text, undisturbed.text)
			}
			if len(got.seams) == 0 || got.gap > c.gap {
				t.Errorf("seams %q, the longest gap %s", got.seams, got.gap)
			}
			for _, line := range got.seams {
				if !seamComment.MatchString(line) {
					t.Errorf("told: %q", line)
				}
			}
			t.Logf("the longest gap %s; %d seams; it took %s", got.gap.Round(time.Millisecond), len(got.seams), took.Round(time.Millisecond))
		})
	}
}
