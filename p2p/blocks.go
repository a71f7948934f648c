package p2p

import (
	"context"
	"errors"
	"io"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Files is what this machine has of files, for other members.
type Files interface {
	// Have says which leaves of a file are here: all when whole, else those whose
	// bit is set, the lowest bit of the first byte being the first leaf. An error
	// means that nothing of it can be had.
	Have(root cid.Cid) (have []byte, whole bool, err error)
	// OpenRange opens the bytes [from, to) of a file as far as they are here
	// without a gap; n is how many the reader gives. With check every leaf is
	// hashed before it is read.
	OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (r io.ReadCloser, n int64, err error)
}

// MaxRange is the most that is asked for at a time, in bytes.
const MaxRange = 64 << 20

// Have asks a member which leaves of a file it has; see Files.
func (n *Node) Have(ctx context.Context, id peer.ID, root cid.Cid) (have []byte, whole bool, err error) {
	return nil, false, errors.ErrUnsupported
}

// Range asks a member for the bytes [from, to) of a file, MaxRange at most. The
// reader ends early where the member has no more of them. With check the member
// hashes every leaf before it sends it.
func (n *Node) Range(ctx context.Context, id peer.ID, root cid.Cid, from, to int64, check bool) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}
