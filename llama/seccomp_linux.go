package llama

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seccompWorks says whether this kernel takes filters.
func seccompWorks() bool {
	if auditArch == 0 {
		return false
	}
	// With a null program a kernel that knows the operation answers EFAULT.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0)
	return errno == unix.EFAULT
}

// restrictSyscalls leaves the calling thread, and what it becomes, only stream
// sockets between processes of this machine, none of which it can connect: it
// can listen on one, and that is all. With tcp it leaves sockets of TCP in their
// place, which it can connect to the ports that Landlock leaves it: it reaches
// nothing that has a path then, such as relay's control socket. It also takes away
// the calls by which a process gets at other processes, at the kernel, or around
// Landlock, starts processes, or leaves the group that is killed when it is to end.
// There is no way back.
func restrictSyscalls(tcp bool) error {
	if auditArch == 0 {
		return fmt.Errorf("no filter for this processor")
	}
	filter := syscallFilter(uint32(os.Getpid()), tcp)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("the kernel refused the filter: %w", errno)
	}
	return nil
}

// syscallFilter is the program that the kernel runs at each system call of the
// process pid. It ends a process that calls by another processor's table (32-bit
// calls on amd64), or else what is refused below would be had there.
//
// Process ids, flags and commands are 32 bits wide in the kernel, whatever is in
// the other half of their register: it is not looked at.
func syscallFilter(pid uint32, tcp bool) []unix.SockFilter {
	// The offsets in struct seccomp_data.
	const nr, arch, arg0, arg1, arg2, arg3 = 0, 4, 16, 24, 32, 40
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// jump skips yes or no instructions.
	jump := func(test uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	end := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }
	refuse := func(errno unix.Errno) unix.SockFilter { return end(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
	allow := end(unix.SECCOMP_RET_ALLOW)
	// Of the kind of a socket: without SOCK_CLOEXEC and the like.
	withoutFlags := unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf}

	f := []unix.SockFilter{
		load(arch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		end(unix.SECCOMP_RET_KILL_PROCESS),
		load(nr),
	}
	if x32Bit != 0 {
		f = append(f, jump(unix.BPF_JGE, x32Bit, 0, 1), refuse(unix.ENOSYS))
	}
	// at decides about one call by what follows, which ends in every case.
	at := func(call uint32, then ...unix.SockFilter) {
		f = append(append(f, jump(unix.BPF_JEQ, call, 0, uint8(len(then)))), then...)
	}
	stream := func(call uint32) {
		at(call,
			load(arg0),
			jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 4),
			load(arg1),
			withoutFlags,
			jump(unix.BPF_JEQ, unix.SOCK_STREAM, 0, 1),
			allow,
			refuse(unix.EACCES),
		)
	}
	// A datagram socket of a pair sends to any other as well; a stream's is connected, and
	// stays so.
	stream(unix.SYS_SOCKETPAIR)
	if tcp {
		// Of the protocols by which there are streams Landlock looks after TCP alone.
		at(unix.SYS_SOCKET,
			load(arg0),
			jump(unix.BPF_JEQ, unix.AF_INET, 0, 7),
			load(arg1),
			withoutFlags,
			jump(unix.BPF_JEQ, unix.SOCK_STREAM, 0, 4),
			load(arg2),
			jump(unix.BPF_JEQ, 0, 1, 0),
			jump(unix.BPF_JEQ, unix.IPPROTO_TCP, 0, 1),
			allow,
			refuse(unix.EACCES),
		)
		// TCP Fast Open connects as it sends, and Landlock is not asked.
		for _, c := range []struct{ call, flags uint32 }{{unix.SYS_SENDTO, arg3}, {unix.SYS_SENDMSG, arg2}, {unix.SYS_SENDMMSG, arg3}} {
			at(c.call, load(c.flags), jump(unix.BPF_JSET, unix.MSG_FASTOPEN, 0, 1), refuse(unix.EPERM), allow)
		}
		at(unix.SYS_SETSOCKOPT, load(arg1), jump(unix.BPF_JEQ, unix.IPPROTO_TCP, 0, 3),
			load(arg2), jump(unix.BPF_JEQ, unix.TCP_FASTOPEN_CONNECT, 0, 1), refuse(unix.EPERM), allow)
	} else {
		stream(unix.SYS_SOCKET)
		at(unix.SYS_CONNECT, refuse(unix.EPERM))
	}
	// Signals: to itself, as abort sends one.
	for _, call := range []uint32{unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO} {
		at(call, load(arg0), jump(unix.BPF_JEQ, pid, 0, 1), allow, refuse(unix.EPERM))
	}
	// The kernel would send them for it when something happens to a file.
	at(unix.SYS_FCNTL, load(arg1), jump(unix.BPF_JEQ, unix.F_SETOWN, 1, 0), jump(unix.BPF_JEQ, unix.F_SETOWN_EX, 0, 1), refuse(unix.EPERM), allow)
	at(unix.SYS_IOCTL, load(arg1), jump(unix.BPF_JEQ, fioSetOwn, 1, 0), jump(unix.BPF_JEQ, sioSetOwn, 0, 1), refuse(unix.EPERM), allow)

	// Limits and turns on the processors: its own, also by 0.
	for _, call := range []uint32{unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR,
		unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES} {
		at(call, load(arg0), jump(unix.BPF_JEQ, 0, 1, 0), jump(unix.BPF_JEQ, pid, 0, 1), allow, refuse(unix.EPERM))
	}
	for _, c := range []struct{ call, process uint32 }{{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS}, {unix.SYS_IOPRIO_SET, ioprioProcess}} {
		at(c.call, load(arg0), jump(unix.BPF_JEQ, c.process, 0, 3),
			load(arg1), jump(unix.BPF_JEQ, 0, 2, 0), jump(unix.BPF_JEQ, pid, 1, 0), refuse(unix.EPERM), allow)
	}
	// Libraries of GPUs choose processors for threads that they start, whose ids
	// nobody knows beforehand, and give up where that fails: they are told that
	// it is done.
	at(unix.SYS_SCHED_SETAFFINITY, load(arg0), jump(unix.BPF_JEQ, 0, 1, 0), jump(unix.BPF_JEQ, pid, 0, 1), allow, refuse(0))

	// New threads, and no new processes: where relay and the shim are killed at once the
	// kernel kills the engine, and nobody its children. Nor namespaces, in which it would
	// have all capabilities again. The flags of clone3 are out of sight; libraries do
	// without it.
	at(unix.SYS_CLONE, load(arg0), jump(unix.BPF_JSET, newNamespace, 1, 0), jump(unix.BPF_JSET, unix.CLONE_THREAD, 1, 0), refuse(unix.EPERM), allow)
	for _, call := range refusedCalls() {
		at(call, refuse(unix.EPERM))
	}
	// It was told to die with the shim.
	at(unix.SYS_PRCTL, load(arg0), jump(unix.BPF_JEQ, unix.PR_SET_PDEATHSIG, 0, 1), refuse(unix.EPERM), allow)
	// Programs that can do without take "not implemented" better.
	for _, call := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_CLONE3} {
		at(call, refuse(unix.ENOSYS))
	}
	return append(f, allow)
}

const (
	// The ioctl commands that say who gets a socket's signals.
	fioSetOwn = 0x8901
	sioSetOwn = 0x8902
	// ioprioProcess: ioprio_set is about one process.
	ioprioProcess = 1
	// newNamespace are the flags of clone that make namespaces.
	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// refusedCalls are what no engine needs and an attacker would like: ways to
// other sockets and processes, to memory and messages that processes share by
// number or name, into the kernel, to files by other means than paths, and to
// the owners and modes of files, which Landlock does not guard; and the ways out of
// its group, which is killed when it is to end.
func refusedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_SETSID, unix.SYS_SETPGID,
		unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMCTL,
		unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR,
		unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	}, refusedHere()...)
}
