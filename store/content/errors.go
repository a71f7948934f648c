package content

import (
	"fmt"

	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// problem is an error with its reason from the closed list of relay's reasons.
type problem struct{ reason, text string }

func (p *problem) Error() string  { return p.text }
func (p *problem) Reason() string { return p.reason }

func fault(reason, text string) error { return &problem{reason, text} }

// What this package can refuse. Errors returned wrap one of these, or
// store.ErrDiskFull, with the file at hand and with what to do.
var (
	// ErrNotFound: the content is not on this machine.
	ErrNotFound = fault("not_found", "not on this machine")
	// ErrFileChanged: a registered file changed, moved or vanished, or one
	// changed while it was read.
	ErrFileChanged = fault("file_changed", "the file is no longer what was added")
	// ErrFileInvalid: a path that names no readable regular file, a file too
	// large, or several that make no set.
	ErrFileInvalid = fault("file_invalid", "cannot be added")
	// ErrContentInvalid: a root, an inner node, a size or a block from another
	// peer is not what it claims to be.
	ErrContentInvalid = fault("file_invalid", "the content is not laid out as it claims")
	// ErrNoBlocks: the peers that were asked did not send what is missing.
	ErrNoBlocks = fault("no_holder", "no peer sent what is missing")
	// ErrRemoved: the unfinished pull was removed while it ran.
	ErrRemoved = fault("not_found", "the unfinished pull was removed")
	// ErrPaused: the pull was paused while it ran.
	ErrPaused = fault("paused", "the pull is paused and keeps what is here")
	// ErrUnusable: the folder of pulled models cannot be read or written.
	ErrUnusable = fault("state_unusable", "the models folder cannot be used")
	// ErrNoPlace: a block was put that belongs to no file and is no inner node.
	ErrNoPlace = fault("internal", "the block belongs to no file here")
	// ErrInUse: a block was to be deleted that belongs to registered content.
	ErrInUse = fault("internal", "the block belongs to a registered file")
)

// absentError says that a block has places but none can be read any more. To
// boxo it is a block that is not here; to people it names the file.
type absentError struct {
	cid   cid.Cid
	cause error
}

func (e *absentError) Error() string { return fmt.Sprintf("block %s: %v", e.cid, e.cause) }
func (e *absentError) Unwrap() error { return e.cause }
func (e *absentError) Is(target error) bool {
	_, ok := target.(ipld.ErrNotFound)
	return ok
}
