package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// begin KEY NAME relay ARGS… starts a command on a peer's machine; finish KEY waits
// for its end, and leaves its code and what it printed for checking.
func cmdBegin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[2] != "relay" {
		ts.Fatalf("usage: begin KEY NAME relay ARGS…")
	}
	ended := make(chan ending, 1)
	scriptStage(ts).begun[args[0]] = ended
	path := relayPath(ts)
	go func() {
		var e ending
		e.code, e.stdout, e.stderr, e.err = runCommand(environ(ts, args[1]), ts.MkAbs("."), path, args[3:])
		ended <- e
	}()
}

// ending is how a command in the background ended.
type ending struct {
	code           int
	stdout, stderr string
	err            error
}

func cmdFinish(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || scriptStage(ts).begun[args[0]] == nil {
		ts.Fatalf("usage: finish KEY, after begin KEY")
	}
	select {
	case e := <-scriptStage(ts).begun[args[0]]:
		ts.Check(e.err)
		ts.Setenv("code", strconv.Itoa(e.code))
		fmt.Fprint(ts.Stdout(), e.stdout)
		fmt.Fprint(ts.Stderr(), e.stderr)
		if neg == (e.code == 0) {
			ts.Fatalf("%s ended with exit %d\n%s%s", args[0], e.code, e.stdout, e.stderr)
		}
	case <-time.After(time.Minute):
		ts.Fatalf("%s does not end", args[0])
	}
}

// ggufFile is a GGUF file taken apart.
type ggufFile struct {
	pairs   int
	meta    []byte // All pairs.
	tensors []ggufTensor
}

type ggufTensor struct {
	info []byte // Name, shape and type.
	data []byte
}

const ggufAlign = 32

// readTensors takes a GGUF file apart, as far as these scripts need that.
func readTensors(ts *testscript.TestScript, path string) ggufFile {
	data, err := os.ReadFile(path)
	ts.Check(err)
	at := 24
	u32 := func() int { at += 4; return int(binary.LittleEndian.Uint32(data[at-4:])) }
	u64 := func() int { at += 8; return int(binary.LittleEndian.Uint64(data[at-8:])) }
	text := func() { at += u64() }
	sizes := map[int]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
	var value func(kind int)
	value = func(kind int) {
		switch kind {
		case 8:
			text()
		case 9:
			kind, n := u32(), 0
			for n = u64(); n > 0; n-- {
				value(kind)
			}
		default:
			at += sizes[kind]
		}
	}
	tensors := int(binary.LittleEndian.Uint64(data[8:]))
	f := ggufFile{pairs: int(binary.LittleEndian.Uint64(data[16:]))}
	for range f.pairs {
		text()
		value(u32())
	}
	f.meta = data[24:at]
	var offsets []int
	for range tensors {
		begin := at
		text()
		at += 8 * u32()
		at += 4
		f.tensors = append(f.tensors, ggufTensor{info: data[begin:at]})
		offsets = append(offsets, u64())
	}
	body := data[(at+ggufAlign-1)/ggufAlign*ggufAlign:]
	for i := range f.tensors {
		end := len(body)
		for _, o := range offsets {
			if o > offsets[i] {
				end = min(end, o)
			}
		}
		f.tensors[i].data = body[offsets[i]:end]
	}
	return f
}

// number adds a pair of a key and a number of a kind: 2 is uint16, 5 int32.
func (f *ggufFile) number(key string, kind uint32, value any) {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, uint64(len(key)))
	b.WriteString(key)
	_ = binary.Write(&b, binary.LittleEndian, kind)
	_ = binary.Write(&b, binary.LittleEndian, value)
	f.meta, f.pairs = append(bytes.Clone(f.meta), b.Bytes()...), f.pairs+1
}

// text adds a pair of a key and a text.
func (f *ggufFile) text(key, value string) {
	var b bytes.Buffer
	for i, s := range []string{key, value} {
		if i == 1 {
			_ = binary.Write(&b, binary.LittleEndian, uint32(8))
		}
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(s)))
		b.WriteString(s)
	}
	f.meta, f.pairs = append(bytes.Clone(f.meta), b.Bytes()...), f.pairs+1
}

// bytesTensor adds a tensor of so many bytes that are like no others.
func (f *ggufFile) bytesTensor(name string, n int) {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, uint64(len(name)))
	b.WriteString(name)
	_ = binary.Write(&b, binary.LittleEndian, uint32(1))
	_ = binary.Write(&b, binary.LittleEndian, uint64(n))
	_ = binary.Write(&b, binary.LittleEndian, uint32(24)) // int8
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	f.tensors = append(f.tensors, ggufTensor{b.Bytes(), data})
}

func (f *ggufFile) write(ts *testscript.TestScript, path string) {
	var b, body bytes.Buffer
	b.WriteString("GGUF")
	_ = binary.Write(&b, binary.LittleEndian, uint32(3))
	_ = binary.Write(&b, binary.LittleEndian, [2]uint64{uint64(len(f.tensors)), uint64(f.pairs)})
	b.Write(f.meta)
	pad := func(to *bytes.Buffer) { to.Write(make([]byte, (ggufAlign-to.Len()%ggufAlign)%ggufAlign)) }
	for _, t := range f.tensors {
		b.Write(t.info)
		_ = binary.Write(&b, binary.LittleEndian, uint64(body.Len()))
		body.Write(t.data)
		pad(&body)
	}
	pad(&b)
	b.Write(body.Bytes())
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, b.Bytes(), 0o644))
}

// split MODEL N PREFIX makes N parts of a model, PREFIX-00001-of-0000N.gguf and so
// on; the first has only metadata, as the engine's own tool can make it.
func cmdSplit(ts *testscript.TestScript, neg bool, args []string) {
	n := 0
	if len(args) == 3 {
		n, _ = strconv.Atoi(args[1])
	}
	if neg || n < 2 {
		ts.Fatalf("usage: split MODEL N PREFIX")
	}
	whole := readTensors(ts, ts.MkAbs(args[0]))
	for i := range n {
		var part ggufFile
		if i == 0 {
			part = ggufFile{pairs: whole.pairs, meta: whole.meta}
		} else {
			part.tensors = whole.tensors[(i-1)*len(whole.tensors)/(n-1) : i*len(whole.tensors)/(n-1)]
		}
		part.number("split.no", 2, uint16(i))
		part.number("split.count", 2, uint16(n))
		part.number("split.tensors.count", 5, int32(len(whole.tensors)))
		part.write(ts, ts.MkAbs(fmt.Sprintf("%s-%05d-of-%05d.gguf", args[2], i+1, n)))
	}
}

// projector FILE makes what has the header of a projector.
func cmdProjector(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: projector FILE")
	}
	var f ggufFile
	f.text("general.architecture", "clip")
	f.text("general.type", "mmproj")
	f.bytesTensor("v.patch_embd.weight", 64<<10)
	f.write(ts, ts.MkAbs(args[0]))
}

// fatten MODEL MIB FILE makes a model larger by a tensor that nothing needs: no
// engine runs it, and it takes its time to be moved.
func cmdFatten(ts *testscript.TestScript, neg bool, args []string) {
	n := 0
	if len(args) == 3 {
		n, _ = strconv.Atoi(args[1])
	}
	if neg || n < 1 {
		ts.Fatalf("usage: fatten MODEL MIB FILE")
	}
	f := readTensors(ts, ts.MkAbs(args[0]))
	f.bytesTensor("fat", n<<20)
	f.write(ts, ts.MkAbs(args[2]))
}
