package llama

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

func shimSignals() []os.Signal { return []os.Signal{os.Interrupt} }

func asksToEnd(os.Signal) bool { return true }

// terminateGroup cannot be had here: the engine has no console to ask it by.
func terminateGroup(p *os.Process) error {
	return fmt.Errorf("process %d cannot be asked to end", p.Pid)
}

func waitGroup(cmd *exec.Cmd) error { return cmd.Wait() }

// aborted says whether a process ended itself by abort, which is this code here.
func aborted(st *os.ProcessState) bool { return st.ExitCode() == 3 }

func exitCode(st *os.ProcessState) int { return st.ExitCode() }

func dieWithMe(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true} }

// prepareProcess puts the shim, and so all that it starts, into a job object
// that the system ends when the shim's handle of it is closed: with the shim.
func prepareProcess() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("no job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return fmt.Errorf("the job object: %w", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return fmt.Errorf("the job object: %w", err)
	}
	return nil // the handle stays open as long as the process lives
}
