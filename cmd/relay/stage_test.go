package main_test

import (
	"os/exec"
	"testing"

	"relay/cmd/stage"
)

func withoutEngine(string) []string { return []string{"RELAY_LLAMA_BIN=/nonexistent"} }

// newStage makes a stage on which this very binary is the program.
func newStage(t *testing.T, o stage.Options) *stage.Stage {
	t.Helper()
	path, err := exec.LookPath("relay")
	if err != nil {
		t.Fatal(err)
	}
	o.Binary = path
	s, err := stage.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.End(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
