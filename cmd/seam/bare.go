//go:build linux

package seam

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"relay/cmd/stage"
)

// bare is an engine of the same build as the peers' own, started by the same words, that
// no peer knows of.
type bare struct {
	process *exec.Cmd
	client  *http.Client
}

func (m *Mesh) startBare(ctx context.Context) (*bare, error) {
	all, err := m.engines()
	if err != nil {
		return nil, err
	}
	like := all[m.serving[0]]
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", like.pid))
	if err != nil {
		return nil, fmt.Errorf("no engine of %s runs: %w", m.serving[0], err)
	}
	socket := filepath.Join(m.Dir, "bare.sock")
	words := slices.Clone(like.words[1:])
	words[slices.Index(words, "--host")+1] = socket
	b := &bare{process: exec.Command(program, words...), client: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
	if err := b.process.Start(); err != nil {
		return nil, err
	}
	err = stage.Until(ctx, "the bare engine answers", func() bool {
		response, err := b.client.Get("http://engine/health")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	if err != nil {
		b.stop()
	}
	return b, err
}

func (b *bare) stop() {
	_ = b.process.Process.Kill()
	_ = b.process.Wait() // It was killed.
}

// post puts one question to the engine, without its peer.
func (b *bare) post(ctx context.Context, path string, body any) (io.ReadCloser, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := b.client.Do(r)
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

// prompt is the text of which a question makes the model's prompt, with the beginning of
// an answer behind it.
func (b *bare) prompt(ctx context.Context, q Question, answer string) (string, error) {
	if !q.Chat {
		return q.Text + answer, nil
	}
	ask := map[string]any{"messages": q.messages()}
	if answer != "" {
		ask["messages"] = append(q.messages(), map[string]string{"role": "assistant", "content": answer})
		ask["add_generation_prompt"], ask["continue_final_message"] = false, "content"
	}
	body, err := b.post(ctx, "/apply-template", ask)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var is struct{ Prompt string }
	return is.Prompt, json.NewDecoder(body).Decode(&is)
}

// behind is a prompt with the ids of some tokens behind it.
func behind(prompt string, ids []int) []any {
	given := []any{prompt}
	for _, id := range ids {
		given = append(given, id)
	}
	return given
}

// goOn has the engine write on from a prompt and the ids of some tokens, up to n more,
// and compute all of them anew.
func (b *bare) goOn(ctx context.Context, prompt string, ids []int, n int) (c chain, err error) {
	began := time.Now()
	body, err := b.post(ctx, "/completion", map[string]any{"prompt": behind(prompt, ids), "n_predict": n, "temperature": 0, "ignore_eos": true,
		"cache_prompt": false, "return_tokens": true, "stream": true})
	if err != nil {
		return c, err
	}
	defer body.Close()
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
			return c, nil
		}
		if len(c.tokens) == 0 {
			c.first = time.Since(began)
		}
		if len(is.Tokens) != 1 {
			return c, fmt.Errorf("an event of the engine has %d tokens: %s", len(is.Tokens), data)
		}
		c.tokens = append(c.tokens, token{is.Tokens[0], is.Content})
	}
}
