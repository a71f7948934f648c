package llama

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepareProcess sets what the engine is to inherit: no core dumps, which hold
// prompts and weights, and to be ended before relay where memory runs out.
func prepareProcess() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("no limit on core dumps: %w", err)
	}
	// Some containers do not have the file; then the kernel chooses by itself.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0o644)
	return nil
}

// dieWithMe makes cmd a group of its own that the kernel kills when the calling
// thread ends.
func dieWithMe(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitUnreaped waits until a child has ended, without taking its status.
func waitUnreaped(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
