// Command cores prints how fast two engines are that compute on the same cores
// at once, held against one alone: `make bench-cores` runs it. One line per
// figure; what it does goes to stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"relay/cmd/bench/figure"
	"relay/llama"
	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

const (
	rounds = 5
	// tokens are written by each engine in one round.
	tokens = 64
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "engine-shim" { // started by this very program
		os.Exit(llama.ShimMain(nil))
	}
	figure.Main([]figure.Part{
		{Name: "small", Prints: "two_cpu_engines_*_small: relay-tiny, 870,016 parameters", Measure: measure("_small", small)},
		{Name: "large", Prints: "two_cpu_engines_*: random weights, 150 MiB in Q8_0", Measure: measure("", large)},
	})
}

func small(dir string) (string, error) { return demo.Write(dir) }

func large(dir string) (string, error) {
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		return "", err
	}
	m := gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: 14, Width: 1024, KVWidth: 256, HeadWidth: 64, FeedForward: 2560, Train: 4096}
	path := filepath.Join(dir, "random.gguf")
	return path, m.Write(path, from)
}

// measure prints, for one model, tokens per second of both engines together as
// a part of what one alone writes.
func measure(suffix string, model func(dir string) (string, error)) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		e, err := llama.Find(ctx, llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "relay-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		path, err := model(dir)
		if err != nil {
			return err
		}
		// Two with a thread for each of two cores, and two with half of that.
		const all = 2
		var running []*llama.Process
		defer func() {
			for _, p := range running {
				err = errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
			}
		}()
		for i, threads := range []int{all, all, all / 2, all / 2} {
			p, err := e.Start(ctx, llama.Spec{Name: "m", Model: path, Context: 512, Threads: threads, RunDir: filepath.Join(dir, fmt.Sprint(i))})
			if err != nil {
				return err
			}
			running = append(running, p)
		}
		var alone, fighting, halves, turns []float64
		for range rounds {
			for _, c := range []struct {
				into    *[]float64
				engines []*llama.Process
			}{{&alone, running[:1]}, {&fighting, running[:2]}, {&halves, running[2:]}} {
				rate, err := together(ctx, c.engines)
				if err != nil {
					return err
				}
				*c.into = append(*c.into, rate)
			}
			rate, err := inTurn(ctx, running[:2])
			if err != nil {
				return err
			}
			turns = append(turns, rate)
		}
		one := figure.Median(alone)
		figure.Ratio("two_cpu_engines_fighting_ratio"+suffix, figure.Median(fighting), one, "tokens/s")
		figure.Ratio("two_cpu_engines_half_threads_ratio"+suffix, figure.Median(halves), one, "tokens/s")
		figure.Ratio("two_cpu_engines_alone_ratio"+suffix, figure.Median(turns), one, "tokens/s")
		return nil
	}
}

// together has engines write at once; it is what they write per second, all of
// them, until the last is done.
func together(ctx context.Context, engines []*llama.Process) (float64, error) {
	errs := make([]error, len(engines))
	var wg sync.WaitGroup
	began := time.Now()
	for i, p := range engines {
		wg.Go(func() { errs[i] = write(ctx, p) })
	}
	wg.Wait()
	return float64(tokens*len(engines)) / time.Since(began).Seconds(), errors.Join(errs...)
}

// inTurn has engines write one after another.
func inTurn(ctx context.Context, engines []*llama.Process) (float64, error) {
	began := time.Now()
	for _, p := range engines {
		if err := write(ctx, p); err != nil {
			return 0, err
		}
	}
	return float64(tokens*len(engines)) / time.Since(began).Seconds(), nil
}

func write(ctx context.Context, p *llama.Process) error {
	body := fmt.Sprintf(`{"prompt":[300],"n_predict":%d,"ignore_eos":true,"temperature":0,"cache_prompt":false}`, tokens)
	before, err := p.Timings(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/completion", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.Client().RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// What random weights say may be no text, which is answered with an error:
	// the counters say whether it was computed.
	after, err := p.Timings(ctx)
	if err == nil && after.Tokens-before.Tokens < tokens {
		err = fmt.Errorf("it wrote %d tokens of %d (%s)", after.Tokens-before.Tokens, tokens, resp.Status)
	}
	return err
}
