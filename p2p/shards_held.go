package p2p

import (
	"maps"
	"net"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// heldShards are the shard streams that stand at this peer, opened by it or by
// others. Each lives no longer than the link beside it, which is what is watched,
// and than the rights that it was opened under.
type heldShards struct {
	may func(other peer.ID, opened bool) bool

	mu   sync.Mutex
	over bool
	all  map[*heldShard]bool
}

// heldShard is one of them.
type heldShard struct {
	shardConn
	in     *heldShards
	other  peer.ID
	opened bool // By this peer.

	// Under the lock of all.
	gone  bool
	leads net.Conn // To the engine's server, where others opened it.
}

// add says whether a stream may stand; where it may not it is as it was.
func (h *heldShards) add(c shardConn, other peer.ID, opened bool) (*heldShard, bool) {
	s := &heldShard{shardConn: c, in: h, other: other, opened: opened}
	h.mu.Lock()
	over := h.over
	h.all[s] = true
	h.mu.Unlock()
	if !over && h.may(other, opened) { // Asked when sweep finds it: no change is missed.
		return s, true
	}
	s.forget()
	return nil, false
}

// lead notes where it leads to, which ends with it.
func (s *heldShard) lead(to net.Conn) {
	s.in.mu.Lock()
	s.leads = to
	gone := s.gone
	s.in.mu.Unlock()
	if gone {
		_ = to.Close()
	}
}

// forget takes it out, and says what it led to.
func (s *heldShard) forget() net.Conn {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.gone = true
	delete(s.in.all, s)
	return s.leads
}

func (s *heldShard) Close() error {
	s.forget()
	return s.shardConn.Close()
}

func (s *heldShard) Reset() error {
	s.forget()
	return s.shardConn.Reset()
}

// sweep ends those that may stand no longer.
func (h *heldShards) sweep() {
	h.end(func(s *heldShard) bool { return !h.may(s.other, s.opened) })
}

// close ends all, and lets none stand any more.
func (h *heldShards) close() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.end(func(*heldShard) bool { return true })
}

// end also closes what they lead to: what stands still there would hide that the
// stream is gone.
func (h *heldShards) end(ends func(*heldShard) bool) {
	h.mu.Lock()
	all := maps.Clone(h.all)
	h.mu.Unlock()
	for s := range all {
		if !ends(s) {
			continue
		}
		if to := s.forget(); to != nil {
			_ = to.Close()
		}
		_ = s.shardConn.Reset()
	}
}

// with says whether one stands to or from a peer.
func (h *heldShards) with(id peer.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.all {
		if s.other == id {
			return true
		}
	}
	return false
}
