//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
)

const joins = 5

// joining: from the start of a joiner's process to the first token at its own
// door, of a model that only the joiner's machine holds and that nobody in the
// mesh has heard of. On loopback, with the real engine.
func joining(ctx context.Context) (err error) {
	s, err := stage.New(stage.Options{Env: func(string) []string { return []string{"RELAY_API_KEY=" + key} }})
	if err != nil {
		return err
	}
	s.Key = key
	defer func() { err = errors.Join(err, s.End()) }()
	attic, err := s.Up(ctx, "attic")
	if err != nil {
		return err
	}
	var took []float64
	for i := range joins {
		name := fmt.Sprint("joiner", i)
		alone, err := s.Up(ctx, name)
		if err != nil {
			return err
		}
		if _, err := s.Relay(ctx, alone, "model", "add", "demo"); err != nil {
			return err
		}
		if _, err := s.Relay(ctx, alone, "down"); err != nil {
			return err
		}
		<-alone.Ended()
		invite, err := s.Invite(ctx, attic)
		if err != nil {
			return err
		}
		began := time.Now()
		p, err := s.Up(ctx, name, "--join", invite)
		if err != nil {
			return err
		}
		var first float64
		if err := stage.Until(ctx, name+" answers", func() bool {
			first = 0
			return s.Chat(ctx, p, "demo", "What is relay?", 4, func(string) {
				if first == 0 {
					first = seconds(began)
				}
			}) == nil && first > 0
		}); err != nil {
			return err
		}
		figure.Say("%s answers after %.2f s", name, first)
		took = append(took, first)
		if _, err := s.Relay(ctx, attic, "model", "rm", "demo"); err != nil {
			return err
		}
		if _, err := s.Relay(ctx, p, "peer", "leave"); err != nil {
			return err
		}
		<-p.Ended()
	}
	figure.Value("join_to_first_answer_s", figure.Median(took), "s")
	return nil
}
