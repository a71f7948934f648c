package llama

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// forbidden is what tryForbidden is told: files that it must not get at, what
// it may have, and who to attack.
type forbidden struct {
	Secret, Model, Notes, Box, Run, Control, Abstract, Datagrams, TCP string
	Relay                                                             int
	// Port is its own, Remote one that it may connect to, both only with a port; Tensors
	// a folder to read.
	Port, Remote int
	Tensors      string
	// Devices are those of GPUs.
	Devices []string
	// Filtered: only what reaches processes is tried, behind the filter alone, as
	// on a kernel whose Landlock does not know of signals.
	Filtered bool
	// Spared are the capabilities that it may have.
	Spared uint64
}

// tryForbidden does all that a hostile engine would do, and reports for each
// what came of it: "done" or the error.
func tryForbidden(args []string) int {
	var f forbidden
	if err := json.Unmarshal([]byte(args[0]), &f); err != nil {
		return 2
	}
	result := map[string]string{}
	try := func(name string, err error) {
		result[name] = "done"
		if err != nil {
			result[name] = err.Error()
		}
	}
	if f.Filtered {
		runtime.LockOSThread()
		if err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), restrictSyscalls(false)); err != nil {
			return 2
		}
		tryProcesses(f.Relay, try)
		return boolCode(json.NewEncoder(os.Stdout).Encode(result) == nil)
	}
	read := func(path string) error { _, err := os.ReadFile(path); return err }
	write := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	list := func(path string) error { _, err := os.ReadDir(path); return err }

	// What it needs.
	try("ok: read the model", read(f.Model))
	try("ok: write in its folder", write(filepath.Join(f.Box, "file")))
	try("ok: read in its folder", read(filepath.Join(f.Box, "file")))
	try("ok: list its folder", list(f.Box))
	try("ok: write the file that it may", write(f.Notes))
	try("ok: read what the processor is", read("/proc/cpuinfo"))
	l, err := net.Listen("unix", filepath.Join(f.Box, "own.sock"))
	try("ok: listen on its socket", err)
	if err == nil {
		try("ok: remove its socket", l.Close())
	}

	// What it needs with ports.
	if f.Port != 0 {
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(f.Port))
		try("port: listen on its port", err)
		if err == nil {
			_ = l.Close()
		}
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		try("listen on another port", err)
		if err == nil {
			_ = l.Close()
		}
		if pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
			_ = unix.Close(pair[0]) // also where its other end is gone
			try("connect a pair to relay's control socket", unix.Connect(pair[1], &unix.SockaddrUnix{Name: f.Control}))
			_ = unix.Close(pair[1])
		}
		c, err := net.Dial("tcp4", "127.0.0.1:"+strconv.Itoa(f.Remote))
		try("port: connect to its server", err)
		if err == nil {
			_ = c.Close()
		}
		for how, send := range map[string]func(fd int, to unix.Sockaddr) error{
			"as it sends":           func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to) },
			"as it sends a message": func(fd int, to unix.Sockaddr) error { return unix.Sendmsg(fd, []byte("x"), nil, to, unix.MSG_FASTOPEN) },
			"when it sends": func(fd int, _ unix.Sockaddr) error {
				return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
			},
		} {
			try("connect to a port "+how, fastOpen(f.TCP, send))
		}
	}

	// What a GPU's driver needs besides.
	try("gpu: read where it is in memory", read("/proc/self/maps"))
	try("gpu: read about its threads", list("/proc/thread-self"))
	try("gpu: keep its own part of /proc", heldFolder())
	try("gpu: read what devices there are", read("/proc/devices"))
	try("gpu: read the kernel's settings", read("/proc/sys/vm/mmap_min_addr"))
	try("gpu: list the classes of devices", list("/sys/class"))
	for _, path := range f.Devices {
		h, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			_ = h.Close()
		}
		try("gpu: open "+path, err)
	}

	// Files.
	if f.Tensors != "" {
		tensor := filepath.Join(f.Tensors, "0123456789abcdef")
		try("write beside tensors", write(filepath.Join(f.Tensors, "new")))
		try("write a tensor", write(tensor))
		try("remove a tensor", os.Remove(tensor))
		try("move a file to the tensors", os.Rename(filepath.Join(f.Box, "file"), tensor))
	}
	try("read a secret", read(f.Secret))
	try("read a secret by its own folder", read(filepath.Join(f.Box, "..", "..", filepath.Base(filepath.Dir(f.Secret)), filepath.Base(f.Secret))))
	try("list a folder", list(filepath.Dir(f.Secret)))
	try("list its run folder", list(f.Run))
	try("read the passwords", read("/etc/shadow"))
	try("read the users", read("/etc/passwd"))
	try("write the model", func() error {
		h, err := os.OpenFile(f.Model, os.O_WRONLY, 0)
		if err == nil {
			_ = h.Close()
		}
		return err
	}())
	try("truncate the model", os.Truncate(f.Model, 1))
	try("remove the model", os.Remove(f.Model))
	try("write a secret", write(f.Secret))
	try("write beside a secret", write(f.Secret+"2"))
	try("write in its run folder", write(filepath.Join(f.Run, "engine.log")))
	try("write in /tmp", write(filepath.Join("/tmp", "relay-sandbox-test-"+strconv.Itoa(os.Getpid()))))
	try("write in /dev/shm", write("/dev/shm/relay-sandbox-test-"+strconv.Itoa(os.Getpid())))
	try("move a file out", os.Rename(filepath.Join(f.Box, "file"), f.Secret+"3"))
	try("move a secret in", os.Rename(f.Secret, filepath.Join(f.Box, "secret")))
	try("link a secret", os.Link(f.Secret, filepath.Join(f.Box, "linked")))
	try("link to a secret", os.Symlink(f.Secret, filepath.Join(f.Box, "symlinked")))
	try("make a device", unix.Mknod(filepath.Join(f.Box, "disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))))
	try("open a secret's mode", os.Chmod(f.Secret, 0o666))
	try("change a secret's owner", os.Chown(f.Secret, 1, 1))
	try("mark a secret", unix.Setxattr(f.Secret, "user.x", []byte("x"), 0))

	// Powers.
	try("have a capability", capabilities(f.Spared))
	if os.Geteuid() == 0 { // others may not change theirs, and gain nothing by it behind no_new_privs
		try("have a capability in its bounding set", bounding(f.Spared))
	}
	try("put itself before others", unix.Setpriority(unix.PRIO_PROCESS, 0, -5))

	// Programs.
	try("run a shell", exec.Command("/bin/sh", "-c", "true").Run())
	script := filepath.Join(f.Box, "script")
	_ = os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700)
	try("run what it wrote", exec.Command(script).Run())

	// Network.
	socket := func(domain, kind int) error {
		fd, err := unix.Socket(domain, kind, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	try("open a TCP socket", socket(unix.AF_INET, unix.SOCK_STREAM))
	try("open a TCP socket over IPv6", socket(unix.AF_INET6, unix.SOCK_STREAM))
	try("open a UDP socket", socket(unix.AF_INET, unix.SOCK_DGRAM))
	try("open a netlink socket", socket(unix.AF_NETLINK, unix.SOCK_RAW))
	try("open a raw socket", socket(unix.AF_PACKET, unix.SOCK_RAW))
	try("open a socket to the host", socket(unix.AF_VSOCK, unix.SOCK_STREAM))
	try("open a socket for ciphers", socket(unix.AF_ALG, unix.SOCK_SEQPACKET))
	try("open a datagram socket", socket(unix.AF_UNIX, unix.SOCK_DGRAM))
	dial := func(network, address string) error {
		c, err := net.Dial(network, address)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	try("connect to a port", dial("tcp", f.TCP))
	try("connect to relay's control socket", dial("unix", f.Control))
	try("connect to an abstract socket", dial("unix", f.Abstract))
	try("send a datagram by a pair", func() error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err == nil {
			err = errors.Join(unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: f.Datagrams}), unix.Close(pair[0]), unix.Close(pair[1]))
		}
		return err
	}())
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	try("use io_uring", errnoErr(errno))

	// Other processes, and the kernel.
	tryProcesses(f.Relay, try)
	try("read relay's environment", read("/proc/"+strconv.Itoa(f.Relay)+"/environ"))
	try("read relay's command line", read("/proc/"+strconv.Itoa(f.Relay)+"/cmdline"))
	try("read relay's status", read("/proc/"+strconv.Itoa(f.Relay)+"/status"))
	try("list relay's files", list("/proc/"+strconv.Itoa(f.Relay)+"/fd"))
	try("list all processes", list("/proc"))
	try("read the first process's command line", read("/proc/1/cmdline"))
	try("read a command line by its own folder", read("/proc/self/../"+strconv.Itoa(f.Relay)+"/cmdline"))
	try("list the kernel's own files", list("/sys/kernel"))
	try("trace relay", unix.PtraceSeize(f.Relay))
	_, err = unix.ProcessVMReadv(f.Relay, []unix.Iovec{{}}, []unix.RemoteIovec{{}}, 0)
	try("read relay's memory", err)
	try("make a namespace", unix.Unshare(unix.CLONE_NEWUSER))
	try("start a process", startIn(0))
	try("start in a namespace", startIn(unix.CLONE_NEWUSER))
	try("mount", unix.Mount("none", f.Box, "no-such-filesystem", 0, "")) // which would be ENODEV
	_, _, errno = unix.Syscall(unix.SYS_BPF, 0, 0, 0)
	try("load a program into the kernel", errnoErr(errno))
	var limit unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	if err == nil && limit.Cur == 0 && limit.Max == 0 {
		err = errors.New("none")
	}
	try("dump core", err)
	return boolCode(json.NewEncoder(os.Stdout).Encode(result) == nil)
}

// fastOpen sends from a socket that is not connected to an address of TCP.
func fastOpen(address string, send func(fd int, to unix.Sockaddr) error) error {
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return errors.Join(send(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}), unix.Close(fd))
}

// heldFolder fails where no open descriptor holds the process's folder in /proc,
// which Landlock would no longer know once the kernel has dropped it.
func heldFolder() error {
	const fds = "/proc/self/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if at, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && at == "/proc/"+strconv.Itoa(os.Getpid()) {
			return nil
		}
	}
	return errors.New("nothing holds it")
}

// errNoPower is what there is instead of a capability.
var errNoPower = errors.New("none permitted")

// capabilities fails where the thread has, or can come by, no capability but those in spared.
func capabilities(spared uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return err
	}
	var all uint64
	for i, h := range have {
		all |= uint64(h.Effective|h.Permitted|h.Inheritable) << (32 * i)
	}
	if all&^spared == 0 {
		return errNoPower
	}
	return nil
}

// bounding fails where the bounding set is empty but for those in spared.
func bounding(spared uint64) error {
	for c := uintptr(0); ; c++ {
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return errNoPower
		}
		if in == 1 && spared>>c&1 == 0 {
			return nil
		}
	}
}

func errnoErr(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func boolCode(ok bool) int {
	if ok {
		return 0
	}
	return 1
}
