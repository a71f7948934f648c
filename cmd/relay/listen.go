package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"relay/p2p"
	"relay/scheduler"
)

// checkListen says what is wrong with an address for /v1, as far as that can be
// told without its port.
func checkListen(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return &usageError{fmt.Sprintf("--listen %s: not an address with a port such as %s", addr, defaultListen)}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	switch {
	case err == nil:
		return l.Close()
	case isForeign(err):
		return &usageError{fmt.Sprintf("--listen %s: this machine has no address %s", addr, host)}
	}
	return &usageError{fmt.Sprintf("--listen %s: %s cannot be listened on: %v", addr, host, cause(err))}
}

// cause is the innermost error: what the system said, without where.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// listenDoor opens /v1.
func listenDoor(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if isTaken(err) {
		return nil, scheduler.Errorf(scheduler.PortInUse, "%s is in use by another program: choose another address with --listen", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("open /v1 on %s: %w", addr, err)
	}
	return l, nil
}

// listenControl opens the control socket; the lock on the state folder is held,
// so a socket file that is there already is a dead one.
func listenControl(m *machine) (net.Listener, error) {
	path, err := controlSocket(m.tree)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// tryP2P opens the addresses for other peers and closes them again. It comes
// before what cannot be undone: a machine that cannot be reached must not spend
// an invite.
func (m *machine) tryP2P() error {
	if len(m.p2pListen) > 0 {
		addrs, err := multiaddrs(m.p2pListen)
		if err != nil {
			return err
		}
		return tryListen(addrs)
	}
	for _, port := range m.p2pPorts() {
		addrs, err := multiaddrs(everywhere(port))
		if err != nil {
			return err
		}
		if err := tryListen(addrs); !errors.Is(err, p2p.ErrPortInUse) {
			return err
		}
	}
	return m.noPort()
}

func tryListen(addrs []ma.Multiaddr) error {
	for _, a := range addrs {
		network, host, err := manet.DialArgs(a)
		if err != nil {
			continue // Not of the two kinds below.
		}
		switch {
		case strings.HasPrefix(network, "tcp"):
			var l net.Listener
			if l, err = net.Listen(network, host); err == nil {
				err = l.Close()
			}
		case strings.HasPrefix(network, "udp"):
			var l net.PacketConn
			if l, err = net.ListenPacket(network, host); err == nil {
				err = l.Close()
			}
		}
		switch {
		case isTaken(err):
			return fmt.Errorf("listen on %s: %w", a, p2p.ErrPortInUse)
		case isForeign(err):
			return &usageError{fmt.Sprintf("--p2p-listen %s: this machine has no such address", a)}
		case err != nil:
			return fmt.Errorf("listen on %s: %w", a, cause(err))
		}
	}
	return nil
}

// p2pPorts are the ports to try where no address was asked for: the remembered
// one, or the default, and those that follow.
func (m *machine) p2pPorts() []int {
	first := m.P2PPort
	if first == 0 {
		first = defaultP2PPort
	}
	var ports []int
	for port := first; port < first+32 && port <= 65535; port++ {
		ports = append(ports, port)
	}
	return ports
}

func (m *machine) noPort() error {
	ports := m.p2pPorts()
	return fmt.Errorf("%w (%d to %d are)", p2p.ErrPortInUse, ports[0], ports[len(ports)-1])
}
