//go:build linux

package seam

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// engine is a peer's llama-server: its process, and the socket at which its peer asks it.
type engine struct {
	pid    int
	socket string
}

// engines finds those of all peers, by the peers' names.
func (m *Mesh) engines() (map[string]engine, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	found := map[string]engine{}
	for _, path := range lines {
		said, err := os.ReadFile(path)
		words := strings.Split(string(said), "\x00")
		at := slices.Index(words, "--host")
		if err != nil || filepath.Base(words[0]) != "llama-server" || at < 0 || at+1 >= len(words) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		for _, name := range m.serving {
			if p := m.Peer(name); p != nil && strings.Contains(string(said), p.State()+string(filepath.Separator)) {
				found[name] = engine{pid: pid, socket: words[at+1]}
			}
		}
	}
	return found, nil
}

// signal sends a signal to a peer's process and to its engine's.
func (v victim) signal(s syscall.Signal) error {
	return errors.Join(syscall.Kill(v.peer.Pid(), s), syscall.Kill(v.engine.pid, s))
}

// post puts one question to the engine, without its peer.
func (e engine) post(ctx context.Context, path string, body any) (io.ReadCloser, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", e.socket)
	}}
	response, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return nil, fmt.Errorf("the engine answers %s to %s: %s", response.Status, path, said)
	}
	return response.Body, nil
}

// prompt is the text of which a question makes the model's prompt.
func (e engine) prompt(ctx context.Context, q Question) (string, error) {
	if !q.Chat {
		return q.Text, nil
	}
	body, err := e.post(ctx, "/apply-template", map[string]any{"messages": q.messages()})
	if err != nil {
		return "", err
	}
	defer body.Close()
	var answer struct{ Prompt string }
	return answer.Prompt, json.NewDecoder(body).Decode(&answer)
}

// token is one that an engine wrote, and the text with which it came.
type token struct {
	id   int
	text string
}

// chain is what an engine wrote after some prompt and tokens.
type chain struct {
	tokens []token
	prompt int // Its tokens, and those that were given with it.
	// first is how long it took until the first token: the prefill of all that was
	// given, and one step. step is the median time from one token to the next.
	first, step time.Duration
}

// text is that of the first n tokens.
func (c chain) text(n int) string {
	var b strings.Builder
	for _, t := range c.tokens[:min(n, len(c.tokens))] {
		b.WriteString(t.text)
	}
	return b.String()
}

// ids are those of the first n tokens.
func (c chain) ids(n int) []int {
	var ids []int
	for _, t := range c.tokens[:min(n, len(c.tokens))] {
		ids = append(ids, t.id)
	}
	return ids
}

// goOn has the engine write on from a prompt and the ids of some tokens, up to n more,
// and compute all of them anew.
func (e engine) goOn(ctx context.Context, prompt string, ids []int, n int) (c chain, err error) {
	given := []any{prompt}
	for _, id := range ids {
		given = append(given, id)
	}
	began := time.Now()
	body, err := e.post(ctx, "/completion", map[string]any{"prompt": given, "n_predict": n, "temperature": 0, "ignore_eos": true,
		"cache_prompt": false, "return_tokens": true, "stream": true})
	if err != nil {
		return c, err
	}
	defer body.Close()
	var steps []time.Duration
	last := began
	for events := bufio.NewReader(body); ; {
		line, err := events.ReadString('\n')
		if err != nil {
			return c, fmt.Errorf("the engine broke off after %d tokens: %w", len(c.tokens), err)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var is struct {
			Content   string
			Tokens    []int
			Stop      bool
			Predicted int `json:"tokens_predicted"`
			Evaluated int `json:"tokens_evaluated"`
		}
		if err := json.Unmarshal([]byte(data), &is); err != nil {
			return c, err
		}
		if is.Stop {
			c.prompt = is.Evaluated
			if is.Predicted != len(c.tokens) || len(c.tokens) != n {
				return c, fmt.Errorf("of %d tokens the engine wrote %d and showed %d: this question is of no use here", n, is.Predicted, len(c.tokens))
			}
			if len(steps) > 0 {
				slices.Sort(steps)
				c.step = steps[len(steps)/2]
			}
			return c, nil
		}
		now := time.Now()
		if len(c.tokens) == 0 {
			c.first = now.Sub(began)
		} else {
			steps = append(steps, now.Sub(last))
		}
		last = now
		if len(is.Tokens) != 1 {
			return c, fmt.Errorf("an event of the engine has %d tokens: %s", len(is.Tokens), data)
		}
		c.tokens = append(c.tokens, token{is.Tokens[0], is.Content})
	}
}
