package sim

import "strings"

// A writer is what an answer follows from: the chain of the ids so far and, byte
// by byte, the mark of several bytes that they end in the middle of.
type writer struct {
	chain
	bytewise bool
	begun    string
}

// spelt are the marks that Options.Bytewise takes apart.
var spelt = marks[len(marks)-3:]

// writer is one that goes on behind ids.
func (s *Server) writer(seed uint64, ids []int) writer {
	w := writer{chain: newChain(seed), bytewise: s.opt.Bytewise}
	for _, id := range ids {
		w = w.add(id)
	}
	return w
}

func (w writer) add(id int) writer {
	w.chain = w.chain.add(id)
	switch {
	case !w.bytewise:
	case id < firstByte || id >= firstWord:
		w.begun = ""
	case len(goOn(w.begun)) == 0:
		w.begun = Piece(id) // what was begun is complete, or no mark
	default:
		w.begun += Piece(id)
	}
	return w
}

// next is the token that follows. Byte by byte, every fourth is the start of a
// mark, and what is begun of one goes on.
func (w writer) next(ignoreEOS bool) int {
	if !w.bytewise {
		return w.chain.next(ignoreEOS)
	}
	h := w.mix()
	ways := goOn(w.begun)
	if len(ways) == 0 || w.begun == "" && h%4 > 0 {
		return w.chain.next(ignoreEOS)
	}
	return firstByte + int(ways[h/4%uint64(len(ways))])
}

// goOn are the bytes that may come behind the beginning of a mark: none where
// it is none.
func goOn(begun string) []byte {
	var next []byte
	for _, s := range spelt {
		if len(s) > len(begun) && strings.HasPrefix(s, begun) {
			next = append(next, s[len(begun)])
		}
	}
	return next
}
