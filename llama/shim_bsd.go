//go:build unix && !linux

package llama

import (
	"fmt"
	"os/exec"
	"syscall"
)

// prepareProcess sets what the engine is to inherit: no core dumps, which hold
// prompts and weights.
func prepareProcess() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("no limit on core dumps: %w", err)
	}
	return nil
}

// dieWithMe makes cmd a group of its own. That it ends with the shim, should
// that be killed, is up to relay here.
func dieWithMe(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// waitUnreaped cannot be had here: what is left of the group is killed by a
// number that was free for an instant.
func waitUnreaped(int) {}
