package gguf

// Fault is why a file is of no use.
type Fault struct{ reason, text string }

func fault(reason, text string) error { return &Fault{reason, text} }

func (f *Fault) Error() string { return f.text }

// Reason is the word for the fault, from the closed list in package scheduler.
func (f *Fault) Reason() string { return f.reason }

// What can be wrong. Test with errors.Is.
var (
	// ErrInvalid: the file is not a GGUF model, or is cut short, or lies.
	ErrInvalid = fault("file_invalid", "not a usable GGUF file")
	// ErrMissing: the file is not there or cannot be read.
	ErrMissing = fault("not_found", "the file cannot be read")
)
