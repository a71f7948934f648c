package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"relay/p2p/membership"
	"relay/p2p/tunnel"
)

var testCall = ShardCall{UID: "a model", Group: "a group", Epoch: 3, Rank: 1}

// engine is the server that a worker's shard streams lead to.
type engine struct {
	net.Listener
	conns chan net.Conn // Those that came in.
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{listener, make(chan net.Conn, 64)}
	t.Cleanup(func() {
		_ = listener.Close()
		for {
			select {
			case c := <-e.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			e.conns <- c
		}
	}()
	return e
}

// accept lets those in who name the right placement.
func (e *engine) accept(ctx context.Context, _ peer.ID, call ShardCall) (net.Conn, error) {
	switch {
	case call.Epoch > testCall.Epoch:
		return nil, fault("superseded", "epoch 3 is the last one known here")
	case call != testCall:
		return nil, errors.New("this machine has no part of that")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", e.Addr().String())
}

func (e *engine) next(t testing.TB) *net.TCPConn {
	t.Helper()
	select {
	case c := <-e.conns:
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.TCPConn)
	case <-time.After(10 * time.Second):
		t.Fatal("nothing reaches the engine")
		return nil
	}
}

// shardPair is a worker and a coordinator.
func shardPair(t testing.TB, transport string, accept AcceptShard) (worker, coordinator *machine) {
	t.Helper()
	return pairOn(t, transport, nil, func(n *Node) { n.ServeShards(accept) })
}

// call opens a shard stream, or says why not.
func call(t testing.TB, from, to *machine, c ShardCall) (shardConn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := from.OpenShard(ctx, to.Self(), c)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(shardConn), nil
}

func open(t testing.TB, from, to *machine) shardConn {
	t.Helper()
	c, err := call(t, from, to, testCall)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ends waits for the end of a connection.
func ends(t testing.TB, c net.Conn, within time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(within))
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		t.Errorf("it stands after %s", within)
	}
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout() || os.IsTimeout(err)
}

// TestShardStream: bytes come through as they are, both ways, each direction ends
// by itself, and nothing is left on either side; with a connection of its own
// where the worker is dialled by TCP.
func TestShardStream(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			e := newEngine(t)
			attic, den := shardPair(t, transport, e.accept)
			c := open(t, den, attic)
			if _, own := c.(*heldShard).shardConn.(*single); own != strings.Contains(transport, "/tcp/") {
				t.Errorf("goes by a %T", c.(*heldShard).shardConn)
			}
			far := e.next(t)
			there, back := randomBytes(5<<20+17), randomBytes(3<<20+1)
			send := func(c shardConn, data []byte) {
				if _, err := c.Write(data); err != nil {
					t.Error(err)
				}
				if err := c.CloseWrite(); err != nil {
					t.Error(err)
				}
			}
			go send(c, there)
			if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, there) {
				t.Errorf("%d bytes of %d, %v", len(got), len(there), err)
			}
			go func() {
				_, _ = far.Write(back)
				_ = far.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, back) {
				t.Errorf("back: %d bytes of %d, %v", len(got), len(back), err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			nothingStands(t, attic, den)
		})
	}
}

// nothingStands waits until no shard stream is left at any of them.
func nothingStands(t testing.TB, machines ...*machine) {
	t.Helper()
	eventually(t, 10*time.Second, "nothing of it is left", func() bool {
		for _, m := range machines {
			m.shards.held.mu.Lock()
			n := len(m.shards.held.all)
			m.shards.held.mu.Unlock()
			if n > 0 || m.shards.undecided.running() > 0 || m.shards.standing.running() > 0 {
				return false
			}
		}
		return true
	})
}

// TestShardStreamsRefused: each with the worker's sentence and the right reason,
// and nothing reaches the engine.
func TestShardStreamsRefused(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			e := newEngine(t)
			attic, den := shardPair(t, transport, e.accept)
			later, other, long := testCall, testCall, testCall
			later.Epoch, other.Group, long.UID = 4, "another", strings.Repeat("u", 65)
			for name, c := range map[string]struct {
				call ShardCall
				is   error
				says string
			}{
				"newer":    {later, ErrShardStale, "epoch 3 is the last one known here"},
				"other":    {other, ErrShardRefused, "this machine has no part of that"},
				"too long": {long, nil, "1 to 64 bytes"},
				"nameless": {ShardCall{Epoch: 3}, nil, "1 to 64 bytes"},
			} {
				_, err := call(t, den, attic, c.call)
				if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if _, err := call(t, attic, den, testCall); !errors.Is(err, ErrShardRefused) {
				t.Errorf("by one that serves none: %v", err)
			}
			nothingStands(t, attic, den)
			if n := len(e.conns); n > 0 {
				t.Errorf("%d reached the engine", n)
			}
		})
	}
}

// TestWhoOpensShardStreams: coordinators only, to holders only, whichever way.
func TestWhoOpensShardStreams(t *testing.T) {
	e := newEngine(t)
	attic, _ := shardPair(t, bothTransports[0], e.accept)
	for _, trust := range []membership.Trust{membership.TrustReplicas, membership.TrustShardOnly, membership.TrustClient} {
		t.Run(string(trust), func(t *testing.T) {
			inv, _, err := attic.Invite(InviteOptions{Role: membership.RoleMember, Trust: trust, Uses: 1, TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			m := newMachine(t)
			admission, err := Join(t.Context(), m.key, inv, "cellar", agent)
			if err != nil {
				t.Fatal(err)
			}
			m.open(t, admission.Mesh, "cellar", func(n *Node) error {
				n.ServeShards(e.accept)
				return n.Adopt(admission)
			})
			eventually(t, 10*time.Second, "it is in", func() bool { return stateOf(attic, m) == "alive" && stateOf(m, attic) == "alive" })
			opens := func(from, to *machine) bool {
				c, err := call(t, from, to, testCall)
				if err == nil {
					_ = c.Close()
					e.next(t)
				} else if !errors.Is(err, ErrShardRefused) {
					t.Errorf("no answer: %v", err)
				}
				return err == nil
			}
			if got := opens(m, attic); got != (trust == membership.TrustReplicas) {
				t.Errorf("it opens them: %v", got)
			}
			if got := opens(attic, m); got != (trust != membership.TrustClient) {
				t.Errorf("it takes them: %v", got)
			}
			m.stop()
		})
	}
}

// TestStrangersOpenNoSingles: the connection ends before a word is read, and
// fills no log.
func TestStrangersOpenNoSingles(t *testing.T) {
	e := newEngine(t)
	var log bytes.Buffer // Written under the handler's lock, and read once the node has stopped.
	attic, _ := pairOn(t, bothTransports[0], nil, func(n *Node) {
		n.ServeShards(e.accept)
		n.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	key, _, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHost(key, agent, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addr := attic.ListenAddrs()[0]
	s, err := dialSingle(t.Context(), h.Network().(*swarm.Swarm).TransportForDialing(addr), addr, attic.Self())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := callShard(t.Context(), s, testCall); err == nil || isAnswer(err) {
		t.Errorf("a stranger is told: %v", err)
	}
	nothingStands(t, attic)
	if n := len(e.conns); n > 0 {
		t.Errorf("%d reached the engine", n)
	}
	attic.stop()
	var levels []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "peer="+short(h.ID())) && strings.Contains(line, "refused") {
			levels = append(levels, strings.Fields(line)[1])
		}
	}
	if !slices.Equal(levels, []string{"level=DEBUG"}) {
		t.Errorf("logged at %q", levels)
	}
}

// TestGarbledShardCalls: what is no call is refused, at once, whatever it is.
func TestGarbledShardCalls(t *testing.T) {
	e := newEngine(t)
	attic, den := shardPair(t, bothTransports[0], e.accept)
	for name, said := range map[string][]byte{
		"too long": {0, 0, 0xff, 0xff},
		"empty":    {0, 0, 0, 0},
		"no CBOR":  {0, 0, 0, 2, 0xff, 0xff},
		"a list":   {0, 0, 0, 1, 0x80},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		s, err := openRaw(ctx, den.host.Network().ConnsToPeer(attic.Self())[0], ProtocolShard)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write(said)
		if err := readShardAnswer(s); !errors.Is(err, ErrShardRefused) {
			t.Errorf("%s: %v", name, err)
		}
		_ = s.Reset()
		cancel()
	}
	nothingStands(t, attic)
}

// TestTooManyShardStreams: a member has as many as may stand and no more, until
// one ends.
func TestTooManyShardStreams(t *testing.T) {
	e := newEngine(t)
	attic, den := shardPair(t, bothTransports[0], e.accept)
	var standing []shardConn
	for range shardsPerPeer {
		standing = append(standing, open(t, den, attic))
	}
	if _, err := call(t, den, attic, testCall); !errors.Is(err, ErrShardStale) || !strings.Contains(err.Error(), errManyShards.Error()) {
		t.Errorf("one more: %v", err)
	}
	_ = standing[0].Reset()
	eventually(t, 10*time.Second, "there is room again", func() bool {
		_, err := call(t, den, attic, testCall)
		return err == nil
	})
}

// TestSilentShardStreamsTakeNoRoom: who says nothing on many has few undecided, none
// that stands, and is told to come again; when it gives up there is room at once.
func TestSilentShardStreamsTakeNoRoom(t *testing.T) {
	e := newEngine(t)
	attic, den := shardPair(t, bothTransports[0], e.accept)
	link := den.host.Network().ConnsToPeer(attic.Self())[0]
	var silent []shardConn
	for range shardsPerPeer {
		s, err := openRaw(t.Context(), link, ProtocolShard)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, streamConn{s})
	}
	eventually(t, shardCallPatience-time.Second, "all but a few are refused", func() bool {
		h := &attic.shards.held
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.all) == undecidedPerPeer
	})
	if undecided, stand := attic.shards.undecided.running(), attic.shards.standing.running(); undecided != undecidedPerPeer || stand != 0 {
		t.Errorf("%d are undecided, %d stand", undecided, stand)
	}
	if _, err := call(t, den, attic, testCall); !errors.Is(err, ErrShardStale) {
		t.Errorf("one more: %v", err)
	}
	for _, s := range silent {
		_ = s.Reset()
	}
	eventually(t, 10*time.Second, "there is room", func() bool {
		_, err := call(t, den, attic, testCall)
		return err == nil
	})
}

// TestShardStreamsEndWithTheRights: a coordinator that is trusted less, a worker
// that is, and a member that is none any more; whichever way, in two seconds.
func TestShardStreamsEndWithTheRights(t *testing.T) {
	for _, transport := range bothTransports {
		for name, act := range map[string]func(worker, coordinator *machine) error{
			"coordinator": func(attic, den *machine) error { return attic.SetPolicy(den.Self(), "", membership.TrustShardOnly) },
			"revoked":     func(attic, den *machine) error { return attic.Revoke(den.Self(), false) },
			"worker": func(attic, den *machine) error {
				return attic.SetPolicy(attic.Self(), "", membership.TrustClient)
			},
		} {
			t.Run(name+transport, func(t *testing.T) {
				e := newEngine(t)
				attic, den := shardPair(t, transport, e.accept)
				c := open(t, den, attic)
				far := e.next(t)
				if err := act(attic, den); err != nil {
					t.Fatal(err)
				}
				ends(t, c, 2*time.Second)
				ends(t, far, 2*time.Second)
			})
		}
	}
}

// TestAcceptThatHangs: it ends with the node, which does not wait for it, and so
// does whoever called.
func TestAcceptThatHangs(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			asked := make(chan struct{})
			attic, den := shardPair(t, transport, func(ctx context.Context, _ peer.ID, _ ShardCall) (net.Conn, error) {
				close(asked)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			answered := make(chan error, 1)
			go func() {
				_, err := den.OpenShard(t.Context(), attic.Self(), testCall)
				answered <- err
			}()
			<-asked
			began := time.Now()
			attic.stop()
			if took := time.Since(began); took > shardPatience/2 {
				t.Errorf("the node waited %s", took)
			}
			select {
			case err := <-answered:
				if err == nil {
					t.Error("it was accepted")
				}
			case <-time.After(shardPatience):
				t.Error("the caller waits")
			}
		})
	}
}

// TestFrozenFarEnd: the engine takes nothing any more. Both ends go when the worker
// closes what it had connected, when the link or the worker's node ends; and when
// the coordinator gives up its own end goes at once, the engine's with what it had
// not taken.
func TestFrozenFarEnd(t *testing.T) {
	for _, transport := range bothTransports {
		for name, act := range map[string]func(worker, coordinator *machine, c shardConn, leads net.Conn){
			"coordinator": func(_, _ *machine, c shardConn, _ net.Conn) { _ = c.Reset() },
			"worker":      func(_, _ *machine, _ shardConn, leads net.Conn) { _ = leads.Close() },
			"link":        func(_, den *machine, c shardConn, _ net.Conn) { _ = den.host.Network().ClosePeer(c.(*heldShard).other) },
			"node":        func(attic, _ *machine, _ shardConn, _ net.Conn) { attic.stop() },
		} {
			t.Run(name+transport, func(t *testing.T) {
				e := newEngine(t)
				given := make(chan net.Conn, 1)
				attic, den := shardPair(t, transport, func(ctx context.Context, from peer.ID, call ShardCall) (net.Conn, error) {
					c, err := e.accept(ctx, from, call)
					given <- c
					return c, err
				})
				c := open(t, den, attic)
				far := e.next(t)
				wrote := make(chan error, 1)
				go func() {
					_, err := c.Write(make([]byte, 64<<20))
					wrote <- err
				}()
				if _, err := io.ReadFull(far, make([]byte, 1<<20)); err != nil { // It stops in the middle.
					t.Fatal(err)
				}
				act(attic, den, c, <-given)
				select {
				case err := <-wrote:
					if err == nil {
						t.Error("all was written")
					}
				case <-time.After(10 * time.Second):
					t.Error("the coordinator's end stands")
				}
				_ = c.Close()
				if name != "coordinator" { // Before the engine takes anything.
					nothingStands(t, attic, den)
				}
				ends(t, far, 10*time.Second)
				nothingStands(t, attic, den)
			})
		}
	}
}

// TestCoordinatorClosesBothEnds: a tunnel of the coordinator in which neither engine
// takes anything ends at once when it closes both connections.
func TestCoordinatorClosesBothEnds(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			e, near := newEngine(t), newEngine(t)
			attic, den := shardPair(t, transport, e.accept)
			c := open(t, den, attic)
			far := e.next(t)
			left, err := net.Dial("tcp", near.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer left.Close()
			engine := near.next(t)
			done := make(chan error, 1)
			go func() { done <- tunnel.Join(left, c, nil) }()
			for _, from := range []net.Conn{engine, far} {
				_ = from.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := from.Write(make([]byte, 64<<20)); !isTimeout(err) {
					t.Fatalf("not full: %v", err)
				}
			}
			_, _ = left.Close(), c.Close()
			select {
			case <-done:
			case <-time.After(time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// TestNothingOutlivesRun: streams that stand end with either node, and leave no
// goroutine.
func TestNothingOutlivesRun(t *testing.T) {
	for _, who := range []string{"worker", "coordinator"} {
		t.Run(who, func(t *testing.T) {
			e := newEngine(t)
			before := runtime.NumGoroutine()
			attic, den := shardPair(t, bothTransports[0], e.accept)
			c := open(t, den, attic)
			far := e.next(t)
			if who == "worker" {
				attic.stop()
			} else {
				den.stop()
			}
			ends(t, c, 5*time.Second)
			ends(t, far, 5*time.Second)
			attic.stop()
			den.stop()
			if _, err := den.OpenShard(t.Context(), attic.Self(), testCall); !errors.Is(err, ErrPeerGone) {
				t.Errorf("after its end: %v", err)
			}
			eventually(t, 10*time.Second, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// TestShardStreamsKeepTheirLink: a link that nothing else needs stays, at the side
// that would close it.
func TestShardStreamsKeepTheirLink(t *testing.T) {
	e := newEngine(t)
	attic, den := shardPair(t, bothTransports[0], e.accept)
	c := open(t, den, attic)
	isLetGo := func() bool {
		l := den.links
		l.mu.Lock()
		defer l.mu.Unlock()
		k := &link{moved: den.exchange.moved(attic.Self())}
		l.letGo(attic.Self(), k, 2*keptUnused)
		return k.used == 0
	}
	eventually(t, 10*time.Second, "nothing else needs it", func() bool {
		den.web.channels[ProtocolControl].client.CloseIdleConnections()
		for _, link := range den.host.Network().ConnsToPeer(attic.Self()) {
			if carries(link) {
				return false
			}
		}
		return true
	})
	if isLetGo() {
		t.Error("it is let go while a stream stands")
	}
	_ = c.Close()
	eventually(t, 10*time.Second, "it is let go", isLetGo)
}

// TestShardStreamsAgainstTheLink: a coordinator that was dialled by its worker
// dials it where its port was found open.
func TestShardStreamsAgainstTheLink(t *testing.T) {
	e := newEngine(t)
	attic := found(t, "attic")
	den := newMachine(t)
	admission, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", agent)
	if err != nil {
		t.Fatal(err)
	}
	den.open(t, admission.Mesh, "den", func(n *Node) error {
		n.ServeShards(e.accept)
		return n.Adopt(admission)
	})
	eventually(t, 10*time.Second, "the port is found", func() bool {
		conns := attic.host.Network().ConnsToPeer(den.Self())
		return len(conns) == 1 && conns[0].Stat().Direction == network.DirInbound && len(attic.links.doorsOf(den.Self(), conns[0])) > 0
	})
	c := open(t, attic, den)
	if _, own := c.(*heldShard).shardConn.(*single); !own {
		t.Errorf("goes by a %T", c.(*heldShard).shardConn)
	}
}

// TestShardsEndWithTheLink: what has a connection of its own does not stand
// without the link that is watched.
func TestShardsEndWithTheLink(t *testing.T) {
	e := newEngine(t)
	attic, den := shardPair(t, bothTransports[0], e.accept)
	c := open(t, den, attic)
	far := e.next(t)
	if !den.shards.held.with(attic.Self()) || !attic.shards.held.with(den.Self()) {
		t.Error("the link is not known to be needed")
	}
	_ = den.host.Network().ClosePeer(attic.Self())
	ends(t, c, 5*time.Second)
	ends(t, far, 5*time.Second)
	nothingStands(t, attic, den)
}

func FuzzShardCall(f *testing.F) {
	var b bytes.Buffer
	if err := writeFrame(&b, testCall); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 1, 0xa0})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := readShardCall(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, c); err != nil {
			t.Fatal(err)
		}
		if got, err := readShardCall(&again); err != nil || got != c {
			t.Errorf("%+v came back as %+v, %v", c, got, err)
		}
	})
}

func FuzzShardAnswer(f *testing.F) {
	f.Add([]byte{shardOpen, 1, 2})
	f.Add(append([]byte{shardStale}, "not \x1b[31mnow"...))
	f.Add([]byte{9})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		err := readShardAnswer(r)
		switch {
		case len(data) > 0 && data[0] == shardOpen:
			if err != nil || r.Len() != len(data)-1 {
				t.Errorf("open: %v, %d bytes of %d left", err, r.Len(), len(data)-1)
			}
		case err == nil:
			t.Error("no answer is a yes")
		case len(err.Error()) > 2*maxSentence || strings.ContainsRune(fmt.Sprint(err), '\x1b'):
			t.Errorf("said: %q", err)
		}
	})
}

var _ network.Multiplexer = singleMuxer{}
