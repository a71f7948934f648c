package main

import (
	"errors"
	"fmt"
	"io"
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
	return notOurs("--listen "+addr, "tcp", host)
}

// checkP2PListen does the same for an address for other peers.
func checkP2PListen(text string) error {
	flag := "--p2p-listen " + text
	a, err := ma.NewMultiaddr(strings.TrimSpace(text))
	if err != nil {
		return &usageError{flag + ": not a multiaddr such as /ip4/0.0.0.0/tcp/8421"}
	}
	network, addr, err := manet.DialArgs(a)
	if err != nil {
		return nil // Of a kind that the mesh judges.
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	return notOurs(flag, network, host)
}

// notOurs says that a host is none that this machine can listen on.
func notOurs(flag, network, host string) error {
	err := tryListen(network, net.JoinHostPort(host, "0"))
	switch {
	case err == nil:
		return nil
	case isForeign(err):
		return &usageError{fmt.Sprintf("%s: this machine has no address %s", flag, host)}
	}
	return &usageError{fmt.Sprintf("%s: %s cannot be listened on: %v", flag, host, cause(err))}
}

// tryListen opens an address and closes it again.
func tryListen(network, addr string) error {
	var l io.Closer
	var err error
	if strings.HasPrefix(network, "udp") {
		l, err = net.ListenPacket(network, addr)
	} else {
		l, err = net.Listen(network, addr)
	}
	if err != nil {
		return err
	}
	return l.Close()
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
		return tryAll(addrs)
	}
	for _, port := range m.p2pPorts() {
		addrs, err := multiaddrs(everywhere(port))
		if err != nil {
			return err
		}
		if err := tryAll(addrs); !errors.Is(err, p2p.ErrPortInUse) {
			return err
		}
	}
	return m.noPort()
}

func tryAll(addrs []ma.Multiaddr) error {
	for _, a := range addrs {
		network, addr, err := manet.DialArgs(a)
		if err != nil {
			continue // Of a kind that the mesh judges.
		}
		err = tryListen(network, addr)
		if isTaken(err) {
			err = p2p.ErrPortInUse
		}
		if err != nil {
			return fmt.Errorf("listen on %s: %w", a, err)
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
