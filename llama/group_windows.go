package llama

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup keeps a console's Ctrl-C from cmd.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= syscall.CREATE_NEW_PROCESS_GROUP
}

// killGroup kills p; what p started is in a job object that ends with it.
func killGroup(p *os.Process) error { return p.Kill() }
