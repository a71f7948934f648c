package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama"
	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
	"relay/scheduler"
)

const (
	// lent is the cores that two models share.
	lent = 2
	// written is the tokens of each answer.
	written = 64
)

// write has the nth of two models write an answer.
type write func(ctx context.Context, nth int) error

// sharing: what two models write per second that compute on the same cores at the
// same time, all together, held against what the first one writes alone. Through
// a peer, which gives them turns; and the bare engines, which fight.
func sharing(ctx context.Context) error {
	if err := onStage(ctx, func(s *stage.Stage) error { return withTurns(ctx, s) }); err != nil {
		return err
	}
	return withoutTurns(ctx)
}

// randoms makes two models of 108 MiB, whose weights are random.
func randoms(dir string) (paths [2]string, err error) {
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		return paths, err
	}
	m := gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: 10, Width: 1024, KVWidth: 256, HeadWidth: 64, FeedForward: 2560, Train: 4096}
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprintf("random%d.gguf", i))
		if err := m.Write(paths[i], from); err != nil {
			return paths, err
		}
	}
	return paths, nil
}

func withTurns(ctx context.Context, s *stage.Stage) error {
	attic, err := s.Up(ctx, "attic", "--lend-cores", fmt.Sprint(lent))
	if err != nil {
		return err
	}
	paths, err := randoms(s.Dir)
	if err != nil {
		return err
	}
	for i, path := range paths {
		name := fmt.Sprint("random", i)
		if err := attic.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: name, Paths: []string{path}, Context: 512, Slots: 1}, &struct{}{}); err != nil {
			return err
		}
		if err := stage.Until(ctx, name+" is served", func() bool {
			serving, err := s.Serving(ctx, attic, name)
			return err == nil && serving == attic
		}); err != nil {
			return err
		}
	}
	return compare(ctx, "two_cpu_replicas_ratio", 3*rounds, func(ctx context.Context, nth int) error {
		body, err := json.Marshal(map[string]any{"model": fmt.Sprint("random", nth), "prompt": "a", "max_tokens": written, "ignore_eos": true, "temperature": 0,
			// Random weights would write what is no text.
			"logit_bias": map[string]int{fmt.Sprint(letter): 100}})
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, attic.Door+"/v1/completions", bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		said, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		var answer struct {
			Usage struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal(said, &answer); err != nil || answer.Usage.Completion != written {
			return fmt.Errorf("%s: %s", response.Status, said)
		}
		return nil
	})
}

// letter is a token of the demo model's vocabulary that is text by itself.
const letter = 300

func withoutTurns(ctx context.Context) (err error) {
	e, err := llama.Find(ctx, llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "relay-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	paths, err := randoms(dir)
	if err != nil {
		return err
	}
	var running []*llama.Process
	defer func() {
		for _, p := range running {
			err = errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
		}
	}()
	for i, path := range paths {
		p, err := e.Start(ctx, llama.Spec{Name: "m", Model: path, Context: 512, Threads: lent, RunDir: filepath.Join(dir, fmt.Sprint(i))})
		if err != nil {
			return err
		}
		running = append(running, p)
	}
	return compare(ctx, "two_cpu_engines_without_turns_ratio", rounds, func(ctx context.Context, nth int) error {
		body := fmt.Appendf(nil, `{"prompt":[%d],"n_predict":%d,"ignore_eos":true,"temperature":0,"cache_prompt":false,"logit_bias":[[%d,100]]}`, letter, written, letter)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/completion", bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := running[nth].Client().RoundTrip(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var answer struct {
			Predicted int `json:"tokens_predicted"`
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Predicted != written {
			return fmt.Errorf("%s: %d tokens of %d: %w", response.Status, answer.Predicted, written, err)
		}
		return nil
	})
}

// compare prints how fast both write at once, held against the first one alone
// just before, of several pairs the one with the median ratio: whatever else the
// machine does meanwhile changes from one second to the next.
func compare(ctx context.Context, name string, times int, w write) error {
	for nth := range 2 { // Both are warm.
		if err := w(ctx, nth); err != nil {
			return err
		}
	}
	var pairs [][2]float64
	for range times {
		var pair [2]float64
		for i := range pair {
			rate, err := together(ctx, i+1, w)
			if err != nil {
				return err
			}
			pair[i] = rate
		}
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [2]float64) int { return cmp.Compare(a[1]/a[0], b[1]/b[0]) })
	figure.Say("%s: one alone and both, tokens/s, by their ratio: %.3g", name, pairs)
	middle := pairs[len(pairs)/2]
	figure.Ratio(name, middle[1], middle[0], "tokens/s")
	return nil
}

// together is the tokens per second that the first n of the models write at once,
// until the last is done.
func together(ctx context.Context, n int, w write) (float64, error) {
	errs := make([]error, n)
	var writing sync.WaitGroup
	began := time.Now()
	for i := range n {
		writing.Go(func() { errs[i] = w(ctx, i) })
	}
	writing.Wait()
	return float64(n*written) / time.Since(began).Seconds(), errors.Join(errs...)
}
