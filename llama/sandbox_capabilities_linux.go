package llama

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// dropCapabilities takes the capabilities, which make root more than a user,
// from the calling thread and what it becomes. One stays where root reads p's
// files, another user's, by nothing else: that of reading any file, which
// Landlock holds to p's.
func dropCapabilities(p policy) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have, kept [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	set := func(to [2]unix.CapUserData) error {
		if err := unix.Capset(&header, &to[0]); err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
		return nil
	}
	const search = 1 << unix.CAP_DAC_READ_SEARCH
	if have[0].Permitted&search != 0 && unix.Geteuid() == 0 {
		idle := have
		idle[0].Effective, idle[1].Effective = 0, 0
		if err := set(idle); err != nil {
			return err
		}
		if slices.ContainsFunc(slices.Concat([]string{p.Program}, p.Read, p.Write), unreadable) {
			kept[0].Permitted, kept[0].Effective = search, search
		}
		if err := set(have); err != nil {
			return err
		}
	}
	// Where the bounding set may not be changed, no_new_privs keeps what is in
	// it from coming back.
	for c := uintptr(0); ; c++ {
		if in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil {
			break // the kernel has no more
		} else if in == 0 || kept[0].Permitted>>c&1 == 1 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	return set(kept)
}

// unreadable says whether a file or folder that is there may not be read.
func unreadable(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EACCES)
}
