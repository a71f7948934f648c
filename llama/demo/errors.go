package demo

// Fault is why the model could not be written.
type Fault struct{ reason, text string }

func fault(reason, text string) error { return &Fault{reason, text} }

func (f *Fault) Error() string { return f.text }

// Reason is the word for the fault, from the closed list in package scheduler.
func (f *Fault) Reason() string { return f.reason }

// ErrState: the folder for the file cannot be used.
var ErrState = fault("state_unusable", "the demo model cannot be written")
