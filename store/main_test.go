package store

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// The tests run their own binary as other processes: what one process does to
// another's locks and files is not seen from within.
func TestMain(m *testing.M) {
	switch os.Getenv("STORE_TEST_CHILD") {
	case "":
		os.Exit(m.Run())
	case "acknowledge":
		acknowledgeForever(os.Getenv("STORE_TEST_DIR"), os.Getenv("STORE_TEST_ROUND"))
	case "reopen":
		reopenForever(os.Getenv("STORE_TEST_DIR"))
	case "hold":
		holdLock(os.Getenv("STORE_TEST_DIR"))
	case "open":
		_, err := Open(os.Getenv("STORE_TEST_DIR"), nil)
		fmt.Println(err)
	}
}

func child(t *testing.T, what, dir string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), append(env, "STORE_TEST_CHILD="+what, "STORE_TEST_DIR="+dir)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func openTest(t testing.TB) *DB {
	t.Helper()
	d, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// reasonOf is what other packages see of an error.
func reasonOf(err error) string {
	for err != nil {
		if r, ok := err.(interface{ Reason() string }); ok {
			return r.Reason()
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if r := reasonOf(e); r != "" {
					return r
				}
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}
