package llama

import "fmt"

// Fault is why the engine could not do what was asked. Its text says what
// happened; what is wrapped around it says to which file or model.
type Fault struct {
	reason string
	text   string
}

func fault(reason, text string) error { return &Fault{reason, text} }

func (f *Fault) Error() string { return f.text }

// Reason is the word for the fault, from the closed list in package scheduler.
func (f *Fault) Reason() string { return f.reason }

// What can go wrong with an engine. Test with errors.Is.
var (
	// ErrNoEngine: this machine has no usable llama.cpp.
	ErrNoEngine = fault("no_engine", "no usable llama.cpp engine")
	// ErrEngine: the engine did not start, died, or does not answer.
	ErrEngine = fault("engine_failed", "the engine failed")
	// ErrAborted: the engine ended itself by SIGABRT; it is an ErrEngine as well. That
	// is what one with Remotes does whenever it loses one: not the model's fault.
	ErrAborted = fmt.Errorf("%w: it aborted", ErrEngine)
	// ErrTimeout: the engine was not ready in its time.
	ErrTimeout = fault("timeout", "the engine was not ready in time")
	// ErrFile: a file of the model is gone, or is no file.
	ErrFile = fault("file_changed", "the model's file cannot be read")
	// ErrSpec: what the engine was asked to start makes no sense.
	ErrSpec = fault("invalid_request", "the engine was asked for something it cannot do")
	// ErrArgument: an engine argument that a model record may not carry.
	ErrArgument = fault("invalid_request", "engine argument not allowed")
	// ErrVariable: a variable for the engine that a model record may not carry.
	ErrVariable = fault("invalid_request", "engine variable not allowed")
	// ErrSandbox: the sandbox that is required cannot be had here.
	ErrSandbox = fault("engine_failed", "the engine cannot be sandboxed here")
	// ErrState: the folder for sockets and logs cannot be used.
	ErrState = fault("state_unusable", "the engine's run folder cannot be used")
)
