package main_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"relay/cmd/lab"
	"relay/cmd/seam"
	"relay/llama"
)

const (
	// cuts is how many streams each test cuts; `make bench-unbroken` cuts a hundred.
	cuts = 5
	// cutTokens is the length of their answers.
	cutTokens = 800
)

// TestUnbroken has streams lose the peer that serves them, in the middle, with the real
// engine: each is complete and right, token by token.
func TestUnbroken(t *testing.T) {
	needEngine(t)
	t.Run("killed exact", func(t *testing.T) {
		got := cutStreams(t, seam.Killed, seam.Options{Args: []string{"-ub", "1"}})
		if got.Same != got.Cut {
			t.Errorf("where the engine computes one token at a time, %d of %d are not the same as undisturbed ones", got.Cut-got.Same, got.Cut)
		}
	})
	t.Run("killed", func(t *testing.T) { cutStreams(t, seam.Killed, seam.Options{}) })
	t.Run("frozen", func(t *testing.T) { cutStreams(t, seam.Frozen, seam.Options{}) })
	t.Run("drained", func(t *testing.T) { cutStreams(t, seam.Drained, seam.Options{}) })
}

// TestNetUnbroken pulls the cable of the peer that serves.
func TestNetUnbroken(t *testing.T) {
	needEngine(t)
	if err := lab.Needs(); err != nil {
		t.Skip(err)
	}
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	cutStreams(t, seam.Unplugged, seam.Options{Lab: l})
}

func needEngine(t *testing.T) {
	t.Helper()
	if _, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")}); err != nil {
		t.Skipf("no engine: run `make engine` first (%v)", err)
	}
}

// cutStreams cuts some, and fails for each that was not complete and right.
func cutStreams(t *testing.T, cut seam.Cut, o seam.Options) seam.Tally {
	t.Helper()
	path, err := exec.LookPath("relay")
	if err != nil {
		t.Fatal(err)
	}
	o.Binary, o.Serving = path, 3
	m, err := seam.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.End(); err != nil {
			t.Error(err)
		}
	})
	seed := rand.Uint64()
	t.Logf("cut by the seed %d", seed)
	questions, err := m.Questions(t.Context(), cuts, cutTokens, len(o.Args) == 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Run(t.Context(), seam.Plan{Cut: cut, Streams: cuts, Questions: questions, Rand: rand.New(rand.NewPCG(seed, 0)), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range got.Failed {
		t.Error(err)
	}
	return got
}
