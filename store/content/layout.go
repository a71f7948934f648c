package content

// layout is the shape of every DAG: files are cut into chunks of equal size,
// the leaves, and inner nodes have a bounded number of links, all leaves at one
// depth. Size alone thus decides how many nodes there are and what each spans,
// and nothing else is accepted from outside.
type layout struct {
	chunk int64 // bytes of a leaf; the last may be shorter
	links int   // most links of an inner node
}

// The one layout in use (boxo's profile UnixFS_v1_2025, IPIP-499), so that other
// tools compute the same CIDs. Tests use smaller ones.
const (
	chunkSize = 1 << 20
	linkCount = 1024
)

const (
	// MaxBytes is the largest content, in bytes: 4 TiB. It bounds what a root
	// from outside can make a pull plan for: 4 Mi leaves, 128 MiB of hashes.
	MaxBytes = 4 << 40
	// maxNode is the largest inner node, in bytes. 1024 links take 55 KiB.
	maxNode = 128 << 10
)

// leaves is the number of leaves of a file; an empty one has one, empty leaf.
func (l layout) leaves(bytes int64) int {
	if bytes == 0 {
		return 1
	}
	return int((bytes + l.chunk - 1) / l.chunk)
}

// leafSize is the number of bytes in leaf i.
func (l layout) leafSize(bytes int64, i int) int64 {
	return min(l.chunk, bytes-int64(i)*l.chunk)
}

// depth is how many levels of inner nodes a file has: 0 when the root is a leaf.
func (l layout) depth(bytes int64) int {
	d := 0
	for l.span(d) < bytes {
		d++
	}
	return d
}

// span is the most bytes under a node with the given number of levels below it.
// It stops at the first value above MaxBytes.
func (l layout) span(level int) int64 {
	s := l.chunk
	for range level {
		if s > MaxBytes {
			break
		}
		s *= int64(l.links)
	}
	return s
}

// children is the number of links of a node at level (1 links to leaves) that
// spans size bytes.
func (l layout) children(level int, size int64) int {
	below := l.span(level - 1)
	return int((size + below - 1) / below)
}
