package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
	"relay/llama/tensorcache"
)

// wide LAYERS FILE makes a model with random weights like random, of which two tensors
// in each layer are over 10 MiB: some 27 MiB a layer.
func cmdWide(ts *testscript.TestScript, neg bool, args []string) {
	writeRandom(ts, neg, args, "wide", gguftest.Random{Width: 3328, FeedForward: 256})
}

// partof NAME MODEL PERCENT VARIABLE takes so much of what a model needs, in MiB.
func cmdPartOf(ts *testscript.TestScript, neg bool, args []string) {
	percent := 0
	if len(args) == 4 {
		percent, _ = strconv.Atoi(args[2])
	}
	if neg || percent < 1 {
		ts.Fatalf("usage: partof NAME MODEL PERCENT VARIABLE")
	}
	code, stdout, stderr := runOn(ts, args[0], []string{"model", "show", args[1], "--json"})
	var m struct{ Need uint64 }
	if err := json.Unmarshal([]byte(stdout), &m); err != nil || code != 0 || m.Need == 0 {
		ts.Fatalf("what it needs is not said: exit %d: %v %s%s", code, err, stdout, stderr)
	}
	ts.Setenv(args[3], strconv.FormatUint(m.Need*uint64(percent)/100>>20, 10))
}

// fact SECONDS NAME KEY VARIABLE takes a figure of `relay status --json` as soon as there
// is one.
func cmdFact(ts *testscript.TestScript, neg bool, args []string) {
	seconds := 0
	if len(args) == 4 {
		seconds, _ = strconv.Atoi(args[0])
	}
	if neg || seconds < 1 {
		ts.Fatalf("usage: fact SECONDS NAME KEY VARIABLE")
	}
	scriptStage(ts).wait(ts, time.Duration(seconds)*time.Second, args[1]+" knows "+args[2], func() error {
		facts, err := statusFacts(ts, args[1])
		if err == nil && facts[args[2]] == "" {
			err = errors.New("it says nothing")
		}
		if err == nil {
			ts.Setenv(args[3], facts[args[2]])
			fmt.Fprintf(ts.Stdout(), "%s is %s\n", args[2], facts[args[2]])
		}
		return err
	})
}

// besides VARIABLE NAME… takes the name of a running peer that is none of these.
func cmdBesides(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: besides VARIABLE NAME…")
	}
	for _, name := range slices.Sorted(maps.Keys(scriptStage(ts).peers)) {
		if !slices.Contains(args[1:], name) {
			ts.Setenv(args[0], name)
			return
		}
	}
	ts.Fatalf("there is no other")
}

// tokens SECONDS NAME MODEL FILE asks for the likeliest tokens, wants them within that
// time of its first try, and writes them to a file: their ids. How long it took is left
// in stdout.
func cmdTokens(ts *testscript.TestScript, neg bool, args []string) {
	seconds := 0
	if len(args) == 4 {
		seconds, _ = strconv.Atoi(args[0])
	}
	if neg || seconds < 1 {
		ts.Fatalf("usage: tokens SECONDS NAME MODEL FILE")
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	status, body, err := sendRequest(completion(ctx, ts, args[1], map[string]any{
		"model": args[2], "prompt": "Why does the saxophone of marmalade sing?", "max_tokens": 24, "logprobs": 1,
	}))
	took := time.Since(began)
	if err != nil || status != http.StatusOK {
		s := scriptStage(ts)
		for name, p := range s.peers {
			ts.Logf("--- %s\n%s", name, tail(p.log.String(), 3000))
		}
		ts.Fatalf("%s after %s: %d %v: %s", args[1], took, status, err, body)
	}
	var answer struct {
		Choices []struct {
			Logprobs struct{ Tokens []string }
		}
	}
	ts.Check(json.Unmarshal([]byte(body), &answer))
	var text strings.Builder
	for _, c := range answer.Choices {
		for _, t := range c.Logprobs.Tokens {
			fmt.Fprintf(&text, "%q\n", t)
		}
	}
	if n := strings.Count(text.String(), "\n"); n != 24 {
		ts.Fatalf("%d tokens: %s", n, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), []byte(text.String()), 0o600))
	fmt.Fprintf(ts.Stdout(), "answered by %s after %.1f s\n", args[1], took.Seconds())
}

// completion is a request for the likeliest tokens.
func completion(ctx context.Context, ts *testscript.TestScript, name string, body map[string]any) *http.Request {
	body["ignore_eos"], body["temperature"] = true, 0
	data, err := json.Marshal(body)
	ts.Check(err)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+scriptStage(ts).door(name)+"/v1/completions", bytes.NewReader(data))
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+scriptKey)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// stream NAME MODEL asks for a long answer in the background, and goes on once some of
// it has come; streamed NAME waits for its end, 60 seconds at most, which is never a
// silent one: "whole", or the error that it says, is left in stdout.
func cmdStream(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptStage(ts)
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stream NAME MODEL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	r := completion(ctx, ts, args[0], map[string]any{
		"model": args[1], "prompt": "Tell me all of it.", "max_tokens": 300, "stream": true,
	})
	begun, done := make(chan struct{}), make(chan answer, 1)
	s.answers[args[0]] = done
	go func() {
		defer cancel()
		done <- readEvents(r, begun)
	}()
	select {
	case <-begun:
	case a := <-done:
		ts.Fatalf("no answer: %d %v: %s", a.status, a.err, a.body)
	}
}

// readEvents reads a stream, and closes begun when the third event of it has come.
func readEvents(r *http.Request, begun chan struct{}) (a answer) {
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	a.status = response.StatusCode
	events := 0
	for lines := bufio.NewScanner(response.Body); ; {
		if !lines.Scan() {
			a.err = lines.Err()
			return a
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
			if a.status != http.StatusOK {
				a.body += lines.Text()
			}
		case data == "[DONE]":
			a.body = "whole"
		case strings.HasPrefix(data, `{"error"`):
			a.body = data
		}
		if events++; ok && events == 5 {
			close(begun)
		}
	}
}

func cmdStreamed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || scriptStage(ts).answers[args[0]] == nil {
		ts.Fatalf("usage: streamed NAME, after stream NAME")
	}
	began := time.Now()
	a := <-scriptStage(ts).answers[args[0]]
	if a.body == "" {
		ts.Fatalf("it ended without a word: %d %v", a.status, a.err)
	}
	fmt.Fprintf(ts.Stdout(), "%s (%.1f s later)\n", a.body, time.Since(began).Seconds())
}

// halt NAME stops a peer where it stands, with all of its engines, until thaw.
func cmdHalt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: halt NAME")
	}
	s := scriptStage(ts)
	for _, process := range append([]*os.Process{runningPeer(ts, args[0]).cmd.Process}, processesIn(ts, args[0])...) {
		if err := suspend(process); err != nil && process.Pid == s.peers[args[0]].cmd.Process.Pid {
			ts.Fatalf("not halted: %v", err)
		}
		s.frozen = append(s.frozen, process)
	}
}

// processesIn are the processes whose working folder is in a peer's state folder.
func processesIn(ts *testscript.TestScript, name string) (list []*os.Process) {
	entries, err := filepath.Glob("/proc/[0-9]*/cwd")
	ts.Check(err)
	for _, path := range entries {
		dir, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(dir, stateOf(ts, name)+string(filepath.Separator)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		ts.Check(err)
		if process, err := os.FindProcess(pid); err == nil {
			list = append(list, process)
		}
	}
	return list
}

// hasonly NAME MODEL FILE wants a worker to have, of the model in that file, the tensors
// over 10 MiB of the layers of its share and no byte of any other: not in its cache, and
// not in any of its files.
func cmdHasOnly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: hasonly NAME MODEL FILE")
	}
	facts, err := statusFacts(ts, args[0])
	ts.Check(err)
	var from, to int
	if _, err := fmt.Sscanf(facts["share:"+args[1]+":"+args[0]], "%d-%d", &from, &to); err != nil {
		ts.Fatalf("%s has no layers of %s: %v", args[0], args[1], err)
	}
	path := ts.MkAbs(args[2])
	h, err := gguf.Read(path)
	ts.Check(err)
	tensors, err := h.Tensors()
	ts.Check(err)
	model, err := os.Open(path)
	ts.Check(err)
	defer model.Close()
	var its []string // What its cache is to have.
	var foreign samples
	for _, t := range tensors {
		if t.Bytes < 4096 { // Norms, which are all the same.
			continue
		}
		if t.Layer >= from && t.Layer <= to && t.Bytes > tensorcache.Least {
			sum := fnv.New64a()
			_, err := io.Copy(sum, io.NewSectionReader(model, t.Offset, t.Bytes))
			ts.Check(err)
			its = append(its, fmt.Sprintf("%016x", sum.Sum64()))
			continue
		}
		for _, at := range []int64{t.Bytes / 64, t.Bytes / 2, t.Bytes - t.Bytes/64} {
			sample := make([]byte, 64)
			_, err := model.ReadAt(sample, t.Offset+at)
			ts.Check(err)
			foreign.add(sample)
		}
	}
	slices.Sort(its)
	if has := cacheOf(ts, args[0]); len(its) == 0 || !slices.Equal(has, its) {
		ts.Fatalf("%s has layers %d-%d, whose tensors are %v, and its cache has %v", args[0], from, to, its, has)
	}
	read := 0
	eachFile(ts, args[0], func(path string, data []byte) {
		read += len(data)
		if at := foreign.in(data); at >= 0 {
			ts.Fatalf("%s of %s has bytes of another's layers at %d", path, args[0], at)
		}
	})
	fmt.Fprintf(ts.Stdout(), "%s has layers %d to %d: %d tensors, and nothing of %d other places in %d MiB\n", args[0], from, to, len(its), len(foreign.all), read>>20)
}

// samples are pieces of bytes that are looked for all at once.
type samples struct {
	all   map[[8]byte][]byte // By how they begin.
	begin [1 << 16]bool
}

func (s *samples) add(sample []byte) {
	if s.all == nil {
		s.all = map[[8]byte][]byte{}
	}
	s.all[[8]byte(sample)] = sample
	s.begin[binary.LittleEndian.Uint16(sample)] = true
}

// in is where some data has one of the samples, -1 where it has none.
func (s *samples) in(data []byte) int {
	for at := range max(0, len(data)-7) {
		if s.begin[binary.LittleEndian.Uint16(data[at:])] {
			if sample := s.all[[8]byte(data[at:])]; sample != nil && bytes.HasPrefix(data[at:], sample) {
				return at
			}
		}
	}
	return -1
}

// cacheOf are the names of the files in a peer's cache of tensors.
func cacheOf(ts *testscript.TestScript, name string) (names []string) {
	files, err := os.ReadDir(filepath.Join(stateOf(ts, name), "rpc", "rpc"))
	ts.Check(err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// unsaid TEXT NAME… wants no file of the peers to have a text, and none of them to have
// printed it.
func cmdUnsaid(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: unsaid TEXT NAME…")
	}
	for _, name := range args[1:] {
		files := 0
		eachFile(ts, name, func(path string, data []byte) {
			files++
			if bytes.Contains(data, []byte(args[0])) {
				ts.Fatalf("%s of %s has what was asked", path, name)
			}
		})
		if p := scriptStage(ts).peers[name]; p != nil && strings.Contains(p.log.String(), args[0]) {
			ts.Fatalf("%s printed what was asked", name)
		}
		if files == 0 {
			ts.Fatalf("%s has no files", name)
		}
	}
}

// eachFile reads every file that a peer has.
func eachFile(ts *testscript.TestScript, name string, f func(path string, data []byte)) {
	ts.Check(filepath.WalkDir(stateOf(ts, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		data, err := os.ReadFile(path)
		if err == nil {
			f(path, data)
		}
		return ignoreGone(err)
	}))
}

// ignoreGone is for files that come and go.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// cached NAME VARIABLE takes the names of the files in a peer's cache of tensors.
func cmdCached(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cached NAME VARIABLE")
	}
	ts.Setenv(args[1], strings.Join(cacheOf(ts, args[0]), " "))
}

// recite NAME MODEL TEXT TOKENS has a model read a prompt that says a text again and
// again, of at least so many tokens.
func cmdRecite(ts *testscript.TestScript, neg bool, args []string) {
	least := 0
	if len(args) == 4 {
		least, _ = strconv.Atoi(args[3])
	}
	if neg || least < 1 {
		ts.Fatalf("usage: recite NAME MODEL TEXT TOKENS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var prompt strings.Builder
	for i := 0; prompt.Len() < 2*least+64; i++ {
		fmt.Fprintf(&prompt, "%d: %s. ", i, args[2])
	}
	began := time.Now()
	status, body, err := sendRequest(completion(ctx, ts, args[0], map[string]any{"model": args[1], "prompt": prompt.String(), "max_tokens": 1}))
	var answer struct {
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &answer)
	}
	if err != nil || status != http.StatusOK || answer.Usage.PromptTokens < least {
		ts.Fatalf("%d %v: %s", status, err, body)
	}
	fmt.Fprintf(ts.Stdout(), "%d tokens read in %.1f s\n", answer.Usage.PromptTokens, time.Since(began).Seconds())
}
