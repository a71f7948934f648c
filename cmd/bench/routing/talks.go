//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

const (
	// conversations go on at a time, turns each.
	conversations, turns = 50, 10
	// talkRounds is how often each thing is measured.
	talkRounds = 3
	// Three peers serve the model, with slots for all conversations.
	talkSlots               = 64
	talkPrefill, talkDecode = 2000, 40 // tokens per second, of one slot
	talkKey                 = "rk-bench"
)

// talks has conversations go on over three replicas, and says how many of their turns
// reached an engine that had what came before, by the engine's own account, and how far
// apart the replicas are in the requests that they got. The base is the same conversations
// where no two turns begin alike to relay: their clients write the same JSON with other
// spaces each time.
func talks(ctx context.Context) (err error) {
	var s *stage.Stage
	s, err = stage.New(stage.Options{Env: func(string) []string {
		return []string{"RELAY_API_KEY=" + talkKey, "RELAY_LLAMA_BIN=" + filepath.Join(s.Dir, "llama-server")}
	}})
	if err != nil {
		return err
	}
	s.Key = talkKey
	defer func() { err = errors.Join(err, s.End()) }()
	peers, err := trio(ctx, s)
	if err != nil {
		return err
	}
	worstHits, worstBase, worstSpread := 1.0, 1.0, 0.0
	for _, c := range []struct {
		name      string
		entrances int
		anyOf     bool
	}{{"one_entrance", 1, false}, {"three_entrances", 3, false}, {"any_of_three", 3, true}} {
		var hits, base, spread []float64
		for range talkRounds {
			ours, err := converse(ctx, peers[:c.entrances], c.anyOf, false)
			if err != nil {
				return err
			}
			without, err := converse(ctx, peers[:c.entrances], c.anyOf, true)
			if err != nil {
				return err
			}
			hits, spread, base = append(hits, ours.hits()), append(spread, ours.spread()), append(base, without.hits())
			figure.Say("%s: %.3f of the turns hit, spread %.3f %v; without: %.3f, %.3f", c.name, ours.hits(), ours.spread(), slices.Sorted(maps.Values(ours.asked)), without.hits(), without.spread())
		}
		figure.Ratio("prefix_hit_share_"+c.name, figure.Median(hits), figure.Median(base), "")
		figure.Value("load_spread_"+c.name, figure.Median(spread), "")
		if h := figure.Median(hits); h < worstHits {
			worstHits, worstBase = h, figure.Median(base)
		}
		worstSpread = max(worstSpread, figure.Median(spread))
	}
	figure.Ratio("prefix_hit_share", worstHits, worstBase, "")
	figure.Value("load_spread", worstSpread, "")
	return nil
}

// trio is three peers that all serve the model, and know it of each other.
func trio(ctx context.Context, s *stage.Stage) (peers []*stage.Peer, err error) {
	script := fmt.Sprintf("#!/bin/sh\nexec %s sim-engine --quiet --prefill %d --decode %d \"$@\"\n", s.Binary, talkPrefill, talkDecode)
	if err := os.WriteFile(filepath.Join(s.Dir, "llama-server"), []byte(script), 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.Dir, "sim.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		return nil, err
	}
	for i, name := range []string{"attic", "den", "cellar"} {
		args := []string{"--sandbox", "off"}
		if i > 0 {
			invite, err := s.Invite(ctx, peers[0])
			if err != nil {
				return nil, err
			}
			args = append(args, "--join", invite)
		}
		p, err := s.Up(ctx, name, args...)
		if err != nil {
			return nil, err
		}
		if peers = append(peers, p); i == 0 {
			err = p.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: "sim", Paths: []string{path}, Context: 1024, Slots: talkSlots}, &struct{}{})
			if err == nil { // Nothing that is kept of the base is to count for the other.
				err = p.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: "base", Paths: []string{path}, Context: 1024, Slots: talkSlots}, &struct{}{})
			}
		} else if err = stage.Until(ctx, name+" knows who has the model", func() bool {
			var all []scheduler.ModelState
			return p.Ask(ctx, "/v0/models", nil, &all) == nil && len(all) == 2 && len(all[0].Holders) > 0
		}); err == nil {
			err = p.Follow(ctx, "/v0/model/pull", map[string]string{"name": "sim"}, &struct{}{})
		}
		if err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"sim", "base"} {
		if err := peers[0].Ask(ctx, "/v0/model/set", map[string]any{"name": name, "min": len(peers)}, nil); err != nil {
			return nil, err
		}
	}
	for _, p := range peers {
		if err := stage.Until(ctx, p.Name+" knows all replicas", func() bool {
			var all []scheduler.ModelState
			return p.Ask(ctx, "/v0/models", nil, &all) == nil && len(all) == 2 && !slices.ContainsFunc(all, func(m scheduler.ModelState) bool {
				return len(m.Replicas) != len(peers) || slices.ContainsFunc(m.Replicas, func(r scheduler.ReplicaState) bool { return r.State != scheduler.StateReady })
			})
		}); err != nil {
			return nil, err
		}
	}
	return peers, nil
}

// tally counts what became of the turns.
type tally struct {
	mu        sync.Mutex
	with, hit int
	asked     map[string]int // By peer.
}

func (t *tally) hits() float64 { return float64(t.hit) / float64(t.with) }

func (t *tally) spread() float64 {
	least, most, sum := 1<<30, 0, 0
	for _, n := range t.asked {
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	if len(t.asked) < 3 {
		least = 0
	}
	return float64(most-least) / (float64(sum) / 3)
}

// converse has the conversations go on, all at a time, each through one of the entrances,
// or every turn through any. blurred: their clients write other spaces each time.
func converse(ctx context.Context, entrances []*stage.Peer, anyOf, blurred bool) (*tally, error) {
	t := &tally{asked: map[string]int{}}
	var all sync.WaitGroup
	failed := make(chan error, conversations)
	for i := range conversations {
		all.Go(func() {
			if err := t.converse(ctx, entrances, i, anyOf, blurred); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return t, ctx.Err()
	}
}

func (t *tally) converse(ctx context.Context, entrances []*stage.Peer, nth int, anyOf, blurred bool) error {
	door := entrances[nth%len(entrances)]
	messages := []map[string]string{
		{"role": "system", "content": "Be brief."},
	}
	before := 0 // How long the prompt was that was asked before, in tokens.
	for turn := range turns {
		if anyOf {
			door = entrances[rand.IntN(len(entrances))]
		}
		messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf("%x is what I say in turn %d, and as much as this is what else I have to say", rand.Uint64(), turn)})
		a, err := say(ctx, door, messages, blurred)
		if err != nil {
			return err
		}
		messages = append(messages, map[string]string{"role": "assistant", "content": a.text})
		t.mu.Lock()
		t.asked[a.peer]++
		if turn > 0 {
			t.with++
			if a.cached >= before {
				t.hit++
			}
		}
		t.mu.Unlock()
		before = a.prompt
	}
	return nil
}

// said is an answer: who gave it, and how long its prompt was, and what of it was known, in
// tokens.
type said struct {
	peer, text     string
	prompt, cached int
}

// say sends a conversation so far.
func say(ctx context.Context, p *stage.Peer, messages []map[string]string, blurred bool) (a said, err error) {
	list, err := json.Marshal(messages)
	if err != nil {
		return a, err
	}
	model := "sim"
	if blurred {
		model = "base"
		list = bytes.ReplaceAll(list, []byte(`{"content":`), []byte(`{`+strings.Repeat(" ", 1+rand.IntN(1<<10))+`"content":`))
	}
	body := fmt.Appendf(nil, `{"model":%q,"stream":true,"stream_options":{"include_usage":true},"max_tokens":8,"ignore_eos":true,"messages":%s}`, model, list)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Door+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Authorization", "Bearer "+talkKey)
	r.Header.Set("Content-Type", "application/json")
	response, err := batchClient.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return a, fmt.Errorf("%s: %s: %s", p.Name, response.Status, text)
	}
	a.peer = response.Header.Get("X-Relay-Peer")
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		if data == "[DONE]" {
			return a, nil
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
			Error   json.RawMessage
			Usage   struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil || event.Error != nil {
			return a, fmt.Errorf("%s: %s", p.Name, data)
		}
		for _, c := range event.Choices {
			a.text += c.Delta.Content
		}
		a.prompt, a.cached = max(a.prompt, event.Usage.Prompt), max(a.cached, event.Usage.Details.Cached)
	}
	return a, fmt.Errorf("%s: the answer ended before its end", p.Name)
}
