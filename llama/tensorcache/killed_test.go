package tensorcache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

const (
	killAtEnv  = "RELAY_TEST_KILL_AT"
	killDirEnv = "RELAY_TEST_KILL_DIR"
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if at := os.Getenv(killAtEnv); at != "" {
		fmt.Println(fillAndDie(os.Getenv(killDirEnv), at))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fillAndDie kills its process when it is as far.
func fillAndDie(dir, at string) error {
	c, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	c.step = func(step string) {
		if step == at {
			_ = self.Kill()
			select {}
		}
	}
	k, data := tensor(1, 3<<20)
	half := calling{func() { c.step("half") }}
	return c.Fill(context.Background(), k, io.MultiReader(bytes.NewReader(data[:2<<20]), half, bytes.NewReader(data[2<<20:])))
}

// A process that is killed at any moment leaves whole tensors, and what it had
// aside is deleted.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		at                    string
		aside, tensors, notes int // that it leaves, with one of before
		kept                  bool
	}{
		{"half", 1, 1, 1, false},
		{"written", 1, 1, 1, false},
		{"synced", 1, 1, 1, false},
		{"placed", 0, 2, 1, false},
		{"noted", 0, 2, 2, true},
	} {
		t.Run(tc.at, func(t *testing.T) {
			dir := t.TempDir()
			k0, d0 := tensor(0, 1000)
			fill(t, open(t, dir, Options{}), k0, d0)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), killAtEnv+"="+tc.at, killDirEnv+"="+dir)
			if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
				t.Fatalf("it was not killed: %v: %s", err, out)
			}
			if a, b, n := len(names(t, dir, asideFolder)), len(names(t, dir, tensorFolder)), len(names(t, dir, noteFolder)); a != tc.aside || b != tc.tensors || n != tc.notes {
				t.Errorf("it left %d aside, %d tensors, %d notes", a, b, n)
			}
			c := open(t, dir, Options{})
			k1, d1 := tensor(1, 3<<20)
			if sound(t, c); !c.Has(k0) || c.Has(k1) != tc.kept {
				t.Errorf("%v %v", c.Has(k0), c.Has(k1))
			}
			fill(t, c, k1, d1)
			sound(t, c)
		})
	}
}
