//go:build unix

package llama

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlaceSocket(t *testing.T) {
	dir := t.TempDir()
	box := filepath.Join(dir, "run", "box")
	long := filepath.Join(dir, strings.Repeat("x", 200), "box")
	short := filepath.Join(dir, "r")
	for _, c := range []struct {
		name, box, runtime, temp string
		below                    string
	}{
		{"in its folder", box, short, short, box},
		{"runtime folder", long, filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "a", "relay")},
		{"temporary folder", long, "", filepath.Join(dir, "b"), filepath.Join(dir, "b")},
		{"runtime folder too long", long, long, filepath.Join(dir, "c"), filepath.Join(dir, "c")},
		{"runtime folder not absolute", long, "a", filepath.Join(dir, "d"), filepath.Join(dir, "d")},
	} {
		p, err := placeSocket(c.box, 107, c.runtime, c.temp, os.Getuid())
		if err != nil || !strings.HasPrefix(p.path, c.below+"/") || len(p.path) > 107 || !strings.HasSuffix(p.path, ".sock") {
			t.Errorf("%s: %+v %v", c.name, p, err)
			continue
		}
		if p.dir == "" {
			continue
		}
		for _, d := range []string{p.dir, filepath.Dir(p.dir)} {
			if info, err := os.Stat(d); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %s is %v (%v)", c.name, d, info, err)
			}
		}
		// The same process gets the same folder again, emptied.
		if err := os.WriteFile(p.path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := placeSocket(c.box, 107, c.runtime, c.temp, os.Getuid())
		if err != nil || again != p {
			t.Errorf("%s: then %+v %v", c.name, again, err)
		}
		if _, err := os.Stat(p.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: what was left is still there: %v", c.name, err)
		}
	}
	if _, err := placeSocket(long, 107, long, long, os.Getuid()); !errors.Is(err, ErrState) {
		t.Errorf("nowhere: %v", err)
	}
}

// A folder that somebody else could have put there is not used.
func TestPlaceSocketForeign(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 200))
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "relay-7")); err != nil {
		t.Fatal(err)
	}
	if _, err := placeSocket(long, 107, "", dir, 7); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("a link: %v", err)
	}
	open := filepath.Join(dir, "relay-8")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := placeSocket(long, 107, "", dir, 8); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(open); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a folder open to all stays so: %v %v", info, err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(open, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := placeSocket(long, 107, "", dir, 8); !errors.Is(err, ErrState) {
			t.Errorf("another's folder: %v", err)
		}
	}
}
