package p2p

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// turns bounds what runs at a time, for each peer and in all.
type turns struct {
	each, all int

	mu    sync.Mutex
	taken map[peer.ID]int
	sum   int
}

func newTurns(each, all int) *turns { return &turns{each: each, all: all, taken: map[peer.ID]int{}} }

// take says whether the peer may begin one more; give must follow if so.
func (t *turns) take(id peer.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[id] >= t.each || t.sum >= t.all {
		return false
	}
	t.taken[id]++
	t.sum++
	return true
}

func (t *turns) give(id peer.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum--
	if t.taken[id]--; t.taken[id] <= 0 {
		delete(t.taken, id)
	}
}

// running is how many there are now.
func (t *turns) running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}
