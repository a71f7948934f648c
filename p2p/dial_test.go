package p2p

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

func addrs(texts ...string) []ma.Multiaddr {
	var list []ma.Multiaddr
	for _, t := range texts {
		list = append(list, ma.StringCast(t))
	}
	return list
}

func TestDialsAreRanked(t *testing.T) {
	const (
		lanTCP   = "/ip4/192.168.1.2/tcp/8421"
		lanQUIC  = "/ip4/192.168.1.2/udp/8421/quic-v1"
		wanTCP   = "/ip4/203.0.113.7/tcp/8421"
		wanQUIC  = "/ip4/203.0.113.7/udp/8421/quic-v1"
		relayed  = "/ip4/203.0.113.9/tcp/8421/p2p/12D3KooWPdEEJeMWLgLSsy11kVVamZXG8RMBuP43giuJa27bf2QN/p2p-circuit"
		loopback = "/ip4/127.0.0.1/tcp/8421"
	)
	for _, c := range []struct {
		name string
		in   []string
		want []string
		at   []time.Duration
	}{
		{"on a LAN TCP goes first, relays last", []string{relayed, wanTCP, wanQUIC, lanQUIC, lanTCP},
			[]string{lanTCP, lanQUIC, wanQUIC, wanTCP, relayed}, []time.Duration{0, dialStep, 2 * dialStep, 3 * dialStep, 4 * dialStep}},
		{"across the internet QUIC goes first, and at once", []string{wanTCP, wanQUIC}, []string{wanQUIC, wanTCP}, []time.Duration{0, dialStep}},
		{"a relay alone is not waited for", []string{relayed}, []string{relayed}, []time.Duration{0}},
		{"loopback is local", []string{wanQUIC, loopback}, []string{loopback, wanQUIC}, []time.Duration{0, 2 * dialStep}},
		{"nothing", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			var at []time.Duration
			for _, d := range rankDials(addrs(c.in...)) {
				got, at = append(got, d.Addr.String()), append(at, d.Delay)
			}
			if !slices.Equal(got, c.want) || !slices.Equal(at, c.at) {
				t.Errorf("got %v at %v, want %v at %v", got, at, c.want, c.at)
			}
		})
	}
}

func TestOnlyReachableAddressesAreAdvertised(t *testing.T) {
	bridged := map[netip.Addr]bool{netip.MustParseAddr("172.17.0.1"): true}
	for _, c := range []struct {
		name     string
		in, want []string
	}{
		{"container bridges are left out", []string{"/ip4/172.17.0.1/tcp/1", "/ip4/192.168.1.2/tcp/1"}, []string{"/ip4/192.168.1.2/tcp/1"}},
		{"loopback is left out beside others", []string{"/ip4/127.0.0.1/tcp/1", "/ip4/192.168.1.2/tcp/1"}, []string{"/ip4/192.168.1.2/tcp/1"}},
		{"loopback stays where it is all there is", []string{"/ip4/127.0.0.1/tcp/1", "/ip4/172.17.0.1/tcp/1"}, []string{"/ip4/127.0.0.1/tcp/1"}},
		{"names stay", []string{"/dns4/attic.example/tcp/1"}, []string{"/dns4/attic.example/tcp/1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, a := range reachable(addrs(c.in...), bridged) {
				got = append(got, a.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
