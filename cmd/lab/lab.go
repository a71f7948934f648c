//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
)

const (
	// prefix begins the name of every namespace; the pid of the process that
	// made it follows.
	prefix = "relaylab-"
	// cable is the machine's end of its cable. It must not look like the
	// interfaces of container software, whose addresses peers keep to themselves.
	cable = "lan0"
	// subnet is the network on the switch, and homes are those behind routers.
	subnet = "10.77.0."
	homes  = "192.168."
	// most bounds the machines of a lab: the addresses of its network.
	most = 250
)

// labs counts those of this process, for their names.
var labs atomic.Int64

// Lab is one switch and the machines on it. Its methods are for one goroutine.
type Lab struct {
	name     string
	machines map[string]*machine
	last     int // Of the addresses and ports given out.
	routers  int
	wires    []*wire
}

type machine struct {
	namespace string
	addr      netip.Addr
	port      string // The other end of its cable, and
	at        string // the namespace that it is in.
	home      string // Of a router: the network behind it.
}

// New makes a lab without machines, after sweeping what dead processes left. It
// fails, saying what to do, where Needs does.
func New() (*Lab, error) {
	if err := Needs(); err != nil {
		return nil, err
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	l := &Lab{name: fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), labs.Add(1)), machines: map[string]*machine{}}
	if err := l.makeSwitch(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) hub() string { return l.name }

func (l *Lab) makeSwitch() error {
	if err := addNamespace(l.hub()); err != nil {
		return err
	}
	if err := ip(l.hub(), "link set lo up", "link add hub type bridge", "link set hub up"); err != nil {
		return err
	}
	// IPv6 has no part in it: its link-local addresses would go round the cuts.
	return nft(l.hub(), `table bridge lab {
		set cut { type ipv4_addr . ipv4_addr; }
		chain forward {
			type filter hook forward priority 0; policy accept;
			ether type != { ip, arp } drop
			ether type ip ip saddr . ip daddr @cut drop
		}
	}`)
}

// Add puts a machine with a fast cable on the switch.
func (l *Lab) Add(name string) error {
	m, err := l.enrol(name, l.hub())
	if err != nil {
		return err
	}
	err = ip(l.hub(),
		fmt.Sprintf("link add %s type veth peer name %s netns %s", m.port, cable, m.namespace),
		fmt.Sprintf("link set %s master hub up", m.port))
	if err != nil {
		return err
	}
	return m.finish()
}

// enrol makes the namespace of a machine, without a cable yet.
func (l *Lab) enrol(name, at string) (*machine, error) {
	if l.machines[name] != nil || l.last >= most {
		return nil, fmt.Errorf("lab: no room for a machine called %q", name)
	}
	l.last++
	m := &machine{namespace: l.name + "-" + name, port: fmt.Sprintf("port%d", l.last), at: at,
		addr: netip.MustParseAddr(fmt.Sprintf("%s%d", subnet, l.last))}
	if err := addNamespace(m.namespace); err != nil {
		return nil, err
	}
	l.machines[name] = m
	return m, nil
}

// finish gives the machine its address, and sees that there is no way out of it.
func (m *machine) finish() error {
	if err := ip(m.namespace, "link set lo up", fmt.Sprintf("addr add %s/24 dev %s", m.addr, cable), "link set "+cable+" up"); err != nil {
		return err
	}
	return sealed(m.namespace)
}

// AddRouter puts a router on the switch. What is behind it reaches the machines
// on the switch from the router's one address, and cannot be reached from there.
func (l *Lab) AddRouter(name string) error {
	if err := l.Add(name); err != nil {
		return err
	}
	r := l.machines[name]
	l.routers++
	r.home = fmt.Sprintf("%s%d.", homes, l.routers)
	if err := ip(r.namespace, "link add home type bridge", fmt.Sprintf("addr add %s1/24 dev home", r.home), "link set home up"); err != nil {
		return err
	}
	if err := inside(r.namespace, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	}); err != nil {
		return err
	}
	if err := nft(r.namespace, `table ip lab {
		chain out { type nat hook postrouting priority 100; oifname "`+cable+`" masquerade; }
		chain in { type filter hook forward priority 0; iifname "`+cable+`" ct state new drop; }
	}`); err != nil {
		return err
	}
	return sealed(r.namespace)
}

// AddBehind puts a machine behind a router.
func (l *Lab) AddBehind(router, name string) error {
	r := l.machines[router]
	if r == nil || r.home == "" {
		return fmt.Errorf("lab: there is no router %q", router)
	}
	m, err := l.enrol(name, r.namespace)
	if err != nil {
		return err
	}
	m.addr = netip.MustParseAddr(fmt.Sprintf("%s%d", r.home, l.last))
	if err := ip(r.namespace,
		fmt.Sprintf("link add %s type veth peer name %s netns %s", m.port, cable, m.namespace),
		fmt.Sprintf("link set %s master home up", m.port)); err != nil {
		return err
	}
	if err := m.finish(); err != nil {
		return err
	}
	if err := ip(m.namespace, fmt.Sprintf("route add %s0/24 via %s1", subnet, r.home)); err != nil {
		return err
	}
	return sealed(m.namespace)
}

// Addr is the address of a machine; the zero one where there is no such machine.
func (l *Lab) Addr(name string) netip.Addr {
	if m := l.machines[name]; m != nil {
		return m.addr
	}
	return netip.Addr{}
}

// On is the beginning of a command line that runs a program on a machine. The
// process that is started becomes the program.
func (l *Lab) On(name string) []string {
	m := l.machines[name]
	if m == nil {
		return []string{"false"} // A program that fails: never one on this machine.
	}
	return []string{"ip", "netns", "exec", m.namespace}
}

// Dial connects to a TCP address, an IP address and a port, from a machine.
func (l *Lab) Dial(ctx context.Context, from, address string) (c net.Conn, err error) {
	m := l.machines[from]
	if m == nil {
		return nil, unknown(from)
	}
	err = inside(m.namespace, func() error {
		var d net.Dialer
		c, err = d.DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

func unknown(name string) error { return fmt.Errorf("lab: there is no machine %q", name) }

// Close takes the lab down, with every process that still runs in it.
func (l *Lab) Close() error {
	var errs []error
	for _, m := range l.machines {
		errs = append(errs, removeNamespace(m.namespace))
	}
	for _, w := range l.wires {
		w.stop()
	}
	return errors.Join(append(errs, removeNamespace(l.hub()))...)
}
