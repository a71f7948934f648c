//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sealed fails unless a namespace has no way out: no default route, no
// interface that the lab did not make, and an address outside (192.0.2.1, which
// is nobody's: RFC 5737) that is unreachable at once.
func sealed(namespace string) error {
	return inside(namespace, func() error {
		if err := noDefaultRoute("/proc/thread-self/net/route", func(fields []string) bool {
			return fields[1] == "00000000" && fields[7] == "00000000"
		}); err != nil {
			return fmt.Errorf("lab: %s: %w", namespace, err)
		}
		if err := noDefaultRoute("/proc/thread-self/net/ipv6_route", func(fields []string) bool {
			return fields[1] == "00" && fields[9] != "lo"
		}); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("lab: %s: %w", namespace, err)
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			if err := unreachable(kind); err != nil {
				return fmt.Errorf("lab: %s: %w", namespace, err)
			}
		}
		return nil
	})
}

func noDefaultRoute(table string, isDefault func(fields []string) bool) error {
	data, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) >= 10 && isDefault(fields) {
			return fmt.Errorf("it has a default route: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// unreachable wants a connection to the outside to fail before a packet leaves.
func unreachable(kind int) error {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
	if !errors.Is(err, unix.ENETUNREACH) {
		return fmt.Errorf("a connection to 192.0.2.1 is not unreachable at once, but: %v", err)
	}
	return nil
}
