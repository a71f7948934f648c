package store

import "errors"

// problem is an error with its reason from the closed list of relay's reasons.
type problem struct{ reason, text string }

func (p *problem) Error() string  { return p.text }
func (p *problem) Reason() string { return p.reason }

func fault(reason, text string) error { return &problem{reason, text} }

// What this package can refuse. Errors returned wrap one of these with the
// folder or file at hand and with what to do.
var (
	// ErrLocked: another process uses the folder.
	ErrLocked = fault("locked", "in use by another relay")
	// ErrUnusable: a folder or file cannot be created, read or written.
	ErrUnusable = fault("state_unusable", "the state folder cannot be used")
	// ErrDiskFull: there is not room enough on the disk.
	ErrDiskFull = fault("disk_full", "the disk is full")
	// ErrNotFound: the secret asked for does not exist.
	ErrNotFound = fault("not_found", "not found")
	// ErrClosed: the database was closed.
	ErrClosed = fault("internal", "the database is closed")
	// ErrTooBig: more in one Apply than one transaction holds.
	ErrTooBig = fault("internal", "too much for one transaction")
)

// IsDiskFull says whether err comes from a disk, or a quota on it, that has no
// room left: ErrDiskFull itself or the operating system's error.
func IsDiskFull(err error) bool {
	if errors.Is(err, ErrDiskFull) {
		return true
	}
	for _, full := range diskFullErrnos() {
		if errors.Is(err, full) {
			return true
		}
	}
	return false
}
