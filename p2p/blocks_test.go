package p2p

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multihash"

	"relay/p2p/membership"
)

var bothTransports = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}

// request is what Files is asked for.
type request struct {
	root     cid.Cid
	from, to int64
	check    bool
}

// filesOf answers as a test says.
type filesOf struct {
	have func(root cid.Cid) ([]byte, bool, error)
	open func(ctx context.Context, r request) (io.ReadCloser, int64, error)
}

func (f filesOf) Have(root cid.Cid) ([]byte, bool, error) { return f.have(root) }

func (f filesOf) OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (io.ReadCloser, int64, error) {
	return f.open(ctx, request{root, from, to, check})
}

// fileOf is one file, of which the first bytes are here.
func fileOf(root cid.Cid, data []byte, here int) filesOf {
	absent := fault("not_found", "not on this machine")
	return filesOf{
		have: func(asked cid.Cid) ([]byte, bool, error) {
			if asked != root {
				return nil, false, absent
			}
			return []byte{1<<(here>>20) - 1}, here == len(data), nil
		},
		open: func(_ context.Context, r request) (io.ReadCloser, int64, error) {
			if r.root != root || r.from >= int64(here) {
				return nil, 0, absent
			}
			part := data[r.from:min(r.to, int64(here))]
			return io.NopCloser(bytes.NewReader(part)), int64(len(part)), nil
		},
	}
}

func testRoot(name string) cid.Cid {
	hash, err := multihash.Sum([]byte(name), multihash.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return cid.NewCidV1(cid.DagProtobuf, hash)
}

// pairOn is a founder that serves files, and a member of trust replicas beside it.
func pairOn(t testing.TB, transport string, files Files, ready ...func(holder *Node)) (holder, asker *machine) {
	t.Helper()
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	holder = newMachine(t)
	holder.listen, holder.files = addrs(transport), files
	holder.open(t, key.ID(), "attic", func(n *Node) error {
		for _, f := range ready {
			f(n)
		}
		return n.Found(key, "attic's mesh")
	})
	asker = newMachine(t)
	admission, err := Join(t.Context(), asker.key, invite(t, holder, 1), "den", agent)
	if err != nil {
		t.Fatal(err)
	}
	asker.listen = addrs(transport)
	asker.open(t, admission.Mesh, "den", func(n *Node) error { return n.Adopt(admission) })
	eventually(t, 10*time.Second, "both alive", func() bool { return seesAlive(holder, 2)() && seesAlive(asker, 2)() })
	return holder, asker
}

// take reads a range to its end.
func take(t *testing.T, from, by *machine, root cid.Cid, first, end int64) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := by.Range(ctx, from.Self(), root, first, end, false)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

func TestAFileComesInRanges(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			root, data := testRoot("model"), randomBytes(5<<20+12345)
			attic, den := pairOn(t, transport, fileOf(root, data, len(data)))
			have, whole, err := den.Have(t.Context(), attic.Self(), root)
			if err != nil || !whole || len(have) != 0 {
				t.Errorf("it has %v, whole %v, %v", have, whole, err)
			}
			const part = 1<<20 + 7
			var all sync.WaitGroup
			got := make([]byte, len(data))
			for from := int64(0); from < int64(len(data)); from += part {
				all.Go(func() {
					to := min(from+part, int64(len(data)))
					part, err := take(t, attic, den, root, from, to)
					if err != nil {
						t.Error(err)
					}
					copy(got[from:to], part)
				})
			}
			all.Wait()
			if !bytes.Equal(got, data) {
				t.Error("other bytes came")
			}
			if end, err := take(t, attic, den, root, 5<<20, 6<<20); err != nil || !bytes.Equal(end, data[5<<20:]) {
				t.Errorf("%d bytes of the end, %v", len(end), err)
			}
		})
	}
}

// TestWhatIsNotHere: a range ends where the holder has no more, and says in words
// when there is nothing.
func TestWhatIsNotHere(t *testing.T) {
	root, data := testRoot("model"), randomBytes(5<<20)
	attic, den := pairOn(t, bothTransports[0], fileOf(root, data, 3<<20))
	have, whole, err := den.Have(t.Context(), attic.Self(), root)
	if err != nil || whole || !bytes.Equal(have, []byte{0b111}) {
		t.Errorf("it has %b, whole %v, %v", have, whole, err)
	}
	if got, err := take(t, attic, den, root, 1<<20, 5<<20); err != nil || !bytes.Equal(got, data[1<<20:3<<20]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, _, noFile := den.Have(t.Context(), attic.Self(), testRoot("another"))
	_, noByte := take(t, attic, den, root, 3<<20, 4<<20)
	for _, err := range []error{noFile, noByte} {
		if !errors.Is(err, ErrNotHere) || !strings.HasSuffix(err.Error(), "it is not here") {
			t.Errorf("got %v", err)
		}
	}
	for _, r := range [][2]int64{{-1, 1}, {1, 1}, {2, 1}, {0, MaxRange + 1}} {
		if _, err := den.Range(t.Context(), attic.Self(), root, r[0], r[1], false); err == nil {
			t.Errorf("asked for %d", r)
		}
	}
	if _, _, err := attic.Have(t.Context(), den.Self(), root); !errors.Is(err, ErrNotHere) {
		t.Errorf("of one that serves no files: %v", err)
	}
}

// failing gives some bytes and then an error.
type failing struct {
	io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

func (failing) Close() error { return nil }

func TestADamagedFile(t *testing.T) {
	changed := fault("file_changed", "the file is no longer what was added")
	var checked atomic.Bool
	attic, den := pairOn(t, bothTransports[0], filesOf{open: func(_ context.Context, r request) (io.ReadCloser, int64, error) {
		checked.Store(r.check)
		switch r.root {
		case testRoot("changed"):
			return nil, 0, changed
		case testRoot("empty"):
			return failing{strings.NewReader(""), changed}, r.to - r.from, nil
		}
		return failing{bytes.NewReader(make([]byte, 1<<20)), changed}, r.to - r.from, nil
	}})
	for _, name := range []string{"changed", "empty"} {
		if _, err := den.Range(t.Context(), attic.Self(), testRoot(name), 0, 2<<20, true); !errors.Is(err, ErrDamaged) || reasonOf(err) != "file_changed" {
			t.Errorf("%s: %v", name, err)
		} else if !checked.Load() {
			t.Error("it was not asked to check")
		}
	}
	if got, err := take(t, attic, den, testRoot("half"), 0, 2<<20); !errors.Is(err, ErrPeerGone) || len(got) > 1<<20 {
		t.Errorf("a file that breaks off in the middle: %d bytes, %v", len(got), err)
	}
	if checked.Load() {
		t.Error("it was asked to check")
	}
}

// opened is a range at its holder: it gives some bytes, and then waits until its
// context ends.
type opened struct {
	ctx    context.Context
	left   int
	closed chan struct{}
}

func (o *opened) Read(p []byte) (int, error) {
	if o.left == 0 {
		<-o.ctx.Done()
		return 0, o.ctx.Err()
	}
	n := min(len(p), o.left)
	o.left -= n
	return n, nil
}

func (o *opened) Close() error {
	close(o.closed)
	return nil
}

// waiting are files of which each range gives so many bytes, and then waits.
func waiting(n int) (files filesOf, ranges <-chan *opened) {
	list := make(chan *opened, rangesInAll)
	return filesOf{
		have: func(cid.Cid) ([]byte, bool, error) { return nil, true, nil },
		open: func(ctx context.Context, r request) (io.ReadCloser, int64, error) {
			o := &opened{ctx: ctx, left: n, closed: make(chan struct{})}
			list <- o
			return o, r.to - r.from, nil
		},
	}, list
}

// begin opens a range and reads the first bytes of it.
func begin(t *testing.T, ctx context.Context, from, by *machine) io.ReadCloser {
	t.Helper()
	r, err := by.Range(ctx, from.Self(), testRoot("model"), 0, MaxRange, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, pieceSize)); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRangesAtATime: one more than a member may have is refused, and questions
// are still answered.
func TestRangesAtATime(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			files, _ := waiting(pieceSize)
			attic, den := pairOn(t, transport, files)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var open []io.ReadCloser
			for range rangesPerPeer {
				open = append(open, begin(t, ctx, attic, den))
			}
			if _, err := den.Range(ctx, attic.Self(), testRoot("model"), 0, 1, false); !errors.Is(err, ErrBusy) || reasonOf(err) != "busy" {
				t.Errorf("one more: %v", err)
			}
			if _, whole, err := den.Have(ctx, attic.Self(), testRoot("model")); err != nil || !whole {
				t.Errorf("a question meanwhile: %v, %v", whole, err)
			}
			_ = open[0].Close()
			eventually(t, 5*time.Second, "there is room for another", func() bool {
				r, err := den.Range(ctx, attic.Self(), testRoot("model"), 0, MaxRange, false)
				if err == nil {
					open[0] = r
				}
				return err == nil
			})
			for _, r := range open {
				_ = r.Close()
			}
		})
	}
}

func TestTurns(t *testing.T) {
	turns := newTurns(2, 3)
	a, b := peer.ID("a"), peer.ID("b")
	got := []bool{turns.take(a), turns.take(a), turns.take(a), turns.take(b), turns.take(b)}
	if want := []bool{true, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	turns.give(a)
	if !turns.take(b) || turns.take(a) || turns.running() != 3 {
		t.Error("what one gave back is not the other's")
	}
	for _, id := range []peer.ID{a, b, b} {
		turns.give(id)
	}
	if turns.running() != 0 || len(turns.taken) != 0 {
		t.Errorf("%v is left", turns.taken)
	}
}

// TestARangeThatIsNotWanted ends at once at both sides, whether the holder waits
// for its file or for the asker.
func TestARangeThatIsNotWanted(t *testing.T) {
	for _, transport := range bothTransports {
		for name, given := range map[string]int{"while the holder reads": pieceSize, "while the asker takes nothing": MaxRange} {
			for _, by := range []string{"cancel", "close"} {
				t.Run(transport+"/"+name+"/"+by, func(t *testing.T) {
					files, ranges := waiting(given)
					attic, den := pairOn(t, transport, files)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r := begin(t, ctx, attic, den)
					at := <-ranges
					read := make(chan error, 1)
					if given == pieceSize {
						go func() {
							_, err := r.Read(make([]byte, 1))
							read <- err
						}()
					}
					began := time.Now()
					if by == "cancel" {
						cancel()
					} else {
						_ = r.Close()
					}
					within(t, "the holder closes the file", at.closed)
					t.Logf("closed after %s", time.Since(began))
					if given == pieceSize {
						if err := within(t, "the read ends", read); err == nil || by == "cancel" && !errors.Is(err, context.Canceled) {
							t.Errorf("the read ended with %v", err)
						}
					}
					if by == "cancel" {
						if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
							t.Errorf("reads after that: %v", err)
						}
					}
				})
			}
		}
	}
}

// within waits for what should come at once, with room for a busy machine.
func within[T any](t *testing.T, what string, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(2 * time.Second):
		t.Fatalf("not within two seconds: %s", what)
	}
	return got
}

// patient makes a holder wait so long for a piece to be taken.
func patient(patience time.Duration) func(*Node) {
	return func(n *Node) {
		b := newBlockServer(n)
		b.patience = patience
		n.web.answer(ProtocolBlocks, b.routes())
	}
}

func TestAnAskerThatTakesNothing(t *testing.T) {
	for _, transport := range bothTransports {
		t.Run(transport, func(t *testing.T) {
			files, ranges := waiting(MaxRange)
			attic, den := pairOn(t, transport, files, patient(time.Second))
			r := begin(t, t.Context(), attic, den)
			defer r.Close()
			select {
			case <-(<-ranges).closed:
			case <-time.After(10 * time.Second):
				t.Fatal("the holder waits for ever")
			}
			if n, err := io.Copy(io.Discard, r); !errors.Is(err, ErrPeerGone) || n >= MaxRange-pieceSize {
				t.Errorf("%d bytes more, %v", n, err)
			}
		})
	}
}

// TestASlowAskerIsServed: one range takes longer than the holder waits for a piece.
func TestASlowAskerIsServed(t *testing.T) {
	const patience = time.Second
	files, _ := waiting(MaxRange)
	attic, den := pairOn(t, bothTransports[0], files, patient(patience))
	began := time.Now()
	r := begin(t, t.Context(), attic, den)
	defer r.Close()
	tick := time.NewTicker(patience / 50)
	defer tick.Stop()
	for time.Since(began) < 3*patience {
		<-tick.C
		if _, err := io.ReadFull(r, make([]byte, pieceSize)); err != nil {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
	}
}

// TestARangeEndsWithItsRights within two seconds, at both sides, and there is no other.
func TestARangeEndsWithItsRights(t *testing.T) {
	revoke := func(attic, den *machine) error { return attic.Revoke(den.Self(), false) }
	lower := func(attic, den *machine) error { return attic.SetPolicy(den.Self(), "", membership.TrustClient) }
	for _, c := range []struct {
		name, transport string
		take            func(attic, den *machine) error
	}{
		{"revoked", bothTransports[0], revoke},
		{"a client", bothTransports[0], lower},
		{"a client by QUIC", bothTransports[1], lower},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, ranges := waiting(pieceSize)
			attic, den := pairOn(t, c.transport, files)
			r := begin(t, t.Context(), attic, den)
			defer r.Close()
			at := <-ranges
			read := make(chan error, 1)
			go func() {
				_, err := r.Read(make([]byte, 1))
				read <- err
			}()
			if err := c.take(attic, den); err != nil {
				t.Fatal(err)
			}
			within(t, "the holder closes the file", at.closed)
			if err := within(t, "the read ends", read); !errors.Is(err, ErrPeerGone) {
				t.Errorf("the read ended with %v", err)
			}
			if c.name == "revoked" {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if _, err := den.Range(ctx, attic.Self(), testRoot("model"), 0, 1, false); err == nil {
					t.Error("the revoked began another range")
				}
				return
			}
			eventually(t, 10*time.Second, "it is told that this is not for clients", func() bool {
				_, err := den.Range(t.Context(), attic.Self(), testRoot("model"), 0, 1, false)
				_, _, errHave := den.Have(t.Context(), attic.Self(), testRoot("model"))
				if err == nil || errHave == nil {
					t.Fatal("a client was answered")
				}
				return errors.Is(err, ErrRefused) && errors.Is(errHave, ErrRefused)
			})
		})
	}
}

// TestWhoMayHaveWhichBytes is asked for every request: what is kept open for the
// next one gives no right.
func TestWhoMayHaveWhichBytes(t *testing.T) {
	root, data := testRoot("model"), randomBytes(1<<20)
	attic, den := pairOn(t, bothTransports[0], fileOf(root, data, len(data)), func(n *Node) {
		n.MayHave = func(id peer.ID, trust membership.Trust, c cid.Cid, from, to int64) bool {
			return trust == membership.TrustReplicas && c == root && from == 100 && to == 200 && id != n.Self()
		}
	})
	if got, err := take(t, attic, den, root, 100, 200); err != nil || !bytes.Equal(got, data[100:200]) {
		t.Errorf("its own bytes: %d, %v", len(got), err)
	}
	if _, err := take(t, attic, den, root, 100, 201); !errors.Is(err, ErrRefused) || reasonOf(err) != "not_allowed" {
		t.Errorf("a byte more: %v", err)
	}
	if _, _, err := den.Have(t.Context(), attic.Self(), root); !errors.Is(err, ErrRefused) {
		t.Errorf("what is here, without a right to the root's block: %v", err)
	}
}

// TestAPeerThatDoesNotKnowRanges is told apart, soon, and its connection stays.
func TestAPeerThatDoesNotKnowRanges(t *testing.T) {
	attic, den := pairOn(t, bothTransports[0], nil, func(n *Node) { n.host.RemoveStreamHandler(ProtocolBlocks) })
	conns := den.host.Network().ConnsToPeer(attic.Self())
	began := time.Now()
	_, _, err := den.Have(t.Context(), attic.Self(), testRoot("model"))
	if !errors.Is(err, ErrProtocol) || reasonOf(err) != "protocol_mismatch" || time.Since(began) > 2*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	if _, err := den.Range(t.Context(), attic.Self(), testRoot("model"), 0, 1, false); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	if !slices.Equal(conns, den.host.Network().ConnsToPeer(attic.Self())) {
		t.Error("the connection did not stay")
	}
}

// TestARangeIsUseOfALink, as is a stream that is kept for the next one.
func TestARangeIsUseOfALink(t *testing.T) {
	files, _ := waiting(pieceSize)
	attic, den := pairOn(t, bothTransports[0], files)
	used := func() bool { return slices.ContainsFunc(den.host.Network().ConnsToPeer(attic.Self()), carries) }
	eventually(t, 10*time.Second, "nothing is under way", func() bool { return !used() })
	r := begin(t, t.Context(), attic, den)
	if !used() {
		t.Error("a range is no use of a link")
	}
	_ = r.Close()
	eventually(t, 5*time.Second, "nothing is under way again", func() bool { return !used() })
	if _, err := take(t, attic, den, testRoot("model"), 0, pieceSize); err != nil || !used() {
		t.Errorf("the stream was not kept: %v", err)
	}
	den.web.channels[ProtocolBlocks].client.CloseIdleConnections()
	eventually(t, 5*time.Second, "nothing is kept", func() bool { return !used() })
}

// TestNothingOfARangeIsLeft once Run of either side has returned.
func TestNothingOfARangeIsLeft(t *testing.T) {
	files, ranges := waiting(pieceSize)
	attic, den := pairOn(t, bothTransports[0], files)
	r := begin(t, t.Context(), attic, den)
	defer r.Close()
	attic.stop()
	select {
	case <-(<-ranges).closed:
	default:
		t.Error("the file is open still")
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, ErrPeerGone) {
		t.Errorf("the asker reads on: %v", err)
	}
}
