// Command demo shows relay's main job on one machine: three peers become a
// mesh, one adds a model, another pulls it, a third is asked; then the peer that
// served is killed, and the mesh answers again. `make demo` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"relay/cmd/stage"
)

const (
	model    = "demo"
	question = "What is relay?"
	again    = "Who decides which machine runs a model?"
	// longest is the most tokens of an answer.
	longest = 100
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	s, err := stage.New(stage.Options{Echo: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	return play(ctx, s)
}

func play(ctx context.Context, s *stage.Stage) error {
	began := time.Now()
	say("Three peers on this machine. The first one founds a mesh.")
	attic, err := s.Up(ctx, "attic")
	if err != nil {
		return err
	}
	s.Print(attic.Printed())

	say("An invite for two more machines; each joins with it.")
	invite, err := s.Invite(ctx, attic, "--uses", "2")
	if err != nil {
		return err
	}
	den, err := s.Up(ctx, "den", "--join", invite)
	if err != nil {
		return err
	}
	cellar, err := s.Up(ctx, "cellar", "--join", invite)
	if err != nil {
		return err
	}
	if err := stage.Until(ctx, "three peers see one another", func() bool { return s.AllSee(ctx, 3) }); err != nil {
		return err
	}
	s.Print(fmt.Sprintf("three peers see one another %s after the start", since(began)))

	say("A model, added on attic where its file lies; cellar pulls it from the mesh.")
	if _, err := s.Relay(ctx, attic, "model", "add", model); err != nil {
		return err
	}
	if err := stage.Until(ctx, "cellar knows the model", func() bool {
		_, err := s.Quietly(ctx, cellar, "model", "show", model)
		return err == nil
	}); err != nil {
		return err
	}
	if _, err := s.Relay(ctx, cellar, "model", "pull", model); err != nil {
		return err
	}

	say("den has no copy of it. Ask den: the answer streams through the mesh.")
	if err := ask(ctx, s, den, question); err != nil {
		return err
	}
	s.Print(fmt.Sprintf("the answer was whole %s after the start", since(began)))
	if err := stage.Until(ctx, "two peers hold the model", func() bool { return s.Holders(ctx, den, model) == 2 }); err != nil {
		return err
	}
	if _, err := s.Relay(ctx, den, "status"); err != nil {
		return err
	}

	serving, err := s.Serving(ctx, den, model)
	if err != nil {
		return err
	}
	say(fmt.Sprintf("%s serves the model. It dies: kill -9.", serving.Name))
	killed := time.Now()
	if err := s.Kill(serving); err != nil {
		return err
	}
	if err := ask(ctx, s, den, again); err != nil {
		return err
	}
	s.Print(fmt.Sprintf("answered again %s after the kill, from the copy that is left", since(killed)))
	fmt.Print(onRealMachines)
	return nil
}

const onRealMachines = `
The same on real machines, with relay and an engine (make engine) on each:

  attic$ relay up
  attic$ relay peer invite                  # prints the line for the next machine
  den$   relay up --join relay1:…
  attic$ relay model add NAME /path/to/model.gguf
  den$   relay model pull NAME
  den$   relay status

and point any OpenAI client at http://127.0.0.1:8420/v1 on any of them, with the
key that the first one printed.
`

func say(text string) { fmt.Printf("\n== %s\n", text) }

func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }

// ask asks a peer and prints the answer as it streams.
func ask(ctx context.Context, s *stage.Stage, p *stage.Peer, text string) error {
	fmt.Printf("%s$ curl %s/v1/chat/completions … %q\n   ", p.Name, p.Door, text)
	defer fmt.Println()
	return s.Chat(ctx, p, model, text, longest, func(piece string) { fmt.Print(piece) })
}
