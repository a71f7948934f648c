package llama

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// x32Bit marks calls by the table for 32-bit pointers, which reports the
	// same architecture.
	x32Bit = 0x40000000
)

// refusedHere are calls that not every processor's table has.
func refusedHere() []uint32 {
	return []uint32{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM,
		unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_FORK, unix.SYS_VFORK}
}
