package llama

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0 // there is no such table
)

func refusedHere() []uint32 {
	return []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP}
}
