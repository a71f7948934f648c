package p2p

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"relay/p2p/liveness"
)

// What a peer that was killed leaves behind differs: a TCP connection ends with
// it, one by QUIC stands until somebody gives it up. But its machine answers for
// it: nothing listens on its TCP port any more. That says something only of a
// port that was open to this peer before, and not of one that a firewall answers
// for; so each link's ports are tried once while its member answers.

// soundEvery is how often that is tried where no port was found open, since where
// a member can be dialled may become known later than itself.
const soundEvery = 5 * time.Second

// sound finds the member's TCP ports that are open to this peer, at the addresses
// that its connections have.
func (l *links) sound(ctx context.Context, id peer.ID, k *link) {
	addrs, _ := l.n.contact(id)
	var doors []string
	known := false
	for _, a := range addrs {
		at, err := manet.ToNetAddr(a)
		tcp, ok := at.(*net.TCPAddr)
		if err != nil || !ok {
			continue
		}
		known = true
		for _, c := range l.n.host.Network().ConnsToPeer(id) {
			if ip, err := manet.ToIP(c.RemoteMultiaddr()); err != nil || !ip.Equal(tcp.IP) {
				continue
			}
			dialled := c.Stat().Direction == network.DirOutbound && c.RemoteMultiaddr().Equal(a)
			if dialled || tryDoor(ctx, tcp.String()) == nil {
				doors = append(doors, tcp.String())
			}
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.doors = doors; !known { // Its contact record comes any moment.
		k.sounded = l.now() - soundEvery + liveness.ProbeEvery
	}
}

// doorsOf are the addresses at which a member can be dialled by TCP as it is: that
// of its link, or those that were found open to this peer.
func (l *links) doorsOf(id peer.ID, link network.Conn) []ma.Multiaddr {
	addr := link.RemoteMultiaddr()
	if isRelayed(addr) {
		return nil
	}
	if link.Stat().Direction == network.DirOutbound && transportOf(addr) == "tcp" {
		return []ma.Multiaddr{addr}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.members[id]
	if k == nil {
		return nil
	}
	var doors []ma.Multiaddr
	for _, door := range k.doors {
		if at, err := netip.ParseAddrPort(door); err == nil {
			if a, err := manet.FromNetAddr(net.TCPAddrFromAddrPort(at)); err == nil {
				doors = append(doors, a)
			}
		}
	}
	return doors
}

// knock finds out whether the process of a member that is silent is dead: then
// its ports that were open are closed.
func (l *links) knock(ctx context.Context, k *link, doors []string) {
	refused := false
	for _, door := range doors {
		err := tryDoor(ctx, door)
		if err == nil {
			return
		}
		refused = refused || isRefused(err)
	}
	if refused {
		l.mu.Lock()
		k.seen.Refuse(l.now())
		l.mu.Unlock()
	}
}

func tryDoor(ctx context.Context, door string) error {
	d := net.Dialer{Timeout: liveness.AnswerWithin}
	c, err := d.DialContext(ctx, "tcp", door)
	if err == nil {
		err = c.Close()
	}
	return err
}

// isRefused also reads the text: Windows has a number of its own.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "actively refused")
}
