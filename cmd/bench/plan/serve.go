package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
)

// fall is a way in which a model stops being served.
type fall struct {
	name  string
	leads func(t *trio, p *stage.Peer) bool
	// load: streams are in flight.
	load bool
	// kill is kill -9; what it ends is noticed when the log of a survivor matches seen.
	kill func(t *trio) error
	seen func(t *trio) string
}

func servingLeads(t *trio, p *stage.Peer) bool { return p == t.serving }
func anotherLeads(t *trio, p *stage.Peer) bool { return p != t.serving }
func holdingLeads(t *trio, p *stage.Peer) bool { return p == t.holding }

func killServing(t *trio) error { return t.Kill(t.serving) }

// servingGone is what is logged when a peer counts as gone; from suspect on it is
// only routed away from.
func servingGone(t *trio) string { return goneText(t, t.serving) }

func goneText(t *trio, p *stage.Peer) string {
	id := t.ids[p.Name]
	return `msg="peer is gone".* peer=` + id[len(id)-8:] + `\b`
}

// again is how long it took, in seconds: until a client that waits has its first
// token, and one that asks again and again without waiting; and in between until
// it was noticed, then until a placement named a peer, then until it was ready.
type again struct{ waiting, asking, detection, decision, load []float64 }

// servingAgain: kill -9 of what serves a model, until a third peer's door gives the
// first token from the copy on another peer, where the model was not loaded.
func servingAgain(ctx context.Context) error {
	worst := 0.0
	for _, f := range []fall{
		{name: "peer", leads: anotherLeads, kill: killServing, seen: servingGone},
		{name: "leader_serving", leads: servingLeads, kill: killServing, seen: servingGone},
		{name: "load", leads: anotherLeads, load: true, kill: killServing, seen: servingGone},
		{name: "engine", leads: anotherLeads, kill: killEngine, seen: func(t *trio) string { return `msg="replica failed" .*model=` + t.model + `\b` }},
	} {
		var a again
		for range rounds {
			if err := onTrio(ctx, f.leads, func(t *trio) error { return t.fall(ctx, f, &a) }); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		name := "serve_again_s_" + f.name
		figure.Value(name, figure.Median(a.waiting), "s")
		figure.Value(name+"_asking", figure.Median(a.asking), "s")
		figure.Value(name+"_detection", figure.Median(a.detection), "s")
		figure.Value(name+"_decision", figure.Median(a.decision), "s")
		figure.Value(name+"_load", figure.Median(a.load), "s")
		worst = max(worst, figure.Median(a.waiting))
	}
	figure.Value("serve_again_s", worst, "s")
	return nil
}

// fall lets it happen once.
func (t *trio) fall(ctx context.Context, f fall, a *again) error {
	if f.load {
		l, err := t.start(ctx, 4, 200)
		if err != nil {
			return err
		}
		defer l.end()
	}
	began := time.Now()
	if err := f.kill(t); err != nil {
		return err
	}
	var waiting, asking time.Time
	var errs [2]error
	var clients sync.WaitGroup
	clients.Go(func() { waiting, errs[0] = firstToken(ctx, t, t.Chat) })
	clients.Go(func() { asking, errs[1] = firstToken(ctx, t, t.ChatNow) })
	clients.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	survivors := t.peers()
	if t.Peer(t.serving.Name) == nil {
		survivors = survivors[1:]
	}
	placed, err := stage.Find(ctx, survivors, began, `msg=placed .*model=`+t.model+`\b.*\b`+t.holding.Name+`\b`)
	if err != nil {
		return err
	}
	by := []*stage.Peer{placed.By}
	if t.Peer(t.serving.Name) != nil {
		by = survivors // The peer that lives says itself what became of its engine.
	}
	seen, err := stage.Find(ctx, by, began, f.seen(t))
	if err != nil {
		return err
	}
	ready, err := stage.Find(ctx, []*stage.Peer{t.holding}, began, `msg=ready .*model=`+t.model+`\b`)
	if err != nil {
		return err
	}
	if seen.At.After(placed.At) {
		figure.Say("it was placed %s before it was noticed: %s", seen.At.Sub(placed.At), placed.Text)
	}
	figure.Say("%s: noticed %s, placed %s, ready %s, first token %s", f.name, seen.At.Sub(began), placed.At.Sub(began), ready.At.Sub(began), waiting.Sub(began))
	a.waiting = append(a.waiting, waiting.Sub(began).Seconds())
	a.asking = append(a.asking, asking.Sub(began).Seconds())
	a.detection = append(a.detection, seen.At.Sub(began).Seconds())
	a.decision = append(a.decision, placed.At.Sub(seen.At).Seconds())
	a.load = append(a.load, ready.At.Sub(placed.At).Seconds())
	return nil
}

// firstToken asks until an answer comes, and returns when its first piece did.
func firstToken(ctx context.Context, t *trio, chat func(context.Context, *stage.Peer, string, string, int, func(string)) error) (first time.Time, err error) {
	err = stage.Until(ctx, t.asked.Name+" answers", func() bool {
		first = time.Time{}
		return chat(ctx, t.asked, t.model, question, 4, func(string) {
			if first.IsZero() {
				first = time.Now()
			}
		}) == nil && !first.IsZero()
	})
	return first, err
}

// killEngine ends the engine's process of the peer that serves, and nothing else.
func killEngine(t *trio) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range lines {
		said, err := os.ReadFile(path)
		program, _, _ := bytes.Cut(said, []byte{0})
		if err != nil || filepath.Base(string(program)) != "llama-server" || !bytes.Contains(said, []byte(t.serving.State()+string(filepath.Separator))) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		return process.Kill()
	}
	return fmt.Errorf("no engine of %s runs", t.serving.Name)
}
