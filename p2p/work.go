package p2p

import "sync"

// work counts what runs on behalf of a node outside of Run, so that its end can
// be waited for.
type work struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// begin says whether something may still begin; end must follow if so.
func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running.Add(1)
	return true
}

func (w *work) end() { w.running.Done() }

// run starts f unless all is over.
func (w *work) run(f func()) {
	if !w.begin() {
		return
	}
	go func() {
		defer w.end()
		f()
	}()
}

// wait lets nothing begin any more and returns when all has ended.
func (w *work) wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}
