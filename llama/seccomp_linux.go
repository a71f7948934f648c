package llama

import (
	"fmt"
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

// restrictSyscalls leaves the calling thread, and all that is started from it,
// only stream sockets between processes of this machine, none of which it can
// connect: it can listen on one, and that is all. It also takes away the calls by
// which a process gets at other processes, at the kernel, or around Landlock.
// There is no way back.
func restrictSyscalls() error {
	if auditArch == 0 {
		return fmt.Errorf("no filter for this processor")
	}
	filter := syscallFilter()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("the kernel refused the filter: %w", errno)
	}
	return nil
}

// syscallFilter is the program that the kernel runs at each system call. It
// ends a process that calls by another processor's table (32-bit calls on
// amd64), or else what is refused below would be had there.
func syscallFilter() []unix.SockFilter {
	// The offsets in struct seccomp_data.
	const nr, arch, arg0, arg1 = 0, 4, 16, 24
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

	f := []unix.SockFilter{
		load(arch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		end(unix.SECCOMP_RET_KILL_PROCESS),
		load(nr),
	}
	if x32Bit != 0 {
		f = append(f, jump(unix.BPF_JGE, x32Bit, 0, 1), refuse(unix.ENOSYS))
	}
	f = append(f,
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 7),
		load(arg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 4),
		load(arg1),
		unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf}, // without SOCK_CLOEXEC and the like
		jump(unix.BPF_JEQ, unix.SOCK_STREAM, 0, 1),
		allow,
		refuse(unix.EACCES),
	)
	for _, call := range refusedCalls() {
		f = append(f, jump(unix.BPF_JEQ, call, 0, 1), refuse(unix.EPERM))
	}
	// Programs that can do without take "not implemented" better.
	for _, call := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		f = append(f, jump(unix.BPF_JEQ, call, 0, 1), refuse(unix.ENOSYS))
	}
	return append(f, allow)
}

// refusedCalls are what no engine needs and an attacker would like: ways to
// other sockets and processes, into the kernel, to files by other means than
// paths, and to the owners and modes of files, which Landlock does not guard.
func refusedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_CONNECT,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
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
