package tensorcache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// What lies in the folders and is no whole tensor of the cache is deleted when it
// is opened; the rest is there.
func TestForeignFiles(t *testing.T) {
	k0, d0 := tensor(0, 5000)
	k1, d1 := tensor(1, 5000)
	name := hash(d1)
	for _, tc := range []struct {
		what string
		do   func(dir string) error
		kept bool // the second tensor
	}{
		{"a short file", func(dir string) error { return cut(filepath.Join(dir, "rpc", name), 4999) }, false},
		{"a long file", func(dir string) error { return cut(filepath.Join(dir, "rpc", name), 5001) }, false},
		{"an empty file", func(dir string) error { return cut(filepath.Join(dir, "rpc", name), 0) }, false},
		{"no file", func(dir string) error { return os.Remove(filepath.Join(dir, "rpc", name)) }, false},
		{"a folder in its place", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "rpc", name)), os.MkdirAll(filepath.Join(dir, "rpc", name, "x"), 0o700))
		}, false},
		{"a link in its place", func(dir string) error {
			to := filepath.Join(dir, "..", "elsewhere")
			return errors.Join(os.Rename(filepath.Join(dir, "rpc", name), to), os.Symlink(to, filepath.Join(dir, "rpc", name)))
		}, false},
		{"no note", func(dir string) error { return os.Remove(filepath.Join(dir, "notes", name)) }, false},
		{"an empty note", note1(""), false},
		{"half a note", note1(`{"bytes":5000,"tensors":[{"file":"bafyfi`), false},
		{"a note of another length", note1(`{"bytes":4999,"tensors":[{"file":"bafyfile","offset":1048576}]}`), false},
		{"a note of no tensors", note1(`{"bytes":5000,"tensors":[]}`), false},
		{"a note of an impossible tensor", note1(`{"bytes":5000,"tensors":[{"file":"bafyfile","offset":-1}]}`), false},
		{"others", func(dir string) error {
			var errs []error
			for _, file := range []string{"rpc/0123456789abcdef", "rpc/readme", "rpc/" + name + ".tmp", "notes/0123456789abcdef", "notes/x", "aside/123"} {
				errs = append(errs, os.WriteFile(filepath.Join(dir, file), []byte(`{"bytes":31,"tensors":[{"file":"b","offset":0}]}`), 0o600))
			}
			return errors.Join(append(errs, os.MkdirAll(filepath.Join(dir, "rpc/folder/in/it"), 0o700))...)
		}, true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			c := open(t, dir, Options{})
			fill(t, c, k0, d0)
			fill(t, c, k1, d1)
			if err := tc.do(dir); err != nil {
				t.Fatal(err)
			}
			c = open(t, dir, Options{})
			if sound(t, c); !c.Has(k0) || c.Has(k1) != tc.kept || len(names(t, dir, tensorFolder)) != map[bool]int{true: 2, false: 1}[tc.kept] {
				t.Errorf("%v %v: %q", c.Has(k0), c.Has(k1), names(t, dir, tensorFolder))
			}
			fill(t, c, k1, d1)
			if sound(t, c); !c.Has(k1) {
				t.Error("it cannot be filled again")
			}
		})
	}
}

// cut makes a file that may only be read as long.
func cut(path string, size int64) error {
	return errors.Join(os.Chmod(path, 0o600), os.Truncate(path, size))
}

// note1 writes the note of the second tensor.
func note1(text string) func(dir string) error {
	_, d1 := tensor(1, 5000)
	return func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "notes", hash(d1)), []byte(text), 0o600)
	}
}

// A file that is cut short or put there while the cache is open does not stay.
func TestForeignFilesLater(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	k, data := tensor(0, 5000)
	path := filepath.Join(c.Dir(), "rpc", hash(data))
	if err := os.MkdirAll(filepath.Join(path, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, c, k, data)
	sound(t, c)
	for i, look := range []func() bool{
		func() bool { return !c.Has(k) },
		func() bool {
			release, missing := c.Lease([]Key{k})
			release()
			return fmt.Sprint(missing) == fmt.Sprint([]Key{k})
		},
		// Another tensor with these bytes comes, and nobody looked before.
		func() bool {
			twin := k
			twin.File = "bafytwin"
			fill(t, c, twin, data)
			return c.Has(twin) && !c.Has(k)
		},
	} {
		if err := cut(path, 100); err != nil {
			t.Fatal(err)
		}
		if !look() {
			t.Errorf("look %d does not see that it is short", i)
		}
		sound(t, c)
		fill(t, c, k, data)
		sound(t, c)
	}
}
