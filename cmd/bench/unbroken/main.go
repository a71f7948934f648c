//go:build linux

// Command unbroken prints the figures of streams that lose the peer which serves them.
// `make bench-unbroken` runs it, as root: cables need network namespaces. It has the
// real program, the real engine and the model that relay carries, three peers that serve
// it, so that two replicas are ready when a stream is cut while the peer of the last one
// comes back, and a fourth one as the entrance.
//
// Where a stream is cut is drawn for each, uniformly over its tokens, from a seed that
// is printed: the client counts the pieces of the answer as it reads them, and at the one
// drawn it sends the signal itself, before it reads on. The small model writes a token in
// half a millisecond, so the system still holds a few that were sent before, and a stream
// that is cut among its last ones may have ended: such a one is judged as the others are,
// counted, and replaced by another. How many tokens were there at each seam is what the
// entrance says, and is printed.
//
// A gap is the client's: from the last piece before a seam to the first one after it. Its
// part _detection is what passed until the entrance gave the replica up, by its log;
// _prefill is the rest: choosing another replica, asking it, and its prefill.
//
// Every token of every stream is judged, see relay/cmd/seam. One line per figure; what it
// does goes to stderr.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/lab"
	"relay/cmd/seam"
)

const (
	serving = 3
	// tokens is the length of each answer.
	tokens = 1200
	// kinds is how many questions there are.
	kinds = 8
)

var (
	file = flag.String("model", "", "the path of another model; it must write what is text token by token")
	many = flag.Int("n", 0, "streams of each kind; 0 means 100 that are killed, and 30 of each other kind")
	seed = flag.Uint64("seed", 0, "what the places of the cuts are drawn from; 0 means the time")
)

// kind is one way to cut, and how.
type kind struct {
	name    string // Of its figures.
	cut     seam.Cut
	streams int
	args    []string // For the engines.
	// same: each stream is to be the same as one that nobody disturbs. None has a stop
	// string then.
	same bool
	lab  bool
}

func main() {
	var all sum
	part := func(k kind) figure.Part {
		return figure.Part{Name: k.name, Prints: fmt.Sprintf("gap_p50_s_%[1]s gap_p99_s_%[1]s, each also _detection _prefill; same_%[1]s continue_failed_%[1]s", k.name),
			Measure: func(ctx context.Context) error { return measure(ctx, k, &all) }}
	}
	figure.Main([]figure.Part{
		part(kind{name: "exact", cut: seam.Killed, streams: 100, args: []string{"-ub", "1"}, same: true}),
		part(kind{name: "killed", cut: seam.Killed, streams: 100}),
		part(kind{name: "frozen", cut: seam.Frozen, streams: 30}),
		part(kind{name: "unplugged", cut: seam.Unplugged, streams: 30, lab: true}),
		part(kind{name: "drained", cut: seam.Drained, streams: 30}),
		{Name: "worst", Prints: "gap_p50_s gap_p99_s continue_failed, of all kinds that were measured before", Measure: func(context.Context) error {
			figure.Value("gap_p50_s", all.p50, "s")
			figure.Value("gap_p99_s", all.p99, "s")
			figure.Value("continue_failed", float64(all.failed), "streams")
			return nil
		}},
	})
}

// sum is the worst of all kinds.
type sum struct {
	p50, p99 float64
	failed   int
}

func measure(ctx context.Context, k kind, all *sum) (err error) {
	o := seam.Options{Serving: serving, Args: k.args, File: *file}
	if k.lab {
		if o.Lab, err = lab.New(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Lab.Close()) }()
	}
	m, err := seam.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.End()) }()
	if *many > 0 {
		k.streams = *many
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	figure.Say("%s: %d streams of %d tokens, seed %d", k.name, k.streams, tokens, *seed)
	questions, err := m.Questions(ctx, kinds, tokens, !k.same)
	if err != nil {
		return err
	}
	t, err := m.Run(ctx, seam.Plan{Cut: k.cut, Streams: k.streams, Questions: questions, Rand: rand.New(rand.NewPCG(*seed, 0)), Say: figure.Say})
	if err != nil {
		return err
	}
	all.failed += len(t.Failed)
	if len(t.Gaps) > 0 {
		all.p50, all.p99 = max(all.p50, figure.Median(t.Gaps)), max(all.p99, figure.Rank(t.Gaps, 0.99))
	}
	return show(k, t)
}

// show prints the figures of one kind.
func show(k kind, t seam.Tally) error {
	figure.Value("continue_failed_"+k.name, float64(len(t.Failed)), "streams")
	figure.Value("missed_"+k.name, float64(t.Missed), "streams")
	if len(t.Gaps) > 0 {
		for _, of := range []struct {
			name string
			list []float64
		}{{"", t.Gaps}, {"_detection", t.Noticed}, {"_prefill", t.Resumed}} {
			figure.Value("gap_p50_s_"+k.name+of.name, figure.Median(of.list), "s")
			figure.Value("gap_p99_s_"+k.name+of.name, figure.Rank(of.list, 0.99), "s")
		}
		// The same tokens, asked for anew: by the bare engine, and at the same entrance.
		figure.Value("engine_first_token_p50_s_"+k.name, figure.Median(t.Prefills), "s")
		figure.Ratio("gap_of_first_token_p50_"+k.name, figure.Median(t.Gaps), figure.Median(t.Firsts), "s")
		figure.Ratio("gap_of_first_token_p99_"+k.name, figure.Rank(t.Gaps, 0.99), figure.Rank(t.Firsts, 0.99), "s")
		if k.name == "drained" {
			figure.Value("gap_over_step_and_prefill_drained", float64(t.Over), "streams")
		}
		figure.Ratio("same_"+k.name, float64(t.Same), float64(t.Cut), "streams")
		figure.Say("%s: at %.0f %.0f %.0f %.0f %.0f tokens (least, quarters, most); %d continued from text", k.name,
			figure.Rank(t.At, 0), figure.Rank(t.At, 0.25), figure.Median(t.At), figure.Rank(t.At, 0.75), figure.Rank(t.At, 1), t.ByText)
	}
	if len(t.Failed) > 0 {
		return errors.Join(t.Failed...)
	}
	if k.same && t.Same < t.Cut {
		return fmt.Errorf("%d of %d streams are not the same as undisturbed ones", t.Cut-t.Same, t.Cut)
	}
	return nil
}
