package llama

import "fmt"

// SandboxMode says how much the sandbox matters.
type SandboxMode string

// The modes of the sandbox.
const (
	// SandboxAuto applies what this machine can do and reports it.
	SandboxAuto SandboxMode = "auto"
	// SandboxRequire fails rather than start an engine with less than all.
	SandboxRequire SandboxMode = "require"
	// SandboxOff applies none.
	SandboxOff SandboxMode = "off"
)

// ParseSandboxMode reads a setting; empty means SandboxAuto.
func ParseSandboxMode(s string) (SandboxMode, error) {
	switch m := SandboxMode(s); m {
	case "":
		return SandboxAuto, nil
	case SandboxAuto, SandboxRequire, SandboxOff:
		return m, nil
	}
	return "", fmt.Errorf("%w: sandbox %q: it is auto, require or off", ErrSpec, printable(s, 40))
}

// SandboxStatus is what a sandbox does, or could do here.
type SandboxStatus struct {
	// Files: the engine reads only its own program, libraries and model, and
	// writes only into its own folder.
	Files bool `json:"files"`
	// Network: the engine has its own listening socket and can open no other,
	// nor reach any, on this machine or elsewhere, but for those of relay in a network
	// of the engine's own.
	Network bool `json:"network"`
	// Processes: the engine can signal, slow down and look into no other process.
	Processes bool `json:"processes"`
	// Text is one sentence for people.
	Text string `json:"text"`
}

// Full says whether nothing of the sandbox is missing.
func (s SandboxStatus) Full() bool { return s.Files && s.Network && s.Processes }

// ProbeSandbox says what sandbox this machine can apply. It changes nothing.
func ProbeSandbox() SandboxStatus { return probeSandbox() }

// CheckSandbox fails where mode is SandboxRequire and this machine cannot. It
// is for asking before anything is started.
func CheckSandbox(mode SandboxMode) (SandboxStatus, error) {
	if mode == SandboxOff {
		return SandboxStatus{Text: "the sandbox is off, as it was set"}, nil
	}
	s := ProbeSandbox()
	if mode == SandboxRequire && !s.Full() {
		return s, fmt.Errorf("%w: %s; start without --sandbox require to go without", ErrSandbox, s.Text)
	}
	return s, nil
}

// A policy is what one engine may do. It crosses to the shim as JSON.
type policy struct {
	Mode SandboxMode `json:"mode"`
	// Program is the engine's own program.
	Program string `json:"program"`
	// Read are the files to read, Write the folders to write in.
	Read  []string `json:"read"`
	Write []string `json:"write"`
	// Home is the user's home: no library is looked for in it as a whole.
	Home string `json:"home,omitempty"`
	// GPU opens the devices and the parts of /proc and /sys that drivers need.
	GPU bool `json:"gpu,omitempty"`
	// ReadOnly is a folder whose files it reads and lists, and must not change even
	// where there is no sandbox.
	ReadOnly string `json:"read_only,omitempty"`
	// Port is the one TCP port to listen on; 0 where the engine has a socket. Connect
	// are the ones to connect to, which count only with Port.
	Port    int   `json:"port,omitempty"`
	Connect []int `json:"connect,omitempty"`
	// Guarded: the engine has a network of its own.
	Guarded bool `json:"guarded,omitempty"`
}
