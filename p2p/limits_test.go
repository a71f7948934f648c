package p2p

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
)

// TestManyRequestsBetweenTwoPeers, all under way at the same time: the library's
// defaults let about 75 streams through, and a connection by QUIC has 256.
func TestManyRequestsBetweenTwoPeers(t *testing.T) {
	const requests = 1000
	for _, transport := range []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"} {
		t.Run(transport, func(t *testing.T) {
			attic := foundOn(t, "attic", transport)
			release := make(chan struct{})
			var waiting sync.WaitGroup
			waiting.Add(requests)
			den := newMachine(t)
			admission, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", "relay/test")
			if err != nil {
				t.Fatal(err)
			}
			den.listen = addrs(transport)
			den.open(t, admission.Mesh, "den", func(n *Node) error {
				n.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					waiting.Done()
					<-release
					fmt.Fprint(w, "ok")
				}), http.NotFoundHandler())
				return n.Adopt(admission)
			})
			eventually(t, 10*time.Second, "both alive", seesAlive(attic, 2))
			errs := make(chan error, requests)
			for range requests {
				go func() {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://replica/x", nil)
					response, err := attic.HTTP(den.Self()).RoundTrip(r)
					if err != nil {
						errs <- err
						return
					}
					defer response.Body.Close()
					if body, err := io.ReadAll(response.Body); err != nil || string(body) != "ok" {
						errs <- fmt.Errorf("%q, %v", body, err)
						return
					}
					errs <- nil
				}()
			}
			there := make(chan struct{})
			go func() { waiting.Wait(); close(there) }()
			select {
			case <-there:
				own, shared := streamsOf(attic, ProtocolHTTP), streamsOf(attic, ProtocolCrowd)
				if own > ownStreams || shared > 2*requests/requestsPerStream+dialsForCrowd {
					t.Errorf("%d requests take %d streams of their own, and %d", requests, own, shared)
				}
			case err := <-errs:
				close(release)
				t.Fatalf("a request ended early: %v", err)
			case <-time.After(30 * time.Second):
				close(release)
				t.Fatal("they do not all get there")
			}
			close(release)
			for range requests {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAnswerThatNobodyReads stops where its buffer is full, and holds up no other
// request between the same peers, those that share a stream with it either.
func TestAnswerThatNobodyReads(t *testing.T) {
	attic := found(t, "attic")
	var sent atomic.Int64
	stopped := make(chan struct{})
	den := newMachine(t)
	admission, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", "relay/test")
	if err != nil {
		t.Fatal(err)
	}
	den.open(t, admission.Mesh, "den", func(n *Node) error {
		n.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/short" {
				fmt.Fprint(w, "ok")
				return
			}
			for block := make([]byte, 16<<10); ; {
				n, err := w.Write(block)
				sent.Add(int64(n))
				if err != nil {
					close(stopped)
					return
				}
			}
		}), http.NotFoundHandler())
		return n.Adopt(admission)
	})
	eventually(t, 10*time.Second, "both alive", seesAlive(attic, 2))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask := func(ctx context.Context, path string) *http.Response {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://replica"+path, nil)
		response, err := attic.web.to(den.Self(), ProtocolCrowd).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	endless := ask(ctx, "/endless")
	defer endless.Body.Close()
	eventually(t, 10*time.Second, "the buffer is full", func() bool { return sent.Load() >= requestBuffer })
	for range 100 {
		response := ask(t.Context(), "/short")
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "ok" {
			t.Fatalf("%q, %v", body, err)
		}
		response.Body.Close()
	}
	if n := sent.Load(); n > requestBuffer+64<<10 {
		t.Errorf("%d bytes went to one who reads none", n)
	}
	cancel() // And its leaving is seen over there, although there is nothing to be read.
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("it is still being answered")
	}
}

// streamsOf counts a machine's streams by one protocol.
func streamsOf(m *machine, id protocol.ID) (n int) {
	for _, c := range m.host.Network().Conns() {
		for _, s := range c.GetStreams() {
			if s.Protocol() == id {
				n++
			}
		}
	}
	return n
}

// TestTwelvePeersJoinOneSeed, all at the same time, by one invite.
func TestTwelvePeersJoinOneSeed(t *testing.T) {
	const joiners = 12
	attic := found(t, "attic")
	inv := invite(t, attic, joiners)
	machines := make([]*machine, joiners)
	var all sync.WaitGroup
	for i := range joiners {
		machines[i] = newMachine(t)
		all.Go(func() {
			admission, err := Join(t.Context(), machines[i].key, inv, fmt.Sprintf("joiner%d", i), "relay/test")
			if err != nil {
				t.Error(err)
				return
			}
			machines[i].admission = &admission
		})
	}
	all.Wait()
	for i, m := range machines {
		if m.admission != nil {
			m.open(t, m.admission.Mesh, fmt.Sprintf("joiner%d", i), func(n *Node) error { return n.Adopt(*m.admission) })
		}
	}
	for _, m := range append(machines, attic) {
		eventually(t, 30*time.Second, "all are alive to one another", seesAlive(m, joiners+1))
	}
	if _, err := Join(t.Context(), newMachine(t).key, inv, "late", "relay/test"); reasonOf(err) != "invite_spent" {
		t.Errorf("one more joined: %v", err)
	}
}

// TestOneUseIsOneMember: of ten that use a single-use invite at once, one is in.
func TestOneUseIsOneMember(t *testing.T) {
	attic := found(t, "attic")
	inv := invite(t, attic, 1)
	results := make(chan error, 10)
	for range cap(results) {
		m := newMachine(t)
		go func() {
			_, err := Join(t.Context(), m.key, inv, "den", "relay/test")
			results <- err
		}()
	}
	in := 0
	for range cap(results) {
		if err := <-results; err == nil {
			in++
		} else if reasonOf(err) != "invite_spent" {
			t.Errorf("refused with %v", err)
		}
	}
	if members := len(attic.Roster().Members()); in != 1 || members != 2 {
		t.Errorf("%d joined, %d are members", in, members)
	}
}

// TestOneAddressKeepsNoOtherOut: the rate of new connections is bounded for each
// address by itself, and for this machine's own not at all.
func TestOneAddressKeepsNoOtherOut(t *testing.T) {
	limits, err := newResourceManager()
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	open := func(from string) error {
		c, err := limits.OpenConnection(network.DirInbound, true, ma.StringCast("/ip4/"+from+"/tcp/1000"))
		if err == nil {
			c.Done()
		}
		return err
	}
	refused := false
	for range 4 * connsPerAddress {
		refused = refused || open("198.51.100.1") != nil
		if err := open("127.0.0.1"); err != nil {
			t.Fatalf("from this machine: %v", err)
		}
	}
	if !refused {
		t.Error("one address may open connections without end")
	}
	if err := open("198.51.100.2"); err != nil {
		t.Errorf("from another address: %v", err)
	}
}
