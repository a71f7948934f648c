package tunnel

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pair is a TCP connection with both its ends.
func pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// joined is a tunnel between two connections: what it ends with comes out of done.
func joined(t testing.TB, m *Meter) (left, right *net.TCPConn, done <-chan error) {
	t.Helper()
	left, a := pair(t)
	b, right := pair(t)
	ended := make(chan error, 1)
	go func() { ended <- Join(a, b, m) }()
	return left, right, ended
}

func await(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
		return nil
	}
}

// TestBytesGoThroughAsTheyAre: in any pieces, both ways at once, and counted.
func TestBytesGoThroughAsTheyAre(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3*bufferSize), 0, 12)
		there, back := sizes.Draw(rt, "there"), sizes.Draw(rt, "back")
		seed := rapid.Uint64().Draw(rt, "seed")
		var m Meter
		left, right, done := joined(t, &m)
		send := func(c *net.TCPConn, sizes []int, seed uint64) []byte {
			random := rand.New(rand.NewPCG(seed, 0))
			var all []byte
			for _, size := range sizes {
				piece := make([]byte, size)
				for i := range piece {
					piece[i] = byte(random.Uint32())
				}
				all = append(all, piece...)
			}
			go func() {
				rest := all
				for _, size := range sizes {
					if _, err := c.Write(rest[:size]); err != nil {
						return
					}
					rest = rest[size:]
				}
				_ = c.CloseWrite()
			}()
			return all
		}
		out, in := send(left, there, seed), send(right, back, seed+1)
		atLeft := make(chan []byte, 1)
		go func() { got, _ := io.ReadAll(left); atLeft <- got }()
		if got, err := io.ReadAll(right); err != nil || !bytes.Equal(got, out) {
			rt.Fatalf("%d bytes of %d came, %v", len(got), len(out), err)
		}
		if got := <-atLeft; !bytes.Equal(got, in) {
			rt.Fatalf("%d bytes of %d came back", len(got), len(in))
		}
		if err := await(t, done); err != nil {
			rt.Fatalf("ended with %v", err)
		}
		if o, i, _ := m.Read(); o != uint64(len(out)) || i != uint64(len(in)) {
			rt.Fatalf("counted %d and %d of %d and %d", o, i, len(out), len(in))
		}
	})
}

// TestTurns: a question and its answer are one turn, however many pieces they
// come in, and what is sent without an answer is none.
func TestTurns(t *testing.T) {
	var m Meter
	left, right, done := joined(t, &m)
	pass := func(from, to net.Conn, pieces int) {
		t.Helper()
		for range pieces {
			if _, err := from.Write([]byte("piece")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(to, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
		}
	}
	turns := func(want uint64) {
		t.Helper()
		if _, _, got := m.Read(); got != want {
			t.Errorf("%d turns, want %d", got, want)
		}
	}
	pass(right, left, 1) // Unasked.
	turns(0)
	for i := range uint64(10) {
		pass(left, right, 3)
		turns(i)
		pass(right, left, 2)
		turns(i + 1)
	}
	_ = left.CloseWrite()
	_ = right.CloseWrite()
	if err := await(t, done); err != nil {
		t.Error(err)
	}
}

// TestOneEndEndsTheOther: what is under way comes through, in each direction, when
// the other one has ended.
func TestOneEndEndsTheOther(t *testing.T) {
	for _, name := range []string{"left", "right"} {
		t.Run(name, func(t *testing.T) {
			left, right, done := joined(t, nil)
			first, second := left, right
			if name == "right" {
				first, second = right, left
			}
			_, _ = first.Write([]byte("last words"))
			_ = first.CloseWrite()
			if got, err := io.ReadAll(second); err != nil || string(got) != "last words" {
				t.Fatalf("%q, %v", got, err)
			}
			_, _ = second.Write([]byte("the answer"))
			_ = second.CloseWrite()
			if got, err := io.ReadAll(first); err != nil || string(got) != "the answer" {
				t.Fatalf("%q, %v", got, err)
			}
			if err := await(t, done); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNothingLingers: whatever one end does, the tunnel ends, and so does the
// other end, in a few seconds.
func TestNothingLingers(t *testing.T) {
	for name, act := range map[string]func(left, right *net.TCPConn){
		"reset":                      func(left, _ *net.TCPConn) { _ = left.SetLinger(0); _ = left.Close() },
		"ended, and no answer comes": func(left, _ *net.TCPConn) { _ = left.CloseWrite() },
		"ended, and the answer is not taken": func(left, right *net.TCPConn) {
			_ = left.CloseWrite()
			_ = right.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = right.Write(make([]byte, 64<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left, right, done := joined(t, nil)
			act(left, right)
			if err := await(t, done); err == nil {
				t.Error("it came to a good end")
			}
			for _, c := range []*net.TCPConn{left, right} {
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
					t.Error("an end stands")
				}
			}
		})
	}
}

// TestClosedFromOutside: whoever gave one connection can end both by it, also
// while the other side takes nothing.
func TestClosedFromOutside(t *testing.T) {
	left, a := pair(t)
	b, _ := pair(t)
	done := make(chan error, 1)
	go func() { done <- Join(a, b, nil) }()
	_ = left.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = left.Write(make([]byte, 64<<20))
	_ = b.Close()
	if err := await(t, done); err == nil {
		t.Error("it came to a good end")
	}
	_ = left.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := left.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the other end: %v", err)
	}
}

// fillUp writes until nothing more is taken.
func fillUp(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(make([]byte, 64<<20)); !os.IsTimeout(err) {
		t.Fatalf("not full: %v", err)
	}
}

// plain is a connection that hides all but what any has.
type plain struct{ net.Conn }

// TestBothClosedWhileFull: neither side takes anything, and whoever gave both
// connections closes them.
func TestBothClosedWhileFull(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"as they are": func(c net.Conn) net.Conn { return c },
		"wrapped":     func(c net.Conn) net.Conn { return plain{c} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left, a := pair(t)
			b, right := pair(t)
			done := make(chan error, 1)
			go func() { done <- Join(wrap(a), wrap(b), nil) }()
			fillUp(t, left)
			fillUp(t, right)
			_, _ = a.Close(), b.Close()
			select {
			case err := <-done:
				if err == nil {
					t.Error("it came to a good end")
				}
			case <-time.After(time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// forwarding is a connection that wraps another one, and hides nothing that counts.
type forwarding struct{ net.Conn }

func (f forwarding) Reset() error { return Reset(f.Conn) }

// TestResetThroughWrappers: the far side sees a reset, not the end of what came.
func TestResetThroughWrappers(t *testing.T) {
	left, a := pair(t)
	b, right := pair(t)
	done := make(chan error, 1)
	go func() { done <- Join(a, forwarding{forwarding{b}}, nil) }()
	if _, err := left.Write([]byte("half a message")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(right, make([]byte, 14)); err != nil {
		t.Fatal(err)
	}
	_ = Reset(left)
	if err := await(t, done); err == nil {
		t.Error("it came to a good end")
	}
	_ = right.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := right.Read(make([]byte, 1)); err == nil || err == io.EOF || os.IsTimeout(err) {
		t.Errorf("the far side sees %v", err)
	}
}

// TestWithoutHalves: a connection that cannot say that one direction has ended
// ends with it.
func TestWithoutHalves(t *testing.T) {
	left, a := pair(t)
	b, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Join(a, b, nil) }()
	_ = left.CloseWrite()
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("something came")
	}
	if err := await(t, done); err != io.EOF {
		t.Errorf("ended with %v", err)
	}
}
