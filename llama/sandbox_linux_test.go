package llama

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A process in the sandbox tries each thing that it must not be able to do.
func TestSandbox(t *testing.T) {
	if s := ProbeSandbox(); !s.Full() {
		t.Skipf("this kernel cannot: %s", s.Text)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(parts ...string) string {
		p := filepath.Join(append([]string{dir}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write := func(p string) string {
		if err := os.WriteFile(p, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	f := forbidden{
		Secret: write(path("home", "identity.key")), Model: write(path("models", "m.gguf")), Notes: write(path("notes", "n")),
		Run: path("run"), Box: path("run", "box", "x"), Control: path("home", "c.sock"), Abstract: fmt.Sprintf("@relay-test-%d", os.Getpid()),
		Datagrams: path("home", "d.sock"), TCP: tcp.Addr().String(), Relay: os.Getpid(), Tensors: path("tensors"),
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	f.Remote = server.Addr().(*net.TCPAddr).Port
	if f.Port, err = freePort(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.Tensors, 0o700); err != nil {
		t.Fatal(err)
	}
	write(path("tensors", "0123456789abcdef"))
	datagrams, err := net.ListenPacket("unixgram", f.Datagrams)
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	f.Box = filepath.Dir(f.Box)
	for _, address := range []string{f.Control, f.Abstract} {
		l, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	results := func(mode SandboxMode, gpu bool) map[string]string {
		// A folder keeps its rights behind a file.
		return inShim(t, f, policy{Mode: mode, Program: self, Read: []string{f.Model}, Write: []string{f.Notes, f.Box}, GPU: gpu})
	}
	before, err := os.ReadFile(f.Model)
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range []bool{false, true} {
		t.Run(fmt.Sprintf("gpu=%v", gpu), func(t *testing.T) {
			got := results(SandboxRequire, gpu)
			if len(got) < 90 {
				t.Errorf("only %d things were tried", len(got))
			}
			checkRefused(t, got, gpu)
		})
	}
	if after, err := os.ReadFile(f.Model); err != nil || string(after) != string(before) {
		t.Errorf("the model was changed: %q %v", after, err)
	}
	// With a port instead of a socket it reaches the ports that it may, and nothing
	// that has a path.
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("on a port, guarded=%v", guarded), func(t *testing.T) {
			p := policy{
				Mode: SandboxRequire, Program: self, Read: []string{f.Model}, Write: []string{f.Notes, f.Box}, ReadOnly: f.Tensors,
				Port: f.Port, Connect: []int{f.Remote}, Guarded: guarded,
			}
			got := inShim(t, f, p)
			for name, may := range map[string]bool{
				"ok: listen on its socket": false, "ok: remove its socket": false, "open a TCP socket": true, "port: listen on its port": true, "port: connect to its server": true,
			} {
				if result := got[name]; (result == "done") != may {
					t.Errorf("%s: %s", name, result)
				}
				delete(got, name)
			}
			if result := got["connect a pair to relay's control socket"]; !strings.Contains(result, "already connected") {
				t.Errorf("a pair's socket: %s", result)
			}
			delete(got, "connect a pair to relay's control socket")
			checkRefused(t, got, false)
		})
	}
	// The filter refuses what reaches other processes also where Landlock does not.
	filtered := f
	filtered.Filtered = true
	got := inShim(t, filtered, policy{Mode: SandboxOff, Program: self})
	if len(got) < 30 {
		t.Errorf("only %d things were tried behind the filter alone", len(got))
	}
	checkRefused(t, got, false)
	// The same without a sandbox: the test would notice.
	open := results(SandboxOff, false)
	t.Cleanup(func() {
		for _, dir := range []string{"/tmp", "/dev/shm"} {
			left, err := filepath.Glob(filepath.Join(dir, "relay-sandbox-test-*"))
			for _, p := range left {
				err = errors.Join(err, os.Remove(p))
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	for _, name := range []string{"read a secret", "connect to a port", "connect to relay's control socket", "connect to an abstract socket",
		"run a shell", "run what it wrote", "open a UDP socket", "write beside a secret", "list a folder", "truncate the model",
		"send a datagram by a pair", "signal relay", "signal relay by its thread", "signal relay by its group and thread", "queue a signal for relay",
		"queue a signal for relay's thread", "signal relay by a descriptor", "have relay told of a socket", "have relay told of a socket by ioctl",
		"limit relay", "take turns from relay", "schedule relay", "take turns on disks from relay", "share memory", "share a semaphore", "share a queue",
		"start a process", "outlive its shim", "join relay's group", "read relay's command line", "read relay's status", "list all processes", "list relay's files", "list the kernel's own files"} {
		if open[name] != "done" {
			t.Errorf("without a sandbox, %s: %s", name, open[name])
		}
	}
	for _, name := range []string{"have a capability", "have a capability in its bounding set", "put itself before others"} {
		if os.Geteuid() == 0 && open[name] != "done" {
			t.Errorf("root, without a sandbox, %s: %s", name, open[name])
		}
	}
	if name := "choose relay's processors"; runtime.NumCPU() > 1 && open[name] != "done" {
		t.Errorf("without a sandbox, %s: %s", name, open[name])
	}
	if open["dump core"] != "none" {
		t.Errorf("without a sandbox it can dump core: %s", open["dump core"])
	}
}

// checkRefused checks that what an engine needs was done, and all else refused.
func checkRefused(t *testing.T, got map[string]string, gpu bool) {
	t.Helper()
	for name, result := range got {
		needed := strings.HasPrefix(name, "ok: ") || gpu && strings.HasPrefix(name, "gpu: ")
		if needed != (result == "done") {
			t.Errorf("%s: %s", name, result)
		} else if !needed && !strings.Contains(result, "permi") && !strings.Contains(result, "not implemented") &&
			name != "dump core" && name != "link a secret" /* EXDEV is how Landlock says it */ {
			t.Errorf("%s: not refused, but failed: %s", name, result)
		} else if testing.Verbose() {
			t.Logf("%s: %s", name, result)
		}
	}
}

// inShim is what comes of all that tryForbidden tries, started by the shim.
func inShim(t *testing.T, f forbidden, p policy) map[string]string {
	t.Helper()
	task, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(order{Args: []string{"--forbidden", string(task)}, Env: engineEnv(os.Environ(), f.Box, f.Box), Dir: f.Box, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(p.Program, "engine-shim")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var events, out strings.Builder
	cmd.Stdout, cmd.Stderr = &events, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s %s", err, events.String(), out.String())
	}
	got := map[string]string{}
	_, results, _ := strings.Cut(out.String(), "{") // behind what the shim wrote to the log
	if err := json.Unmarshal([]byte("{"+results), &got); err != nil {
		t.Fatalf("%v: %s %s", err, events.String(), out.String())
	}
	return got
}

// Root reads another user's model by a capability: that one stays, for this.
func TestSandboxAnotherUsersModel(t *testing.T) {
	if s := ProbeSandbox(); !s.Full() || os.Geteuid() != 0 {
		t.Skipf("only for root in a sandbox: %s", s.Text)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := forbidden{
		Model: filepath.Join(dir, "theirs", "m.gguf"), Secret: filepath.Join(dir, "theirs", "secret"), Box: filepath.Join(dir, "box"),
		Spared: 1 << unix.CAP_DAC_READ_SEARCH, Relay: os.Getpid(),
	}
	const them = 12345
	err = errors.Join(os.Mkdir(f.Box, 0o700), os.Mkdir(filepath.Dir(f.Model), 0o700), os.WriteFile(f.Model, nil, 0o600), os.WriteFile(f.Secret, nil, 0o600),
		os.Chown(f.Model, them, them), os.Chown(f.Secret, them, them), os.Chown(filepath.Dir(f.Model), them, them))
	if err != nil {
		t.Fatal(err)
	}
	got := inShim(t, f, policy{Mode: SandboxRequire, Program: self, Read: []string{f.Model}, Write: []string{f.Box}})
	if got["ok: read the model"] != "done" {
		t.Errorf("it cannot read its model: %s", got["ok: read the model"])
	}
	for _, name := range []string{"have a capability", "have a capability in its bounding set", "read a secret", "write the model"} {
		if !strings.Contains(got[name], "permi") {
			t.Errorf("%s: %s", name, got[name])
		}
	}
}

// filterVM runs a filter's program.
func filterVM(t *testing.T, pid uint32, tcp bool) *bpf.VM {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, f := range syscallFilter(pid, tcp) {
		raw = append(raw, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K})
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("not a program")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// The filter for engines with ports: TCP, and nothing that has a path.
func TestSyscallFilterTCP(t *testing.T) {
	vm := filterVM(t, 4711, true)
	refused := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	for _, c := range []struct {
		name           string
		nr, a, b, c, d uint32
		want           uint32
	}{
		{"tcp", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"tcp by name, flags", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.IPPROTO_TCP, 0, unix.SECCOMP_RET_ALLOW},
		{"mptcp", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, 0, refused(unix.EACCES)},
		{"udp", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0, 0, refused(unix.EACCES)},
		{"inet6", unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM, 0, 0, refused(unix.EACCES)},
		{"unix stream", unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0, 0, refused(unix.EACCES)},
		{"unix pair", unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"unix datagram pair", unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM, 0, 0, refused(unix.EACCES)},
		{"send", unix.SYS_SENDTO, 3, 0, 1, unix.MSG_NOSIGNAL, unix.SECCOMP_RET_ALLOW},
		{"send to whom it is not connected to", unix.SYS_SENDTO, 3, 0, 1, unix.MSG_NOSIGNAL | unix.MSG_FASTOPEN, refused(unix.EPERM)},
		{"send a message", unix.SYS_SENDMSG, 3, 0, unix.MSG_NOSIGNAL, unix.MSG_FASTOPEN, unix.SECCOMP_RET_ALLOW},
		{"send a message to whom it is not connected to", unix.SYS_SENDMSG, 3, 0, unix.MSG_FASTOPEN, 0, refused(unix.EPERM)},
		{"send messages to whom it is not connected to", unix.SYS_SENDMMSG, 3, 0, 1, unix.MSG_FASTOPEN, refused(unix.EPERM)},
		{"connect later", unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 0, refused(unix.EPERM)},
		{"send small packets", unix.SYS_SETSOCKOPT, 3, unix.IPPROTO_TCP, unix.TCP_NODELAY, 0, unix.SECCOMP_RET_ALLOW},
		{"an option of sockets by the same number", unix.SYS_SETSOCKOPT, 3, unix.SOL_SOCKET, unix.TCP_FASTOPEN_CONNECT, 0, unix.SECCOMP_RET_ALLOW},
		{"connect", unix.SYS_CONNECT, 0, 0, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"setns", unix.SYS_SETNS, 0, 0, 0, 0, refused(unix.EPERM)},
		{"another's thread", unix.SYS_TGKILL, 4712, 4712, 0, 0, refused(unix.EPERM)},
	} {
		data := make([]byte, 64)
		for offset, v := range map[int]uint32{0: c.nr, 4: auditArch, 16: c.a, 24: c.b, 32: c.c, 40: c.d} {
			binary.BigEndian.PutUint32(data[offset:], v) // as this VM reads it
		}
		if got, err := vm.Run(data); err != nil || uint32(got) != c.want {
			t.Errorf("%s: %#x %v, not %#x", c.name, got, err, c.want)
		}
	}
}

// The filter's program, run by hand: also for calls that a Go program cannot make.
func TestSyscallFilter(t *testing.T) {
	const self = 4711
	vm := filterVM(t, self, false)
	const otherArch = unix.AUDIT_ARCH_I386
	refused := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	for _, c := range []struct {
		name           string
		arch, nr, a, b uint32
		want           uint32
	}{
		{"read", auditArch, unix.SYS_READ, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"execve", auditArch, unix.SYS_EXECVE, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"futex", auditArch, unix.SYS_FUTEX, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"unix stream", auditArch, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, unix.SECCOMP_RET_ALLOW},
		{"unix stream, flags", auditArch, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.SECCOMP_RET_ALLOW},
		{"unix datagram", auditArch, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM, refused(unix.EACCES)},
		{"unix datagram pair", auditArch, unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM, refused(unix.EACCES)},
		{"inet", auditArch, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, refused(unix.EACCES)},
		{"inet6", auditArch, unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM, refused(unix.EACCES)},
		{"bind", auditArch, unix.SYS_BIND, 0, 0, unix.SECCOMP_RET_ALLOW},
		{"connect", auditArch, unix.SYS_CONNECT, 0, 0, refused(unix.EPERM)},
		{"kill itself", auditArch, unix.SYS_KILL, self, 9, unix.SECCOMP_RET_ALLOW},
		{"kill its group", auditArch, unix.SYS_KILL, 0, 9, refused(unix.EPERM)},
		{"abort", auditArch, unix.SYS_TGKILL, self, 4712, unix.SECCOMP_RET_ALLOW},
		{"another's thread", auditArch, unix.SYS_TGKILL, 4712, 4712, refused(unix.EPERM)},
		{"a file's owner", auditArch, unix.SYS_FCNTL, 3, unix.F_SETOWN, refused(unix.EPERM)},
		{"a file's flags", auditArch, unix.SYS_FCNTL, 3, unix.F_SETFL, unix.SECCOMP_RET_ALLOW},
		{"a device", auditArch, unix.SYS_IOCTL, 3, 0xc020462a, unix.SECCOMP_RET_ALLOW},
		{"a socket's owner", auditArch, unix.SYS_IOCTL, 3, sioSetOwn, refused(unix.EPERM)},
		{"a thread", auditArch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND, 0, unix.SECCOMP_RET_ALLOW},
		{"a process", auditArch, unix.SYS_CLONE, uint32(unix.SIGCHLD), 0, refused(unix.EPERM)},
		{"a process in its memory", auditArch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_VFORK, 0, refused(unix.EPERM)},
		{"a network of its own", auditArch, unix.SYS_CLONE, unix.CLONE_NEWNET | unix.CLONE_VM, 0, refused(unix.EPERM)},
		{"a thread, newer", auditArch, unix.SYS_CLONE3, 0, 0, refused(unix.ENOSYS)},
		{"a session of its own", auditArch, unix.SYS_SETSID, 0, 0, refused(unix.EPERM)},
		{"a group of its own", auditArch, unix.SYS_SETPGID, 0, 0, refused(unix.EPERM)},
		{"to live on", auditArch, unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0, refused(unix.EPERM)},
		{"a thread's name", auditArch, unix.SYS_PRCTL, unix.PR_SET_NAME, 0, unix.SECCOMP_RET_ALLOW},
		{"its processors", auditArch, unix.SYS_SCHED_SETAFFINITY, 0, 8, unix.SECCOMP_RET_ALLOW},
		{"another's processors", auditArch, unix.SYS_SCHED_SETAFFINITY, 1, 8, refused(0)},
		{"its group's turns", auditArch, unix.SYS_SETPRIORITY, unix.PRIO_PGRP, 0, refused(unix.EPERM)},
		{"its limits", auditArch, unix.SYS_PRLIMIT64, self, 7, unix.SECCOMP_RET_ALLOW},
		{"another's limits", auditArch, unix.SYS_PRLIMIT64, 1, 7, refused(unix.EPERM)},
		{"ptrace", auditArch, unix.SYS_PTRACE, 0, 0, refused(unix.EPERM)},
		{"io_uring", auditArch, unix.SYS_IO_URING_SETUP, 0, 0, refused(unix.ENOSYS)},
		{"the last refused", auditArch, refusedCalls()[len(refusedCalls())-1], 0, 0, refused(unix.EPERM)},
		{"32 bits", otherArch, 102 /* socketcall */, 1, 0, unix.SECCOMP_RET_KILL_PROCESS},
		{"32 bits, read", otherArch, 3, 0, 0, unix.SECCOMP_RET_KILL_PROCESS},
	} {
		data := make([]byte, 64)
		for offset, v := range map[int]uint32{0: c.nr, 4: c.arch, 16: c.a, 24: c.b} {
			binary.BigEndian.PutUint32(data[offset:], v) // as this VM reads it
		}
		if got, err := vm.Run(data); err != nil || uint32(got) != c.want {
			t.Errorf("%s: %#x %v, not %#x", c.name, got, err, c.want)
		}
		if x32Bit != 0 && c.arch == auditArch {
			binary.BigEndian.PutUint32(data[0:], c.nr|x32Bit)
			if got, err := vm.Run(data); err != nil || uint32(got) != refused(unix.ENOSYS) {
				t.Errorf("%s by the x32 table: %#x %v", c.name, got, err)
			}
		}
	}
}

func TestDescribeSandbox(t *testing.T) {
	for _, c := range []struct {
		abi                       int
		seccomp                   bool
		port                      int
		files, network, processes bool
		text, without             string
	}{
		{7, true, 0, true, true, true, "Landlock 7, seccomp", "but"},
		{5, true, 0, true, true, true, "reach no other program (Landlock 5, seccomp)", "but"},
		{7, false, 0, true, false, false, "can open connections and slow down", "signal"},
		{5, false, 0, true, false, false, "can open connections and signal and slow down", "none"},
		{7, false, 1234, true, false, false, "one port, but can slow down", "signal"},
		{5, false, 1234, true, false, false, "one port, but can signal and slow down", "none"},
		{2, true, 0, false, true, true, "Landlock 2, 3 is needed", "none"},
		{0, true, 0, false, true, false, "no Landlock", "none"},
		{0, false, 0, false, false, false, "this user's rights", "none"},
		{2, false, 0, false, false, false, "this user's rights", "none"},
		{7, true, 1234, true, false, true, "by their ports (Landlock 7, seccomp), and can listen on more", "but can"},
	} {
		s := describeSandbox(c.abi, c.seccomp, policy{Port: c.port})
		if s.Files != c.files || s.Network != c.network || s.Processes != c.processes || s.Full() != (c.files && c.network && c.processes) ||
			!strings.Contains(s.Text, c.text) || strings.Contains(s.Text, c.without) {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

func TestDescribeSandboxGuarded(t *testing.T) {
	p := policy{Port: 8000, Guarded: true}
	if s := describeSandbox(7, true, p); !s.Full() || !strings.Contains(s.Text, "to relay alone") {
		t.Errorf("%+v", s)
	}
	for _, s := range []SandboxStatus{describeSandbox(2, true, p), describeSandbox(7, false, p)} {
		if s.Full() || !strings.Contains(s.Text, "but") {
			t.Errorf("%+v", s)
		}
	}
}

func TestCheckSandbox(t *testing.T) {
	if s, err := CheckSandbox(SandboxOff); err != nil || s.Full() || s.Text == "" {
		t.Errorf("off: %+v %v", s, err)
	}
	s, err := CheckSandbox(SandboxRequire)
	if (err == nil) != s.Full() || err != nil && !errors.Is(err, ErrSandbox) {
		t.Errorf("require: %+v %v", s, err)
	}
}
