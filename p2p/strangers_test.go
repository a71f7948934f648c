package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
)

// dialAs opens one connection to a machine from a loopback address, under an
// identity of its own.
func dialAs(ctx context.Context, from string, to peer.ID, at ma.Multiaddr) (transport.CapableConn, error) {
	key, _, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: yamux.DefaultTransport}}
	secure, err := libp2ptls.New(libp2ptls.ID, key, muxers)
	if err != nil {
		return nil, err
	}
	up, err := upgrader.New([]sec.SecureTransport{secure}, muxers, nil, &network.NullResourceManager{}, nil)
	if err != nil {
		return nil, err
	}
	dial, err := tcp.NewTCPTransport(up, &network.NullResourceManager{}, nil, tcp.WithDialerForAddr(func(ma.Multiaddr) (tcp.ContextDialer, error) {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, nil
	}))
	if err != nil {
		return nil, err
	}
	return dial.Dial(ctx, at, to)
}

// tryAll opens every protocol on a connection and returns one that answered
// somebody who is no member, if any did.
func tryAll(ctx context.Context, c transport.CapableConn, protocols []protocol.ID) (answered protocol.ID) {
	var mu sync.Mutex
	var tried sync.WaitGroup
	for _, id := range protocols {
		s, err := c.OpenStream(ctx)
		if err != nil {
			break // Refused altogether.
		}
		tried.Go(func() {
			defer s.Reset()
			_ = s.SetDeadline(time.Now().Add(strangerPatience))
			said := append(append(token("/multistream/1.0.0"), token(string(id))...), make([]byte, 16)...)
			if _, err := s.Write(said); err != nil {
				return
			}
			heard, _ := io.ReadAll(io.LimitReader(s, 4096))
			if bytes.Contains(heard, token(string(id))) && id != ProtocolJoin && id != protocolIdentify {
				mu.Lock()
				answered = id
				mu.Unlock()
			}
		})
	}
	tried.Wait()
	return answered
}

// TestFiveHundredStrangers hold what connections they get, open every protocol
// on each and never join: few stand at a time, nothing of the mesh's answers
// them, all are cut off, and members notice nothing.
func TestFiveHundredStrangers(t *testing.T) {
	t.Parallel()
	const strangers = 500
	several := make([]string, 20)
	for i := range several {
		several[i] = fmt.Sprintf("127.0.0.%d", 100+i)
	}
	for name, from := range map[string][]string{"one address": {"127.0.0.9"}, "twenty addresses": several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attic := found(t, "attic")
			inv := invite(t, attic, 3)
			den, cellar := join(t, inv, "den"), join(t, inv, "cellar")
			eventually(t, 10*time.Second, "three alive", func() bool { return seesAlive(attic, 3)() && seesAlive(den, 3)() })
			cellar.stop()
			protocols := attic.host.Mux().Protocols()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			var got, begun atomic.Int32
			dials := make(chan struct{}, 16)
			for i := range strangers {
				all.Go(func() {
					dials <- struct{}{}
					c, err := dialAs(ctx, from[i%len(from)], attic.Self(), attic.ListenAddrs()[0])
					<-dials
					begun.Add(1)
					if err != nil {
						return
					}
					defer c.Close()
					got.Add(1)
					if id := tryAll(ctx, c, protocols); id != "" {
						t.Errorf("a stranger was answered on %s", id)
					}
					for err == nil { // Until it is cut off.
						var s network.MuxedStream
						if s, err = c.AcceptStream(); err == nil {
							_ = s.Reset()
						}
					}
				})
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				all.Wait()
			}()

			most, slowest := 0, time.Duration(0)
			looks := func() {
				attic.gate.mu.Lock()
				same := map[string]int{}
				for c := range attic.gate.since {
					same[hostOf(c)]++
				}
				most = max(most, len(attic.gate.since))
				attic.gate.mu.Unlock()
				for at, n := range same {
					if n > strangersPerAddress {
						t.Errorf("%d from %s", n, at)
					}
				}
			}
			eventually(t, 20*time.Second, "some are in", func() bool { return got.Load() >= 20 })
			for i := range 12 { // A member asks, and writes.
				began := time.Now()
				s, err := den.host.NewStream(ctx, attic.Self(), ProtocolProbe)
				if err != nil {
					t.Fatal(err)
				}
				_ = s.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := s.Write(binary.BigEndian.AppendUint64([]byte{probeEcho}, 1)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				_ = s.Reset()
				if err := den.PutOwned(KindContact, den.Self().String(), Contact{Name: fmt.Sprint("den ", i)}); err != nil {
					t.Fatal(err)
				}
				eventually(t, 5*time.Second, "attic has it", func() bool { return attic.NameOf(den.Self()) == fmt.Sprint("den ", i) })
				if behind, err := den.InStep(ctx, attic.Self()); err != nil || behind != 0 {
					t.Errorf("%d behind, %v", behind, err)
				}
				slowest = max(slowest, time.Since(began))
				looks()
			}
			if slowest > 2*time.Second {
				t.Errorf("a member waited %s", slowest)
			}
			cellar.open(t, attic.Mesh, "cellar", func(*Node) error { return nil }) // A member comes back.
			eventually(t, 15*time.Second, "cellar is back", func() bool { looks(); return seesAlive(attic, 3)() })
			if len(from) == 1 { // There are places for strangers elsewhere.
				if _, err := Join(ctx, newMachine(t).key, inv, "loft", "relay/test"); err != nil {
					t.Errorf("one more joins: %v", err)
				}
			}
			select {
			case <-over:
			case <-time.After(40 * time.Second):
				t.Fatal("not all were cut off")
			}
			looks()
			t.Logf("%d of %d got as far as a connection, at most %d stood at a time; a member waited at most %s", got.Load(), begun.Load(), most, slowest)
			if most == 0 || most > maxStrangers {
				t.Errorf("%d stood at a time", most)
			}
			onlyBlames(t, attic)
		})
	}
}
