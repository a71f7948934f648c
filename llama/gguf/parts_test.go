package gguf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

func demoFile(t testing.TB) gguftest.File {
	t.Helper()
	f, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func writeParts(t testing.TB, name string, parts []gguftest.File) []string {
	t.Helper()
	paths, err := gguftest.WriteParts(t.TempDir(), name, parts)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// A split model is the same model, from whichever part it is read, also where
// the first part has no tensors.
func TestReadParts(t *testing.T) {
	whole, err := Read(write(t, "m.gguf", demo.GGUF()))
	if err != nil {
		t.Fatal(err)
	}
	want, err := whole.Memory(Serving{Context: 512, Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, bare := range []bool{false, true} {
		paths := writeParts(t, "m", demoFile(t).Split(3, bare))
		var size uint64
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			size += uint64(info.Size())
		}
		for _, path := range paths {
			h, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(h.Parts, paths) || h.FileBytes != size {
				t.Errorf("%s: %d bytes in %q, not %d in %q", path, h.FileBytes, h.Parts, size, paths)
			}
			got := h
			got.Parts, got.FileBytes = nil, whole.FileBytes
			if !equal(got, whole) {
				t.Errorf("%s:\ngot  %+v\nwant %+v", path, got, whole)
			}
			m, err := h.Memory(Serving{Context: 512, Slots: 2})
			if err != nil {
				t.Fatal(err)
			}
			// Only the headers of the further parts come on top.
			if m.Weights != want.Weights || m.KV != want.KV || m.Compute < want.Compute || m.Compute > want.Compute+1<<13 {
				t.Errorf("%s: %+v, not %+v", path, m, want)
			}
		}
	}
}

// A first part without tensors may end where its keys do.
func TestReadPartsBareEnd(t *testing.T) {
	paths := writeParts(t, "m", demoFile(t).Split(2, true))
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	trimmed := strings.TrimRight(string(data), "\x00")
	// The last value, split.tensors.count, ends with two zeros of its own.
	if err := os.WriteFile(paths[0], []byte(trimmed+"\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := Read(paths[0])
	if err != nil || h.Params != 870016 {
		t.Errorf("%+v: %v", h, err)
	}
}

// What only a later part tells counts too.
func TestReadPartsKind(t *testing.T) {
	f := models()[0]
	f.Tensors = append(f.Tensors, gguftest.Tensor{Name: "cls.weight", Type: gguftest.F32, Dims: []uint64{8}, Data: make([]byte, 32)})
	h, err := Read(writeParts(t, "m", f.Split(2, true))[0])
	if err != nil || h.Kind != KindRerank {
		t.Errorf("%s: %v", h.Kind, err)
	}
}

// The keys of the first part count alone: llama.cpp reads no others.
func TestReadPartsKeys(t *testing.T) {
	parts := models()[0].Split(2, false)
	parts[1] = parts[1].With("llama.block_count", uint32(1000)).With("general.name", "other")
	h, err := Read(writeParts(t, "m", parts)[1])
	if err != nil {
		t.Fatal(err)
	}
	want, err := Read(writeParts(t, "m", models()[0].Split(2, false))[1])
	if err != nil {
		t.Fatal(err)
	}
	got, _ := h.Memory(Serving{Context: 256, Slots: 1})
	if m, err := want.Memory(Serving{Context: 256, Slots: 1}); err != nil || h.Layers != 2 || h.Name != "m" || m.KV == 0 || m.KV != got.KV {
		t.Errorf("%+v %+v, not %+v: %v", h, got, m, err)
	}
}

func TestReadPartsBad(t *testing.T) {
	f := models()[0]
	other := models()[4]
	for _, c := range []struct {
		name string
		// change changes the three parts, or their files.
		change func(t *testing.T, parts []gguftest.File, paths []string)
		read   int // which part is read
		want   error
		text   string
		file   int // which part's file is named; -1 for the one that is read
	}{
		{"a part is missing", func(t *testing.T, _ []gguftest.File, paths []string) { remove(t, paths[1]) }, 0, ErrMissing, "part 2 of 3", 1},
		{"the first part is missing", func(t *testing.T, _ []gguftest.File, paths []string) { remove(t, paths[0]) }, 2, ErrMissing, "part 1 of 3", 0},
		{"a part is cut short", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[2], parts[2].Bytes()[:200])
		}, 0, ErrInvalid, "cut short", 2},
		{"two parts changed names", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[1], parts[2].Bytes())
			put(t, paths[2], parts[1].Bytes())
		}, 0, ErrInvalid, "it has the name of part 2 of 3, and says that it is part 3 of 3", 1},
		{"a part twice", func(t *testing.T, parts []gguftest.File, paths []string) { put(t, paths[1], parts[2].Bytes()) }, 0, ErrInvalid, "twice", 2},
		{"a whole model as a part", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[1], other.Bytes())
		}, 0, ErrInvalid, "twice", 1},
		{"a whole vocabulary as a part", func(t *testing.T, parts []gguftest.File, paths []string) {
			other.Tensors = nil
			put(t, paths[1], other.Bytes())
		}, 0, ErrInvalid, "is no part of a split model", 1},
		{"a part of a model with other tensors", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[2], other.Split(3, false)[2].Bytes())
		}, 0, ErrInvalid, "another model", 2},
		{"a part of another architecture", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[2], parts[2].With("general.architecture", "qwen3").Bytes())
		}, 0, ErrInvalid, "another model", 2},
		{"a part with other tensors", func(t *testing.T, parts []gguftest.File, paths []string) {
			p := parts[2]
			p.Tensors = p.Tensors[1:]
			put(t, paths[2], p.Bytes())
		}, 0, ErrInvalid, "12 tensors together, and they have 11", 0},
		{"another count of parts", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[1], parts[1].With("split.count", uint16(4)).Bytes())
		}, 0, ErrInvalid, "says that it is part 2 of 4", 1},
		{"another count of tensors", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[1], parts[1].With("split.tensors.count", int32(13)).Bytes())
		}, 0, ErrInvalid, "another model", 1},
		{"a number beyond the count", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[1], parts[1].With("split.no", uint16(3)).Bytes())
		}, 1, ErrInvalid, "part 4 of 3", 1},
		{"a number of another type", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[1], parts[1].With("split.no", int64(1)).Bytes())
		}, 0, ErrInvalid, "does not say which", 1},
		{"a count of another type", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[0], parts[0].With("split.count", "3").Bytes())
		}, 0, ErrInvalid, "does not say which", 0},
		{"a count of tensors as text", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[0], parts[0].With("split.tensors.count", "999999999999").Bytes())
		}, 0, ErrInvalid, "does not say which", 0},
		{"too many parts", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[0], parts[0].With("split.count", uint16(maxParts+1)).Bytes())
		}, 0, ErrInvalid, "one of 1001 parts", 0},
		{"more parts than the names say", func(t *testing.T, parts []gguftest.File, paths []string) {
			put(t, paths[0], parts[0].With("split.count", uint16(4)).Bytes())
		}, 0, ErrInvalid, "NAME-00001-of-00004.gguf", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := f.Split(3, false)
			paths := writeParts(t, "m", parts)
			c.change(t, parts, paths)
			_, err := Read(paths[c.read])
			if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) || !strings.Contains(fmt.Sprint(err), paths[c.file]) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func put(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A set whose names were changed is told how they have to be.
func TestReadPartsRenamed(t *testing.T) {
	for _, name := range []string{"alone.gguf", "m-00001-of-00003.gguf", "m-00001-of-00002", "m-1-of-2.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf"} {
		path := write(t, name, models()[0].Split(2, false)[0].Bytes())
		if _, err := Read(path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "NAME-00001-of-00002.gguf") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A whole model is one, whatever its name looks like.
func TestReadPartsByName(t *testing.T) {
	for _, name := range []string{"m-00001-of-00002.gguf", "m-00002-of-00001.gguf", "m-99999-of-99999.gguf", "m-00001-of-00002"} {
		path := write(t, name, models()[0].With("split.count", uint16(1)).Bytes())
		if h, err := Read(path); err != nil || h.Parts != nil {
			t.Errorf("%s: %q %v", name, h.Parts, err)
		}
	}
	// Nor is a name taken for a pattern.
	paths := writeParts(t, "%d$1\n-00001-of-00002.gguf", models()[0].Split(2, false))
	if h, err := Read(filepath.Clean(paths[1])); err != nil || !slices.Equal(h.Parts, paths) {
		t.Errorf("%q, not %q: %v", h.Parts, paths, err)
	}
}
