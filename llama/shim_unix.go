//go:build unix

package llama

import (
	"os"
	"os/exec"
	"syscall"
)

// shimSignals are the signals that the shim catches. A write to a pipe that
// nobody reads would end it by SIGPIPE.
func shimSignals() []os.Signal {
	return []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE}
}

func asksToEnd(sig os.Signal) bool { return sig != syscall.SIGPIPE }

// terminateGroup asks the group that p leads to end.
func terminateGroup(p *os.Process) error { return signalGroup(p, syscall.SIGTERM) }

// waitGroup waits for cmd and kills what it leaves of its group.
func waitGroup(cmd *exec.Cmd) error {
	waitUnreaped(cmd.Process.Pid) // while it is not reaped its number is not another's
	err := killGroup(cmd.Process)
	if err2 := cmd.Wait(); err2 != nil {
		err = err2
	}
	return err
}

// exitCode is the engine's own exit code, or 128 and the number of the signal
// that ended it.
func exitCode(st *os.ProcessState) int {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return st.ExitCode()
}

// aborted says whether a process ended itself by SIGABRT.
func aborted(st *os.ProcessState) bool {
	ws, ok := st.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGABRT
}
