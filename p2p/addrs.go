package p2p

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// bridges are the names under which container and virtual-machine software
// makes interfaces that no other machine can reach.
var bridges = []string{"docker", "br-", "veth", "virbr", "vboxnet", "vmnet", "cni", "flannel", "cali", "lxcbr", "lxdbr", "podman"}

// reachable leaves out what other machines cannot dial: addresses of container
// bridges, and loopback ones where there is any other.
func reachable(addrs []ma.Multiaddr, bridged map[netip.Addr]bool) []ma.Multiaddr {
	var outside, loopback []ma.Multiaddr
	for _, a := range addrs {
		ip, err := manet.ToIP(a)
		switch addr, ok := netip.AddrFromSlice(ip); {
		case err != nil: // A name or a relay: no interface of ours.
			outside = append(outside, a)
		case ok && bridged[addr.Unmap()]:
		case ip.IsLoopback():
			loopback = append(loopback, a)
		default:
			outside = append(outside, a)
		}
	}
	if len(outside) > 0 {
		return outside
	}
	return loopback
}

// bridgedAddrs are the addresses that this machine has on container bridges.
func bridgedAddrs() map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	interfaces, err := net.Interfaces()
	if err != nil {
		return found
	}
	for _, i := range interfaces {
		if !slices.ContainsFunc(bridges, func(prefix string) bool { return strings.HasPrefix(i.Name, prefix) }) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok {
					found[addr.Unmap()] = true
				}
			}
		}
	}
	return found
}

// localOnly says whether none of the addresses can be dialled from outside the
// network this machine is on.
func localOnly(addrs []ma.Multiaddr) bool {
	return !slices.ContainsFunc(addrs, func(a ma.Multiaddr) bool { return manet.IsPublicAddr(a) || isRelayed(a) })
}
