package p2p

import (
	"maps"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// singles are those that stand at this peer. They live as long as the link beside
// them, which is what is watched, and end with the rights that they were opened under.
type singles struct {
	may func(s *single, opened bool) bool

	mu       sync.Mutex
	over     bool
	standing map[*single]bool // Whether this peer opened it.
}

// add says whether a single may stand; it is forgotten when it ends.
func (h *singles) add(s *single, opened bool) bool {
	s.ended = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.standing, s)
	}
	h.mu.Lock()
	over := h.over
	h.standing[s] = opened
	h.mu.Unlock()
	if !over && h.may(s, opened) { // Asked once it is found by sweep, which asks after each change.
		return true
	}
	s.ended()
	return false
}

// sweep ends those that may stand no longer.
func (h *singles) sweep() { h.end(func(s *single, opened bool) bool { return !h.may(s, opened) }) }

// close ends all, and those that are added later.
func (h *singles) close() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.end(func(*single, bool) bool { return true })
}

func (h *singles) end(ends func(s *single, opened bool) bool) {
	h.mu.Lock()
	standing := maps.Clone(h.standing)
	h.mu.Unlock()
	for s, opened := range standing {
		if ends(s, opened) {
			_ = s.Reset()
		}
	}
}

// with says whether one stands to or from a peer.
func (h *singles) with(id peer.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.standing {
		if s.whole.RemotePeer() == id {
			return true
		}
	}
	return false
}
