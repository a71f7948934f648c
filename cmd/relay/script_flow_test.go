package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

const (
	// flows is how many requests of a flow run side by side, flowEvery how often each
	// of its lines begins a new one at most.
	flows     = 2
	flowEvery = 50 * time.Millisecond
)

// flow is requests that are made one after another until it is told to end.
type flow struct {
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	begun  int
	done   map[int]bool // Answered whole.
	failed []string
}

// flow NAME MODEL begins a flow of requests at a peer's door; flowed NAME goes on
// until one that began after it was called is answered, ends the flow and wants
// every one of its requests to have been answered whole.
func cmdFlow(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptStage(ts)
	if neg || len(args) != 2 || s.flows[args[0]] != nil {
		ts.Fatalf("usage: flow NAME MODEL, once at a time for each NAME")
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flow{stop: cancel, done: map[int]bool{}}
	s.flows[args[0]] = f
	url := "http://" + s.door(args[0])
	for range flows {
		f.all.Go(func() {
			next := time.NewTicker(flowEvery)
			defer next.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
					f.ask(url, args[1])
				}
			}
		})
	}
	s.wait(ts, 20*time.Second, "the flow of "+args[0]+" runs", func() error { return f.past(0) })
}

func cmdFlowed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || scriptStage(ts).flows[args[0]] == nil {
		ts.Fatalf("usage: flowed NAME, after flow NAME")
	}
	s := scriptStage(ts)
	f := s.flows[args[0]]
	f.mu.Lock()
	now := f.begun
	f.mu.Unlock()
	s.wait(ts, 60*time.Second, "the flow of "+args[0]+" goes on", func() error { return f.past(now) })
	f.end()
	delete(s.flows, args[0])
	fmt.Fprintf(ts.Stdout(), "%d answered, %d failed\n", len(f.done), len(f.failed))
	if len(f.failed) > 0 {
		ts.Fatalf("%d of %d requests failed, the first with %s", len(f.failed), f.begun, f.failed[0])
	}
}

// ask makes one request. It is not cut short when the flow ends.
func (f *flow) ask(url, model string) {
	f.mu.Lock()
	f.begun++
	n := f.begun
	f.mu.Unlock()
	status, body, err := 0, "", error(nil)
	r, cancel, err := newChat(url, model, "What is relay?")
	if err == nil {
		status, body, err = sendRequest(r)
		cancel()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || status != http.StatusOK || !strings.Contains(body, "data: [DONE]") {
		f.failed = append(f.failed, fmt.Sprintf("%d %v: %s", status, err, tail(body, 400)))
		return
	}
	f.done[n] = true
}

// past fails until a request is answered that began after so many others. One that
// failed stands for itself.
func (f *flow) past(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) > 0 {
		return nil
	}
	for nth := range f.done {
		if nth > n {
			return nil
		}
	}
	return fmt.Errorf("%d requests were begun, %d answered", f.begun, len(f.done))
}

func (f *flow) end() {
	f.stop()
	f.all.Wait()
}

// refused SECONDS NAME MODEL QUESTION [HEADER] asks, and wants an error within that
// time: its status, when to try again, and its JSON are left in stdout. HEADER,
// "Name: value", goes along.
func cmdRefused(ts *testscript.TestScript, neg bool, args []string) {
	seconds := 0
	if len(args) == 4 || len(args) == 5 {
		seconds, _ = strconv.Atoi(args[0])
	}
	if neg || seconds < 1 {
		ts.Fatalf("usage: refused SECONDS NAME MODEL QUESTION [HEADER]")
	}
	r, cancel := chatRequest(ts, args[1], args[2], args[3])
	defer cancel()
	if len(args) == 5 {
		name, value, _ := strings.Cut(args[4], ": ")
		r.Header.Set(name, value)
	}
	began := time.Now()
	response, body, err := sendWhole(r)
	ts.Check(err)
	took := time.Since(began)
	fmt.Fprintf(ts.Stdout(), "%d retry-after=%s %s\n", response.StatusCode, response.Header.Get("Retry-After"), body)
	switch {
	case response.StatusCode == http.StatusOK:
		ts.Fatalf("%s answered: %s", args[1], tail(body, 400))
	case took > time.Duration(seconds)*time.Second:
		ts.Fatalf("%s took %s to say %s", args[1], took, body)
	}
}
