package tensorcache

import (
	"errors"
	"fmt"
)

// Fault is why the cache could not do what was asked.
type Fault struct{ reason, text string }

func fault(reason, text string) error { return &Fault{reason, text} }

func (f *Fault) Error() string { return f.text }

// Reason is the word for the fault, from the closed list in package scheduler.
func (f *Fault) Reason() string { return f.reason }

// What can go wrong. Test with errors.Is.
var (
	// ErrKey: a key that no tensor has.
	ErrKey = fault("invalid_request", "no such tensor can be kept")
	// ErrLength: what was to be a tensor's bytes were fewer or more.
	ErrLength = fault("file_invalid", "the tensor is not as long as it should be")
	// ErrCollision: two tensors that differ have one FNV-1a 64. rpc-server would
	// load the one that is kept for the other: a group that needs the other must
	// run without the cache.
	ErrCollision = fault("file_invalid", "another tensor has the same hash")
	// ErrInUse: a lease holds something of the cache, or it is being filled.
	ErrInUse = fault("locked", "the tensor cache is in use")
	// ErrFull: the disk is full.
	ErrFull = fault("disk_full", "the disk is full")
	// ErrFolder: the cache's folder cannot be read or written.
	ErrFolder = fault("state_unusable", "the tensor cache's folder cannot be used")
)

// trouble is an error of the disk as one of this package's.
func trouble(err error) error {
	for _, full := range fullErrnos() {
		if errors.Is(err, full) {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrFolder, err)
}
