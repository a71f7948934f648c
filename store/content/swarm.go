package content

import (
	"context"
	"io"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Swarm is where a pull gets what is missing. Nothing that comes out of it is
// believed before it is hashed.
type Swarm interface {
	// BlockGetter gets single blocks: inner nodes, and leaves that no holder sends
	// in a range.
	BlockGetter
	// Holders are those that may have the content now, wholly or in part. It is
	// asked again every few seconds while a pull runs, and must not block.
	Holders() []Holder
}

// BlockGetter gets single blocks; boxo's exchange.Fetcher is one.
type BlockGetter interface {
	GetBlock(context.Context, cid.Cid) (blocks.Block, error)
	// GetBlocks sends the blocks as they come, in any order, and closes the
	// channel when there will be no more. It stops when the context ends.
	GetBlocks(context.Context, []cid.Cid) (<-chan blocks.Block, error)
}

// Holder is one that has files, wholly or in part, and sends long ranges of them.
type Holder interface {
	// ID tells holders apart, Name is for people.
	ID() string
	Name() string
	// Have says which leaves of a file the holder has now: all of them when whole,
	// else those whose bit is set in have, the lowest bit of the first byte being
	// the first leaf.
	Have(ctx context.Context, root cid.Cid) (have []byte, whole bool, err error)
	// Range opens the bytes [from, to) of a file. The reader ends early where the
	// holder has no more of them. With check the holder hashes every leaf before it
	// sends it. Ending ctx makes reads fail at once.
	Range(ctx context.Context, root cid.Cid, from, to int64, check bool) (io.ReadCloser, error)
}
