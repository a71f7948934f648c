package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

// random LAYERS FILE makes a model with random weights that the engine runs: some
// eleven MiB a layer, and the demo model's vocabulary.
func cmdRandom(ts *testscript.TestScript, neg bool, args []string) {
	writeRandom(ts, neg, args, "random", gguftest.Random{Width: 1024, FeedForward: 2816})
}

func writeRandom(ts *testscript.TestScript, neg bool, args []string, name string, m gguftest.Random) {
	layers := 0
	if len(args) == 2 {
		layers, _ = strconv.Atoi(args[0])
	}
	if neg || layers < 1 {
		ts.Fatalf("usage: %s LAYERS FILE", name)
	}
	from, err := gguftest.Parse(demo.GGUF())
	ts.Check(err)
	m.Arch, m.Type, m.Layers, m.KVWidth, m.HeadWidth, m.Train = "llama", gguftest.Q8_0, layers, 256, 64, 4096
	ts.Check(m.Write(ts.MkAbs(args[1]), from))
}

// prompt NAME MODEL TOKENS has a model read a prompt of so many tokens. What it
// answers does not matter: of a random model it may be no text.
func cmdPrompt(ts *testscript.TestScript, neg bool, args []string) {
	n := 0
	if len(args) == 3 {
		n, _ = strconv.Atoi(args[2])
	}
	if neg || n < 1 {
		ts.Fatalf("usage: prompt NAME MODEL TOKENS")
	}
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = 300 + i*7%700
	}
	data, err := json.Marshal(map[string]any{"model": args[1], "prompt": tokens, "max_tokens": 4, "ignore_eos": true})
	ts.Check(err)
	r, err := http.NewRequest(http.MethodPost, "http://"+scriptStage(ts).door(args[0])+"/v1/completions", bytes.NewReader(data))
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+scriptKey)
	r.Header.Set("Content-Type", "application/json")
	status, body := send(ts, r)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", status, body)
}

// uses NAME MODEL PERCENT wants the memory that `model plan` predicts for the way
// that is chosen, all devices together, to be within that of what the one engine of
// the peer has resident.
func cmdUses(ts *testscript.TestScript, neg bool, args []string) {
	percent := 0
	if len(args) == 3 {
		percent, _ = strconv.Atoi(args[2])
	}
	if neg || percent < 1 {
		ts.Fatalf("usage: uses NAME MODEL PERCENT")
	}
	code, stdout, stderr := runOn(ts, args[0], []string{"model", "plan", args[1], "--json"})
	var plan struct {
		Ways []struct {
			Chosen bool
			Memory []struct{ Bytes uint64 }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &plan); err != nil || code != 0 {
		ts.Fatalf("no plan: exit %d: %v %s%s", code, err, stdout, stderr)
	}
	var predicted uint64
	for _, w := range plan.Ways {
		for _, d := range w.Memory {
			if w.Chosen {
				predicted += d.Bytes
			}
		}
	}
	engines := enginesOf(ts, args[0])
	if len(engines) != 1 {
		ts.Fatalf("%d engines of %s run", len(engines), args[0])
	}
	used := residentOf(ts, engines[0].Pid)
	ratio := float64(predicted) / float64(used)
	fmt.Fprintf(ts.Stdout(), "predicted %d MiB, used %d MiB: %.3f\n", predicted>>20, used>>20, ratio)
	if math.Abs(ratio-1) > float64(percent)/100 {
		ts.Fatalf("%d bytes were predicted, and %d are used", predicted, used)
	}
}

// residentOf is what a process has resident, in bytes.
func residentOf(ts *testscript.TestScript, pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	ts.Check(err)
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(data)
	if m == nil {
		ts.Fatalf("process %d does not say what it takes", pid)
	}
	kib, err := strconv.ParseUint(string(m[1]), 10, 64)
	ts.Check(err)
	return kib << 10
}

// pids NAME VARIABLE takes the process ids of a peer's engines; replaced NAME
// VARIABLE waits until as many others run, and none of those; away VARIABLE until
// none of them runs.
func cmdPIDs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pids NAME VARIABLE")
	}
	ts.Setenv(args[1], strings.Join(pidsOf(ts, args[0]), " "))
	if ts.Getenv(args[1]) == "" {
		ts.Fatalf("no engine of %s runs", args[0])
	}
}

func cmdReplaced(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: replaced NAME VARIABLE")
	}
	before := strings.Fields(ts.Getenv(args[1]))
	scriptStage(ts).wait(ts, 20*time.Second, "the engines of "+args[0]+" are others", func() error {
		now := pidsOf(ts, args[0])
		if len(now) != len(before) || slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(before, pid) }) {
			return fmt.Errorf("they were %v and are %v", before, now)
		}
		return nil
	})
}

func cmdAway(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || ts.Getenv(args[0]) == "" {
		ts.Fatalf("usage: away VARIABLE, after pids NAME VARIABLE")
	}
	scriptStage(ts).wait(ts, 5*time.Second, "the engines have ended", func() error {
		for _, pid := range strings.Fields(ts.Getenv(args[0])) {
			line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if err == nil && len(line) > 0 {
				return fmt.Errorf("process %s: %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
			}
		}
		return nil
	})
}

func pidsOf(ts *testscript.TestScript, name string) (list []string) {
	for _, process := range runningEngines(ts, name) {
		list = append(list, strconv.Itoa(process.Pid))
	}
	slices.Sort(list)
	return list
}
