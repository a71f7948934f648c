package api

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/gostream"

	"relay/llama/sim"
	"relay/scheduler"
)

const hopProtocol = "/relay/http/1"

func newHost(t testing.TB, transport string) host.Host {
	t.Helper()
	h, err := libp2p.New(libp2p.ListenAddrStrings(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// hopOver makes the one peer reach the other through libp2p, by requests that have a
// stream each, or share one, as p2p does it.
func hopOver(t testing.TB, from, to host.Host, entrance, serving *testPeer, shared bool) {
	from.Peerstore().AddAddrs(to.ID(), to.Addrs(), peerstore.PermanentAddrTTL)
	l, err := gostream.Listen(to, hopProtocol)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(!shared)
	protocols.SetUnencryptedHTTP2(shared)
	server := &http.Server{Handler: serving.door.HopHandler(), Protocols: &protocols, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, fromKey{}, c.RemoteAddr().String())
	}}
	run(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { server.Close() })
		server.Serve(l) // until then, or until the host is closed, as a killed peer's is
		return nil
	})
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return gostream.Dial(ctx, from, to.ID(), hopProtocol)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	entrance.sched.hops = map[string]http.RoundTripper{serving.id: transport}
}

// The hop as it is in a mesh: over libp2p streams, of which the remote peer is
// known. What matters there is that a client's leaving, the end of an engine and
// the end of a peer get through.
func TestHopOverLibp2p(t *testing.T) {
	for name, way := range map[string]struct {
		address string
		shared  bool
	}{
		"tcp": {"/ip4/127.0.0.1/tcp/0", false}, "tcp, shared": {"/ip4/127.0.0.1/tcp/0", true},
		"quic": {"/ip4/127.0.0.1/udp/0/quic-v1", false}, "quic, shared": {"/ip4/127.0.0.1/udp/0/quic-v1", true},
	} {
		t.Run(name, func(t *testing.T) {
			address := way.address
			entranceHost := newHost(t, address)
			setUp := func(engine sim.Options) (entrance, serving *testPeer, servingHost host.Host) {
				servingHost = newHost(t, address)
				entrance, all := newMesh(t, []sim.Options{engine, {}}, nil)
				serving = all[0]
				hopOver(t, entranceHost, servingHost, entrance, serving, way.shared)
				return entrance, serving, servingHost
			}

			t.Run("answers", func(t *testing.T) {
				entrance, serving, _ := setUp(sim.Options{})
				for _, stream := range []bool{true, false, true} { // streams are kept for the next request
					got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
					if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || a.done != stream {
						t.Error(got)
					}
				}
				serving.sched.settled()
			})
			t.Run("a client leaves", func(t *testing.T) {
				for _, streamed := range []bool{true, false} {
					entrance, serving, _ := setUp(sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStall, After: 2}}})
					ctx, cancel := context.WithCancel(t.Context())
					left := make(chan struct{})
					go func() {
						defer close(left)
						sendCtx(ctx, t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, streamed))
					}()
					await(t, serving.engine, func(st sim.State) bool { return st.Active == 1 })
					began := time.Now()
					cancel()
					await(t, serving.engine, func(st sim.State) bool { return st.Cancelled == 1 && st.Active == 0 })
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("streamed %v: the engine's request was closed after %v", streamed, took)
					}
					<-left
				}
			})
			t.Run("the engine dies", func(t *testing.T) {
				entrance, _, _ := setUp(sim.Options{Faults: []sim.Fault{{Kind: sim.FaultDie, After: 4}}})
				got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
				if a := readAnswer(t, got.body); a.text != wantText() || a.err != nil || !comment.MatchString(got.body) {
					t.Error(got)
				}
				if end := entrance.sched.settled()[0]; scheduler.ReasonOf(end) != scheduler.EngineFailed {
					t.Errorf("the route ended with %v", end)
				}
			})
			t.Run("the peer dies", func(t *testing.T) {
				entrance, _, host := setUp(sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStall, After: 4}}})
				got := stream(t, entrance.url, 5, func() { host.Close() })
				if a := readAnswer(t, got.body); a.text != wantText() || a.err != nil || !comment.MatchString(got.body) {
					t.Error(got)
				}
				if end := entrance.sched.settled()[0]; scheduler.ReasonOf(end) != scheduler.PeerGone {
					t.Errorf("the route ended with %v", end)
				}
			})
		})
	}
}
