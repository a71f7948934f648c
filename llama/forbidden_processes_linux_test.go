package llama

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errPretended is what there is where a call is said to be done and is not.
var errPretended = errors.New("not permitted: it was not done")

// tryProcesses tries calls that reach other processes by number, on relay and,
// as far as an engine needs them, on its own process.
func tryProcesses(relay int, try func(name string, err error)) {
	call := func(nr uintptr, args ...uintptr) error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		return errnoErr(errno)
	}
	pid, self := uintptr(relay), uintptr(os.Getpid())
	runtime.LockOSThread() // for its thread id
	defer runtime.UnlockOSThread()
	tid := uintptr(unix.Gettid())

	// Signals. Go takes no notice of this one.
	const signal = uintptr(unix.SIGURG)
	info := make([]byte, 128) // siginfo_t, as a process queues it
	binary.NativeEndian.PutUint32(info[0:], uint32(signal))
	binary.NativeEndian.PutUint32(info[8:], ^uint32(0)) // SI_QUEUE
	queued := uintptr(unsafe.Pointer(&info[0]))
	try("ok: signal itself", call(unix.SYS_KILL, self, signal))
	try("ok: signal its own thread", call(unix.SYS_TGKILL, self, tid, signal))
	try("signal relay", call(unix.SYS_KILL, pid, signal))
	try("signal relay's group", call(unix.SYS_KILL, -pid, signal))
	try("signal all", call(unix.SYS_KILL, ^uintptr(0), 0))
	try("signal relay by its thread", call(unix.SYS_TKILL, pid, signal))
	try("signal relay by its group and thread", call(unix.SYS_TGKILL, pid, pid, signal))
	try("queue a signal for relay", call(unix.SYS_RT_SIGQUEUEINFO, pid, signal, queued))
	try("queue a signal for relay's thread", call(unix.SYS_RT_TGSIGQUEUEINFO, pid, pid, signal, queued))
	fd, err := unix.PidfdOpen(relay, 0)
	if err == nil {
		err = errors.Join(unix.PidfdSendSignal(fd, unix.SIGURG, nil, 0), unix.Close(fd))
	}
	try("signal relay by a descriptor", err)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	try("ok: make a pair of sockets", err)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETOWN, relay)
		try("have relay told of a socket", err)
		owner := struct{ kind, pid int32 }{1 /* F_OWNER_PID */, int32(relay)}
		try("have relay told of a socket, newer", call(unix.SYS_FCNTL, uintptr(pair[0]), unix.F_SETOWN_EX, uintptr(unsafe.Pointer(&owner))))
		try("have relay told of a socket by ioctl", unix.IoctlSetPointerInt(pair[0], fioSetOwn, relay))
		try("have relay told of a socket by another ioctl", unix.IoctlSetPointerInt(pair[0], sioSetOwn, relay))
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}

	// Limits and turns, set to what they are.
	var limit unix.Rlimit
	try("ok: have its limits", unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit))
	try("ok: set its limits", unix.Prlimit(int(self), unix.RLIMIT_NOFILE, &limit, nil))
	try("limit relay", unix.Prlimit(relay, unix.RLIMIT_NOFILE, nil, &limit))
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	try("ok: see its turn", err)
	nice := 20 - priority // that is how the kernel returns it
	try("ok: have its turn", unix.Setpriority(unix.PRIO_PROCESS, 0, nice))
	try("take turns from relay", unix.Setpriority(unix.PRIO_PROCESS, relay, nice))
	try("take turns from relay's group", unix.Setpriority(unix.PRIO_PGRP, relay, nice))
	try("take turns from a user", unix.Setpriority(unix.PRIO_USER, 54321, nice)) // nobody: it would be ESRCH
	var normal struct{ priority int32 }
	try("schedule relay", call(unix.SYS_SCHED_SETSCHEDULER, pid, unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&normal))))
	try("schedule relay by a parameter", call(unix.SYS_SCHED_SETPARAM, pid, uintptr(unsafe.Pointer(&normal))))
	try("schedule relay by attributes", unix.SchedSetAttr(relay, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: int32(nice)}, 0))
	const usual = 2 << 13 // IOPRIO_CLASS_BE
	try("ok: have its turn on disks", call(unix.SYS_IOPRIO_SET, ioprioProcess, 0, usual|4))
	try("take turns on disks from relay", call(unix.SYS_IOPRIO_SET, ioprioProcess, pid, usual|4))
	try("ok: choose its processors", onOne(0))
	try("ok: choose its processors by its number", onOne(os.Getpid()))
	try("choose relay's processors", onOne(relay))
	node := uint64(1)
	nodes := uintptr(unsafe.Pointer(&node))
	try("move relay's memory", call(unix.SYS_MIGRATE_PAGES, pid, 64, nodes, nodes))
	try("move relay's pages", call(unix.SYS_MOVE_PAGES, pid, 0, 0, 0, 0, 0))

	// What processes share by number or name.
	shared := func(nr uintptr, args ...uintptr) error {
		id, _, errno := unix.Syscall(nr, args[0], args[1], args[2])
		if errno != 0 {
			return errno
		}
		// Whatever it is, it is removed: these want different arguments.
		switch nr {
		case unix.SYS_SHMGET:
			return call(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0)
		case unix.SYS_SEMGET:
			return call(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID)
		}
		return call(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0)
	}
	try("share memory", shared(unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, 0o600))
	try("share a semaphore", shared(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o600))
	try("share a queue", shared(unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600, 0))
	try("share memory that is there", ignoring(unix.EINVAL, call(unix.SYS_SHMAT, 1<<30, 0, 0)))
	name := []byte("relay-sandbox-test\x00")
	try("share a queue by name", ignoring(unix.ENOENT, call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)))
	runtime.KeepAlive(info)

	// Out of the group that is killed with it. These come last: they change it.
	try("outlive its shim", unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0))
	group, err := unix.Getpgid(relay)
	if err == nil {
		err = unix.Setpgid(0, group)
	}
	try("join relay's group", err)
}

// onOne has a process run on one processor, and back on those that it had. With
// a single processor nothing can be told from that.
func onOne(pid int) error {
	var had, have unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &had); err != nil {
		return err
	}
	one := unix.CPUSet{}
	for i := 0; one.Count() == 0; i++ {
		if had.IsSet(i) {
			one.Set(i)
		}
	}
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		return err
	}
	if err := unix.SchedGetaffinity(pid, &have); err != nil {
		return err
	}
	if have == had && had != one {
		return errPretended
	}
	return unix.SchedSetaffinity(pid, &had)
}

// ignoring passes over the error of a call that was let through.
func ignoring(expected unix.Errno, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// startIn starts a process, in new namespaces where flags say so, which ends at once.
func startIn(flags uintptr) error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}
