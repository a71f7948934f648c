package sim

import (
	"context"
	"slices"
)

// A slot computes one answer at a time, and keeps the ids that it read and wrote
// last: what the next prompt has of them at its start need not be read again.
type slot struct {
	n   int
	ids []int
}

// similar is how much of a prompt a slot must have for that to count, as
// llama-server has it when nothing else is asked for.
const similar = 0.1

// takeSlot waits for a free slot, in the order of asking. It gives the one that
// has most of ids at its start or, where none has a tenth, the one that has been
// free longest.
func (s *Server) takeSlot(ctx context.Context, ids []int) (*slot, error) {
	s.count(func(st *State) { st.Waiting++ })
	select {
	case <-s.tickets:
	case <-ctx.Done():
		s.count(func(st *State) { st.Waiting-- })
		return nil, ctx.Err()
	}
	var took *slot
	s.count(func(st *State) {
		st.Waiting--
		st.Active++
		at, most := 0, int(similar*float64(len(ids)))
		for i, o := range s.free {
			if n := common(o.ids, ids); n > most {
				at, most = i, n
			}
		}
		took = s.free[at]
		s.free = slices.Delete(s.free, at, at+1)
	})
	return took, nil
}

func (s *Server) giveSlot(o *slot) {
	s.count(func(st *State) {
		st.Active--
		s.free = append(s.free, o)
	})
	s.tickets <- struct{}{}
}

// cached is how many of ids a slot need not read; the last one it must.
func (o *slot) cached(ids []int) int { return min(common(o.ids, ids), max(len(ids)-1, 0)) }

// keep takes the place of what the slot kept before.
func (o *slot) keep(read []int, pieces []piece) {
	o.ids = slices.Clone(read)
	for i := range max(len(pieces)-1, 0) { // the last one it has not read
		o.ids = append(o.ids, pieces[i].id)
	}
}

// common is the length of what both begin with.
func common(a, b []int) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
