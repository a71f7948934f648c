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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"relay/api"
	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

const (
	// batchSlots, batchPrefill and batchDecode are those of one machine with one good GPU.
	batchSlots                = 8
	batchPrefill, batchDecode = 800, 40 // tokens per second, of one slot alone
	// batchSlowdown is what each busy slot costs the others, an assumption: where all
	// are busy, each takes 1.35 times as long as alone.
	batchSlowdown = 0.05
	// batchClients ask again as soon as they are answered.
	batchClients = 500
	// batchAsked is how many requests the one who waits for answers sends, one every
	// batchPace; batchAskedUnruled how many, all at once, where each waits for long.
	batchAsked, batchAskedUnruled = 100, 24
	batchPace                     = 400 * time.Millisecond
	// batchWords and batchTokens are the words of every prompt and the tokens of the
	// clients' answers: short, so that what is measured is the wait for a slot.
	batchWords, batchTokens = 4, 12
)

// batch measures how long somebody who waits for an answer waits for its first token:
// while nothing else is asked; beside batchClients of a key of batch; beside as many of a
// normal key of their own, so that only the fairness between keys is left; and where all
// use the same key, so that nothing is. The clients ask half at the peer that serves, half
// at another one, as does the one who waits.
//
// The one who waits asks at fixed times, whether or not what was asked before is answered,
// and at the same ones while nothing else is asked as beside others: slow answers do not
// thin out the samples. Where nothing rules, each waits behind all the clients, so that
// those requests are sent together and wait for the same long queue. All is on one engine
// whose slots slow one another, so that the ratio has what sharing the engine costs in it
// besides the wait for a slot. It takes less than four minutes.
func batch(ctx context.Context) (err error) {
	var s *stage.Stage
	s, err = stage.New(stage.Options{Env: func(string) []string {
		return []string{"RELAY_API_KEY=rk-bench", "RELAY_LLAMA_BIN=" + filepath.Join(s.Dir, "llama-server")}
	}})
	if err != nil {
		return err
	}
	s.Key = "rk-bench"
	defer func() { err = errors.Join(err, s.End()) }()
	doors, err := batchMesh(ctx, s)
	if err != nil {
		return err
	}
	ids := map[string]string{"waiting": "", "many": "", "nightly": "batch"}
	for name, priority := range ids {
		if ids[name], err = newKey(ctx, s, doors, name, priority); err != nil {
			return err
		}
	}
	p99 := map[string]float64{}
	for _, run := range []struct {
		name, key string // that of the clients; "" is none of them
		asked     int
		pace      time.Duration
	}{
		{"idle", "", batchAsked, batchPace},
		{"batch", ids["nightly"], batchAsked, batchPace},
		{"fair", ids["many"], batchAsked / 4, batchPace},
		{"unruled", ids["waiting"], batchAskedUnruled, 0},
	} {
		waited, served, err := beside(ctx, doors, run.key, ids["waiting"], run.asked, run.pace)
		if err != nil {
			return fmt.Errorf("%s: %w", run.name, err)
		}
		p99[run.name] = figure.Rank(waited, 0.99)
		figure.Say("%s: first token after %.3f s in the middle of %d, %.3f s at p99; %d answers to the others meanwhile", run.name, figure.Median(waited), len(waited), p99[run.name], served)
	}
	figure.Ratio("batch_normal_ttft_p99_ratio", p99["batch"], p99["idle"], "s")
	figure.Ratio("batch_without_rule_ratio", p99["unruled"], p99["idle"], "s")
	figure.Ratio("batch_without_rule_ratio_fair_keys", p99["fair"], p99["idle"], "s")
	return nil
}

// batchMesh is a peer that serves a model, and one that does not.
func batchMesh(ctx context.Context, s *stage.Stage) ([]*stage.Peer, error) {
	script := fmt.Sprintf("#!/bin/sh\nexec %s sim-engine --quiet --prefill %d --decode %d --slowdown %v \"$@\"\n", s.Binary, batchPrefill, batchDecode, batchSlowdown)
	if err := os.WriteFile(filepath.Join(s.Dir, "llama-server"), []byte(script), 0o700); err != nil {
		return nil, err
	}
	serving, err := s.Up(ctx, "attic", "--sandbox", "off")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.Dir, "sim.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		return nil, err
	}
	if err := serving.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: "sim", Paths: []string{path}, Context: 1024, Slots: batchSlots}, &struct{}{}); err != nil {
		return nil, err
	}
	invite, err := s.Invite(ctx, serving)
	if err != nil {
		return nil, err
	}
	entrance, err := s.Up(ctx, "den", "--join", invite, "--lend", "none")
	if err != nil {
		return nil, err
	}
	doors := []*stage.Peer{serving, entrance}
	for _, p := range doors {
		if err := stage.Until(ctx, p.Name+" answers", func() bool { return s.Chat(ctx, p, "sim", "hello", 2, func(string) {}) == nil }); err != nil {
			return nil, err
		}
	}
	return doors, nil
}

// newKey makes a key, and waits until every door knows it.
func newKey(ctx context.Context, s *stage.Stage, doors []*stage.Peer, name, priority string) (secret string, err error) {
	args := []string{"key", "add", name, "--json"}
	if priority != "" {
		args = append(args, "--priority", priority)
	}
	out, err := s.Quietly(ctx, doors[0], args...)
	if err != nil {
		return "", err
	}
	var made api.KeyMade
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return "", err
	}
	for _, p := range doors {
		if err := stage.Until(ctx, p.Name+" knows the key", func() bool {
			_, err := firstToken(ctx, p, made.Secret, 1, 1)
			return err == nil
		}); err != nil {
			return "", err
		}
	}
	return made.Secret, nil
}

// beside sends requests of one key, one every pace (all at once where it is 0), and returns
// how long each waited for its first token, in seconds, while others send theirs, and how
// many of those were answered meanwhile.
func beside(ctx context.Context, doors []*stage.Peer, others, key string, asked int, pace time.Duration) (waited []float64, served int64, err error) {
	many, over := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer over()
	var answered atomic.Int64
	failed := make(chan error, 1)
	if others != "" {
		for i := range batchClients {
			clients.Go(func() {
				for {
					_, err := firstToken(many, doors[i%len(doors)], others, batchWords, batchTokens)
					switch {
					case many.Err() != nil:
						return
					case err != nil:
						select {
						case failed <- err:
						default:
						}
						return
					}
					answered.Add(1)
				}
			})
		}
		// Until they all are there: a turn of each slot.
		if err := stage.Until(ctx, "the clients are served", func() bool { return answered.Load() >= 2*batchSlots }); err != nil {
			return nil, 0, err
		}
	}
	before := answered.Load()
	firsts, errs := make([]time.Duration, asked), make([]error, asked)
	var sent sync.WaitGroup
	began := time.Now()
	for i := range asked {
		select {
		case <-time.After(time.Until(began.Add(time.Duration(i) * pace))):
		case <-ctx.Done():
		}
		sent.Go(func() { firsts[i], errs[i] = firstToken(ctx, doors[i%len(doors)], key, batchWords, 8) })
	}
	sent.Wait()
	served = answered.Load() - before
	for _, first := range firsts {
		waited = append(waited, first.Seconds())
	}
	select {
	case err = <-failed:
	default:
	}
	return waited, served, errors.Join(err, errors.Join(errs...))
}

var promptsAsked atomic.Int64

// firstToken asks for a streamed answer, reads all of it, and returns how long its first
// event took. No two prompts begin alike: nothing of them is known to the engine.
func firstToken(ctx context.Context, p *stage.Peer, key string, words, tokens int) (first time.Duration, err error) {
	text := fmt.Sprintf("%d ", promptsAsked.Add(1)) + strings.Repeat("gold ", words)
	body, err := json.Marshal(map[string]any{
		"model": "sim", "stream": true, "max_tokens": tokens, "ignore_eos": true, "messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Door+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := batchClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return 0, fmt.Errorf("%s: %s: %s", p.Name, response.Status, said)
	}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !isData:
		case data == "[DONE]":
			return first, nil
		case strings.HasPrefix(data, `{"error"`):
			return 0, errors.New(data)
		case first == 0:
			first = time.Since(began)
		}
	}
	return 0, fmt.Errorf("%s: the answer ended before its end", p.Name)
}

var batchClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * batchClients}}
