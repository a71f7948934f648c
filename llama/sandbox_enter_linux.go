package llama

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// startConfined starts an engine in its sandbox. It returns what to tell, and no
// command where there is no engine.
//
// Only the process that is the engine later can be given its own part of /proc
// and a filter that knows its process id. So this program is started once more,
// with an order of the same form on its stdin: it enters the sandbox and becomes
// the engine. What it reports on its stdout ends where the engine begins.
func startConfined(o order) (*exec.Cmd, event) {
	if o.Policy.GPU && !o.Policy.Guarded { // where that can do nothing
		wakeNVIDIA("/dev", os.Stderr)
	}
	cmd := exec.Command("/proc/self/exe") // this very program, also when another version lies in its place by now
	cmd.Args = os.Args
	cmd.Env, cmd.Dir, cmd.Stderr = o.Env, o.Dir, os.Stderr
	dieWithMe(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, event{Failed: err.Error()}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, event{Failed: errors.Join(err, in.Close()).Error()}
	}
	if err := cmd.Start(); err != nil { // which closes both
		return nil, event{Failed: err.Error()}
	}
	o.Enter = true
	err = errors.Join(json.NewEncoder(in).Encode(o), in.Close())
	told := event{Failed: "nothing was heard from the process that was to become it"}
	for events := json.NewDecoder(io.LimitReader(out, maxOrder)); err == nil; {
		var e event
		if err := events.Decode(&e); err != nil {
			break // it is the engine now, or gone
		}
		told = e
	}
	if err != nil {
		told = event{Failed: err.Error()}
	}
	if told.Failed != "" {
		_ = killGroup(cmd.Process) // it is ending anyway
		_ = cmd.Wait()             // why is told
		return nil, told
	}
	told.Started = cmd.Process.Pid
	return cmd, told
}

// becomeEngine enters the sandbox and becomes the engine: it returns only where
// that fails.
func becomeEngine(o order) int {
	events, err := detachStreams()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine-shim:", err)
		return 125
	}
	report := json.NewEncoder(events)
	fail := func(e event) int {
		_ = report.Encode(e) // the shim may be gone
		return 125
	}
	p := o.Policy
	status, err := confineThread(p)
	if err != nil {
		status.Text += "; " + err.Error()
	}
	if p.Mode == SandboxRequire && (err != nil || !status.Files || (p.Port == 0 || p.Guarded) && !status.Full()) {
		return fail(event{Failed: status.Text, NoSandbox: true})
	}
	readOnly := p.ReadOnly != "" && onlyReads(p.ReadOnly)
	if readOnly {
		o.Args = append(o.Args, o.IfReadOnly...)
	}
	if err := report.Encode(event{Sandbox: status, ReadOnly: readOnly}); err != nil {
		return 125 // the shim is gone
	}
	err = unix.Exec(p.Program, append([]string{p.Program}, o.Args...), os.Environ())
	return fail(event{Failed: (&fs.PathError{Op: "exec", Path: p.Program, Err: err}).Error()})
}

// detachStreams leaves the process the streams of an engine: nothing to read,
// and one place to write to. It returns what was the stdout, which the engine
// does not inherit.
func detachStreams() (*os.File, error) {
	events, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	if err := errors.Join(unix.Dup3(null, 0, 0), unix.Dup3(2, 1, 0)); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(events), "events"), nil
}

// onlyReads says whether this thread can list a folder and neither make a file in it
// nor open for writing one that is there. It tries.
func onlyReads(dir string) bool {
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	const name = ".relay-try"
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = errors.Join(unix.Close(fd), unix.Unlink(path))
		return false
	}
	if !refuses(err) {
		return false
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		fd, err := unix.Open(filepath.Join(dir, f.Name()), unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return refuses(err)
	}
	return true
}

// refuses says whether an error means that a file may not be written to, and not
// that this once it could not.
func refuses(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}
