//go:build !linux

package llama

import (
	"os/exec"
	"runtime"
)

func probeSandbox() SandboxStatus {
	return SandboxStatus{Text: "there is no sandbox for engines on " + runtime.GOOS + " yet"}
}

// startConfined starts an engine without a sandbox, where none is required.
func startConfined(o order) (*exec.Cmd, event) {
	status := probeSandbox()
	if o.Policy.Mode == SandboxRequire {
		return nil, event{Failed: status.Text, NoSandbox: true}
	}
	return startFree(o, status)
}

// becomeEngine is never asked for here.
func becomeEngine(order) int { return 2 }
