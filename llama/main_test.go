//go:build unix

package llama

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"relay/llama/demo"
)

// TestMain lets the test binary stand in for relay: as the shim, and as the
// programs that tests need.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "engine-shim":
			os.Exit(ShimMain(os.Args[2:]))
		}
		if run, ok := helpers()[os.Args[1]]; ok {
			os.Exit(run(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// engine is the real engine, found as relay finds it.
func engine(t testing.TB) Engine {
	t.Helper()
	e, err := Find(t.Context(), FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil {
		t.Skipf("no engine (%v): `make engine` builds one", err)
	}
	return e
}

// demoSpec is a spec for the demo model.
func demoSpec(t testing.TB) Spec {
	t.Helper()
	path, err := demo.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Name: "demo", Model: path, Context: 512, Slots: 2, RunDir: filepath.Join(t.TempDir(), "run"), Threads: 1}
}

// start starts an engine that is stopped with the test.
func start(t testing.TB, e Engine, s Spec) *Process {
	t.Helper()
	p, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}
