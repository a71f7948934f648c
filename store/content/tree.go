package content

import "crypto/sha256"

// buildTree makes the inner nodes over the leaves of a file of the given size,
// from the bottom up, hands each to emit, and returns the root.
func (l layout) buildTree(bytes int64, leaves []digest, emit func(digest, []byte) error) (link, error) {
	level := make([]link, len(leaves))
	for i, d := range leaves {
		size := l.leafSize(bytes, i)
		level[i] = link{digest: d, leaf: true, size: size, total: size}
	}
	for len(level) > 1 {
		above := level[:0] // written behind where it is read
		for at := 0; at < len(level); at += l.links {
			children := level[at:min(at+l.links, len(level))]
			block := encodeNode(children)
			node := link{digest: sha256.Sum256(block), total: int64(len(block))}
			for _, c := range children {
				node.size += c.size
				node.total += c.total
			}
			if err := emit(node.digest, block); err != nil {
				return link{}, err
			}
			above = append(above, node)
		}
		level = above
	}
	return level[0], nil
}

// nodeAt is a node that a file must have, by its place in the layout.
type nodeAt struct {
	link
	first int // index of the first leaf under it
	level int // levels of nodes below it; 1 links to leaves
}

// checkNode decodes the block of an inner node and holds it against its place:
// how many links it must have, what each spans, and what its parent said. A
// total of 0 in the place means that nobody said.
func (l layout) checkNode(at nodeAt, block []byte) ([]nodeAt, error) {
	links, err := decodeNode(block, l.links)
	if err != nil {
		return nil, err
	}
	if len(links) != l.children(at.level, at.size) {
		return nil, errNode
	}
	below := l.span(at.level - 1)
	left, total, first := at.size, int64(len(block)), at.first
	children := make([]nodeAt, len(links))
	for i, c := range links {
		if c.leaf != (at.level == 1) || c.size != min(below, left) || (c.leaf && c.total != c.size) {
			return nil, errNode
		}
		children[i] = nodeAt{link: c, first: first, level: at.level - 1}
		first += l.leaves(c.size)
		left -= c.size
		total += c.total
	}
	if at.total != 0 && at.total != total {
		return nil, errNode
	}
	return children, nil
}
