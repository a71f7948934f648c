package main

import (
	"context"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
)

const (
	// steady is how many clients ask all the time, each for so many tokens.
	steady       = 3
	steadyTokens = 16
	// afterwards is how long they go on when all is well again.
	afterwards = time.Second
)

// leadingAgain: kill -9 of the peer that leads a model which another serves, until
// there is a new leader. No request is to fail.
func leadingAgain(ctx context.Context) error {
	var took []float64
	failed := 0.0
	for range rounds {
		if err := onTrio(ctx, holdingLeads, func(t *trio) error {
			l, err := t.start(ctx, steady, steadyTokens)
			if err != nil {
				return err
			}
			defer l.end()
			began := time.Now()
			if err := t.Kill(t.holding); err != nil {
				return err
			}
			survivors := []*stage.Peer{t.serving, t.asked}
			placed, err := stage.Find(ctx, survivors, began, `msg=placed .*model=`+t.model+`\b`)
			if err != nil {
				return err
			}
			var gone [2]time.Duration
			for i, p := range survivors {
				l, err := stage.Find(ctx, []*stage.Peer{p}, began, goneText(t, t.holding))
				if err != nil {
					return err
				}
				gone[i] = l.At.Sub(began)
			}
			if err := pass(ctx, afterwards); err != nil {
				return err
			}
			l.end()
			figure.Say("noticed by %s %s, by %s %s; led again by %s %s; %d requests served, %d failed, the longest took %s",
				t.serving.Name, gone[0], t.asked.Name, gone[1], placed.By.Name, placed.At.Sub(began), l.served, l.failed, l.longest)
			took = append(took, placed.At.Sub(began).Seconds())
			failed += float64(l.failed)
			return nil
		}); err != nil {
			return err
		}
	}
	figure.Value("leader_again_s", figure.Median(took), "s")
	figure.Value("leader_again_failed", failed, "requests")
	return nil
}

// handingOver: `relay down` of the peer that leads and serves a model, until
// another leads it, and until another serves it. No request is to fail.
func handingOver(ctx context.Context) error {
	var led, served []float64
	failed := 0.0
	for range rounds {
		if err := onTrio(ctx, servingLeads, func(t *trio) error {
			l, err := t.start(ctx, steady, steadyTokens)
			if err != nil {
				return err
			}
			defer l.end()
			began := time.Now()
			if err := t.serving.Ask(ctx, "/v0/down", struct{}{}, nil); err != nil {
				return err
			}
			placed, err := stage.Find(ctx, []*stage.Peer{t.holding, t.asked}, began, `msg=placed .*model=`+t.model+`\b`)
			if err != nil {
				return err
			}
			ready, err := stage.Find(ctx, []*stage.Peer{t.holding}, began, `msg=ready .*model=`+t.model+`\b`)
			if err != nil {
				return err
			}
			select {
			case <-t.serving.Ended():
			case <-time.After(time.Minute):
				return context.DeadlineExceeded
			}
			ended := time.Since(began)
			if err := pass(ctx, afterwards); err != nil {
				return err
			}
			l.end()
			figure.Say("led %s, served %s, its process ended %s after the order; %d requests served, %d failed, the longest took %s",
				placed.At.Sub(began), ready.At.Sub(began), ended, l.served, l.failed, l.longest)
			led, served = append(led, placed.At.Sub(began).Seconds()), append(served, ready.At.Sub(began).Seconds())
			failed += float64(l.failed)
			return nil
		}); err != nil {
			return err
		}
	}
	figure.Value("handover_s", figure.Median(led), "s")
	figure.Value("handover_serve_s", figure.Median(served), "s")
	figure.Value("handover_failed", failed, "requests")
	return nil
}
