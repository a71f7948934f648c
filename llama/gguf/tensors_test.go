package gguf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"relay/llama/gguf/gguftest"
)

// Tensors are where another reader of the file finds them, in each part of a
// split model too.
func TestTensors(t *testing.T) {
	from := demoFile(t)
	for _, m := range []gguftest.Random{
		{Arch: "llama", Type: gguftest.Q8_0, Layers: 3, Width: 96, KVWidth: 32, HeadWidth: 32, FeedForward: 160, Train: 4096},
		{Arch: "llama", Type: gguftest.Q4_0, Layers: 3, Width: 96, KVWidth: 32, HeadWidth: 32, FeedForward: 160, Train: 4096, Experts: 4, Used: 2},
		{Arch: "gemma3", Type: gguftest.F16, Layers: 12, Width: 96, KVWidth: 32, HeadWidth: 32, FeedForward: 160, Train: 4096, Window: 256},
		{Arch: "bert", Type: gguftest.Q8_0, Layers: 3, Width: 96, KVWidth: 96, HeadWidth: 32, FeedForward: 160, Train: 4096, Pooling: 4},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := m.Write(path, from); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := gguftest.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole.Tensors { // no two alike
			copy(whole.Tensors[i].Data, fmt.Sprintf("%04d", i))
		}
		for parts := 1; parts <= 3; parts++ {
			for _, bare := range []bool{false, true} {
				paths := []string{write(t, "m.gguf", whole.Bytes())}
				if parts > 1 {
					paths = writeParts(t, "m", whole.Split(parts, bare))
				}
				tensorsAre(t, paths, whole)
			}
		}
	}
}

// tensorsAre checks the tensors of the model in those files.
func tensorsAre(t *testing.T, paths []string, whole gguftest.File) {
	t.Helper()
	h, err := Read(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := h.Tensors()
	if err != nil || len(tensors) != len(whole.Tensors) {
		t.Fatalf("%d tensors of %d: %v", len(tensors), len(whole.Tensors), err)
	}
	files := make([][]byte, len(paths))
	for i := range paths {
		if files[i], err = os.ReadFile(paths[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range whole.Tensors {
		got := tensors[i]
		layer := -1
		switch _, err := fmt.Sscanf(want.Name, "blk.%d.", &layer); {
		case err == nil:
		case want.Name[:3] == "out", want.Name[:3] == "cls":
			layer = int(h.Layers)
		}
		// The padding between tensors is no part of them.
		if got.Name != want.Name || got.Layer != layer || len(want.Data)-int(got.Bytes) < 0 || len(want.Data)-int(got.Bytes) >= 32 ||
			!bytes.Equal(files[got.Part][got.Offset:got.Offset+got.Bytes], want.Data[:got.Bytes]) {
			t.Errorf("%s: %+v, which is layer %d with %d bytes", want.Name, got, layer, len(want.Data))
		}
	}
	tensorsAgree(t, h, shapeOf(t, h, Serving{Context: 256, Slots: 1}))
}

// tensorsAgree checks that the tensors of each layer are what its shape counts.
func tensorsAgree(t *testing.T, h Header, s Shape) {
	t.Helper()
	tensors, err := h.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	var all, largest uint64
	of := make([]uint64, h.Layers+2)
	for _, x := range tensors {
		if x.Layer < -1 || x.Layer > int(h.Layers) || x.Part != 0 && x.Part >= len(h.Parts) || x.Bytes < 1 || x.Offset < 24 || uint64(x.Offset+x.Bytes) > h.FileBytes {
			t.Fatalf("%+v", x)
		}
		all += uint64(x.Bytes)
		of[x.Layer+1] += uint64(x.Bytes)
		if x.Layer >= 0 && x.Layer < int(h.Layers) {
			largest = max(largest, uint64(x.Bytes))
		}
	}
	if all != h.TensorBytes {
		t.Errorf("the tensors have %d bytes, not %d", all, h.TensorBytes)
	}
	if h.Kind == KindProjector { // which has no layers of its own
		return
	}
	i, input := 1, of[0]
	for _, l := range s.Layers {
		for range l.Count {
			if of[i] != l.Weights {
				t.Errorf("layer %d has %d bytes in tensors, and %d in its shape", i-1, of[i], l.Weights)
			}
			i++
		}
	}
	if s.Tied {
		input += of[i]
	}
	if s.Input != input || s.Output < of[i] || s.Largest != largest {
		t.Errorf("%d, %d and at most %d bytes in tensors, in its shape %+v", input, of[i], largest, s)
	}
}

// A tensor of a layer that the model does not say it has is of the input.
func TestTensorsOfNoLayer(t *testing.T) {
	f := models()[0]
	for _, name := range []string{"blk.999.x.weight", "blk.99999999.x.weight", "x.blk.0.weight", "rope_freqs.weight"} {
		f.Tensors = append(f.Tensors, gguftest.Tensor{Name: name, Type: gguftest.F32, Dims: []uint64{8}, Data: make([]byte, 32)})
	}
	h, err := inMemory(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := h.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors[len(tensors)-4:] {
		if want := map[bool]int{true: 0, false: -1}[x.Name == "x.blk.0.weight"]; x.Layer != want {
			t.Errorf("%+v, want layer %d", x, want)
		}
	}
	if list, err := (Header{}).Tensors(); err == nil {
		t.Errorf("a header of no file has %v", list)
	}
}
