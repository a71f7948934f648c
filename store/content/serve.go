package content

import (
	"context"
	"errors"
	"io"

	"github.com/ipfs/go-cid"
)

// Have says which leaves of a file are here: all when whole, else those whose
// bit is set, the lowest bit of the first byte being the first leaf. Unfinished
// pulls count with what is written and verified. It fails with ErrNotFound, and
// with ErrFileChanged when no copy is as it was hashed.
func (s *Store) Have(root cid.Cid) (have []byte, whole bool, err error) {
	return nil, true, s.Check(root)
}

// OpenRange opens the bytes from to to of a file, as far as they are here without
// a gap: n is how many the reader gives. With check every leaf is hashed before
// it is read, and one that is wrong has its file noted as damaged. It fails with
// ErrNotFound when the first byte is not here, and with ErrFileChanged.
func (s *Store) OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (r io.ReadCloser, n int64, err error) {
	return nil, 0, errors.ErrUnsupported
}

// ByteRange is the bytes [From, To) of a file.
type ByteRange struct{ From, To int64 }

// PullRanges brings some bytes of one file here, and the rest of the leaves that
// they lie in; OpenRange then has them. They stay an unfinished pull, which Pull
// goes on with. It fails like Pull, and with ErrContentInvalid when a range is
// not within the file.
func (s *Store) PullRanges(ctx context.Context, o PullOptions, ranges []ByteRange) error {
	return errors.ErrUnsupported
}

// Pause stops the pull of that root if it runs; its callers get ErrPaused, and
// what is here stays. It fails with ErrNotFound when it does not run.
func (s *Store) Pause(root cid.Cid) error { return errors.ErrUnsupported }

// Touch notes that content is used now, for Content.Used.
func (s *Store) Touch(root cid.Cid) error { return errors.ErrUnsupported }
