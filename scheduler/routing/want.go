package routing

// Want is what counts of a request.
type Want struct {
	// Prefix are hashes of the prompt's leading blocks, each with all before it, from the
	// shortest to the longest. The first Shared of them are of what many requests begin
	// with, such as a system prompt and tools; of the others, each turn of a talk adds two:
	// what was answered, and what was said to that. Hashes that are the same in two
	// requests mean that these begin alike.
	Prefix []uint64
	Shared int
	// Tokens is how long the prompt is, about; 0 where nobody knows.
	Tokens int
	// Answers is how many slots the request takes at the same time; 0 counts as 1. Light
	// says that it takes none.
	Answers int
	Light   bool
}

// turn is by how many blocks a talk grows from one request to its next.
const turn = 2

// talk is the hash that all requests of a talk have in common, and few others. ok is
// false where there is none.
func (w *Want) talk() (key uint64, ok bool) {
	if len(w.Prefix) <= w.shared() {
		return 0, false
	}
	return w.Prefix[w.shared()], true
}

// begins says that nobody has answered anything in the talk yet.
func (w *Want) begins() bool { return len(w.Prefix) <= w.shared()+1 }

// on says that a replica has read what came before in the talk, but for the last turn.
func (w *Want) on(c *candidate) bool { return c.has > w.shared() && c.has >= len(w.Prefix)-turn }

func (w *Want) shared() int { return max(0, w.Shared) }

// takes is how many slots it takes.
func (w *Want) takes() int {
	if w.Light {
		return 0
	}
	return max(1, w.Answers)
}
