package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
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

// readGGUF takes a GGUF file apart.
func readGGUF(ts *testscript.TestScript, path string) gguftest.File {
	data, err := os.ReadFile(ts.MkAbs(path))
	ts.Check(err)
	f, err := gguftest.Parse(data)
	ts.Check(err)
	return f
}

// split MODEL N FOLDER NAME makes N parts of a model, named as the engine wants it.
// The first has only metadata.
func cmdSplit(ts *testscript.TestScript, neg bool, args []string) {
	n := 0
	if len(args) == 4 {
		n, _ = strconv.Atoi(args[1])
	}
	if neg || n < 2 {
		ts.Fatalf("usage: split MODEL N FOLDER NAME")
	}
	dir := ts.MkAbs(args[2])
	ts.Check(os.MkdirAll(dir, 0o755))
	_, err := gguftest.WriteParts(dir, args[3], readGGUF(ts, args[0]).Split(n, true))
	ts.Check(err)
}

// projector MODEL FILE makes a projector that a model of that width takes.
func cmdProjector(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: projector MODEL FILE")
	}
	h, err := gguf.Read(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), gguftest.Projector(int(h.EmbeddingLength)).Bytes(), 0o644))
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
	fat := make([]byte, n<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(fat)
	f := readGGUF(ts, args[0])
	f.Tensors = append(f.Tensors, gguftest.Tensor{Name: "fat", Type: gguftest.F32, Dims: []uint64{uint64(n) << 18}, Data: fat})
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), f.Bytes(), 0o644))
}
