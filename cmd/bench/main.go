// Command bench prints the figures of the whole path, measured with the real
// binary and engine on this machine's loopback: `make bench-path` runs it. One
// line per figure; a value is the median of several.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
)

const (
	rounds   = 5
	requests = 100
	// pulledBytes is the size of the file that is pulled.
	pulledBytes = 256 << 20
	question    = "What is relay?"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, f := range []func(context.Context) error{joining, hops, pulling, dying} {
		if err := f(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
}

// onStage runs f on a stage with a founder that serves the demo model.
func onStage(ctx context.Context, f func(s *stage.Stage, attic *stage.Peer) error) (err error) {
	s, err := stage.New(stage.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	attic, err := s.Up(ctx, "attic")
	if err != nil {
		return err
	}
	if _, err := s.Relay(ctx, attic, "model", "add", "demo"); err != nil {
		return err
	}
	if err := s.Chat(ctx, attic, "demo", question, 1, func(string) {}); err != nil {
		return err
	}
	return f(s, attic)
}

func admit(ctx context.Context, s *stage.Stage, by *stage.Peer, name string) (*stage.Peer, error) {
	invite, err := s.Invite(ctx, by)
	if err != nil {
		return nil, err
	}
	return s.Up(ctx, name, "--join", invite)
}

// joining: from the start of a joiner's process to the first token that its own
// door gives, from a model that another peer serves.
func joining(ctx context.Context) error {
	var took []float64
	err := onStage(ctx, func(s *stage.Stage, attic *stage.Peer) error {
		for i := range rounds {
			invite, err := s.Invite(ctx, attic)
			if err != nil {
				return err
			}
			begin := time.Now()
			p, err := s.Up(ctx, fmt.Sprintf("joiner%d", i), "--join", invite)
			if err != nil {
				return err
			}
			first, err := firstToken(ctx, s, p, begin)
			if err != nil {
				return err
			}
			took = append(took, first)
		}
		return nil
	})
	if err == nil {
		figure.Value("join_to_first_answer_s", figure.Median(took), "s")
	}
	return err
}

// firstToken asks until the model is known, and returns the time from begin to
// the first piece of an answer.
func firstToken(ctx context.Context, s *stage.Stage, p *stage.Peer, begin time.Time) (float64, error) {
	var first time.Time
	err := stage.Until(ctx, p.Name+" answers", func() bool {
		first = time.Time{}
		return s.Chat(ctx, p, "demo", question, 4, func(string) {
			if first.IsZero() {
				first = time.Now()
			}
		}) == nil
	})
	return first.Sub(begin).Seconds(), err
}

// hops: what one hop to another peer adds to the time to the first token,
// asked in turn through the peer that serves and through another.
func hops(ctx context.Context) error {
	return onStage(ctx, func(s *stage.Stage, attic *stage.Peer) error {
		den, err := admit(ctx, s, attic, "den")
		if err != nil {
			return err
		}
		if _, err := firstToken(ctx, s, den, time.Now()); err != nil {
			return err
		}
		var local, far []float64
		for range requests {
			for p, list := range map[*stage.Peer]*[]float64{attic: &local, den: &far} {
				first, err := firstToken(ctx, s, p, time.Now())
				if err != nil {
					return err
				}
				*list = append(*list, first*1000)
			}
		}
		figure.Value("first_token_local_p50_ms", figure.Median(local), "ms")
		figure.Value("first_token_hop_p50_ms", figure.Median(far), "ms")
		figure.Value("hop_added_p50_ms", figure.Median(far)-figure.Median(local), "ms")
		return nil
	})
}

// pulling: a pull of a large file from one holder, verified and on disk, as the
// command takes, process start included.
func pulling(ctx context.Context) error {
	return onStage(ctx, func(s *stage.Stage, attic *stage.Peer) error {
		den, err := admit(ctx, s, attic, "den")
		if err != nil {
			return err
		}
		var added, pulled []float64
		for i := range rounds {
			path := filepath.Join(s.Dir, fmt.Sprintf("large%d.gguf", i))
			if err := figure.WriteLarge(path, pulledBytes, uint64(i)); err != nil {
				return err
			}
			name := fmt.Sprintf("large%d", i)
			begin := time.Now()
			if _, err := s.Relay(ctx, attic, "model", "add", name, path); err != nil {
				return err
			}
			added = append(added, mbPerSecond(begin))
			if err := stage.Until(ctx, "den knows "+name, func() bool {
				_, err := s.Quietly(ctx, den, "model", "show", name)
				return err == nil
			}); err != nil {
				return err
			}
			begin = time.Now()
			if _, err := s.Relay(ctx, den, "model", "pull", name); err != nil {
				return err
			}
			pulled = append(pulled, mbPerSecond(begin))
			if _, err := s.Relay(ctx, attic, "model", "rm", name); err != nil {
				return err
			}
		}
		figure.Value("add_mb_s", figure.Median(added), "MB/s")
		figure.Value("pull_mb_s", figure.Median(pulled), "MB/s")
		return nil
	})
}

func mbPerSecond(begin time.Time) float64 { return pulledBytes / 1e6 / time.Since(begin).Seconds() }

// dying: kill -9 of the peer that serves, until a third peer's door gives the
// first token from the copy on another, where the model was not loaded.
func dying(ctx context.Context) error {
	var took []float64
	for range rounds {
		err := onStage(ctx, func(s *stage.Stage, attic *stage.Peer) error {
			den, err := admit(ctx, s, attic, "den")
			if err != nil {
				return err
			}
			cellar, err := admit(ctx, s, attic, "cellar")
			if err != nil {
				return err
			}
			if _, err := firstToken(ctx, s, den, time.Now()); err != nil {
				return err
			}
			if _, err := s.Relay(ctx, cellar, "model", "pull", "demo"); err != nil {
				return err
			}
			if err := stage.Until(ctx, "den knows both holders", func() bool {
				return s.Holders(ctx, den, "demo") == 2 && s.AllSee(ctx, 3)
			}); err != nil {
				return err
			}
			begin := time.Now()
			if err := s.Kill(attic); err != nil {
				return err
			}
			first, err := firstToken(ctx, s, den, begin)
			took = append(took, first)
			return err
		})
		if err != nil {
			return err
		}
	}
	figure.Value("path_serve_again_s", figure.Median(took), "s")
	return nil
}
