//go:build linux && !amd64 && !arm64

package llama

// No filter is written for this processor.
const (
	auditArch = 0
	x32Bit    = 0
)

func refusedHere() []uint32 { return nil }
