//go:build unix

package stage

import "syscall"

// Freeze stops a peer's process where it stands; Thaw lets it go on.
func (p *Peer) Freeze() error { return p.process.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Peer) Thaw() error { return p.process.Process.Signal(syscall.SIGCONT) }
