package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/store/audit"
)

// dialDoor opens a connection to a door, for ten seconds.
func dialDoor(t *testing.T, p *testPeer) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

// posted is a request for a chat, as it goes over the wire.
func posted(body string) string {
	return head(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
}

// TestHalfClosed: a client that shuts its side of the connection has left, as far as can be
// told, and gets no answer that looks like a whole one.
func TestHalfClosed(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			told := make(chan audit.Row, 1)
			p := newPeer(t, "one", sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStall, After: 2}}}, func(o *DoorOptions) {
				o.Audit = func(r audit.Row) { told <- r }
			})
			c := dialDoor(t, p)
			fmt.Fprint(c, posted(chatBody(testModel, stream)))
			await(t, p.engine, func(st sim.State) bool { return st.Active == 1 })
			in := bufio.NewReader(c)
			if stream { // The headers are gone then.
				if _, err := in.Peek(1); err != nil {
					t.Fatal(err)
				}
			}
			c.CloseWrite()
			resp, err := http.ReadResponse(in, nil)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			if err == nil || (resp != nil) != stream {
				t.Errorf("%v, %v", resp, err)
			}
			if row := <-told; row.Status != statusGone {
				t.Errorf("its row says %d", row.Status)
			}
		})
	}
}

// TestLeavingAfterEarlyBytes: bytes after a request, of another one or not, do not hide that
// the client has left.
func TestLeavingAfterEarlyBytes(t *testing.T) {
	next := posted(chatBody(testModel, false))
	for _, c := range []struct {
		name, early string
	}{
		{"a line's end", "\r\n"},
		{"another request", next},
		{"as much as is kept", strings.Repeat("x", mostEarly)},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", c.name, stream), func(t *testing.T) {
				told := make(chan audit.Row, 1)
				p := newPeer(t, "one", sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStall, After: 2}}}, func(o *DoorOptions) {
					o.Audit = func(r audit.Row) { told <- r }
				})
				conn := dialDoor(t, p)
				fmt.Fprint(conn, posted(chatBody(testModel, stream)))
				await(t, p.engine, func(st sim.State) bool { return st.Active == 1 })
				fmt.Fprint(conn, c.early)
				select { // It is not taken for a going.
				case row := <-told:
					t.Fatalf("ended by itself: %+v", row)
				case <-time.After(20 * time.Millisecond):
				}
				left := time.Now()
				conn.Close()
				ends := p.sched.settled()
				if took := time.Since(left); took > 100*time.Millisecond {
					t.Errorf("the route ended after %v", took)
				}
				if len(ends) != 1 || !errors.Is(ends[0], context.Canceled) {
					t.Errorf("the routes ended with %v", ends)
				}
				if row := <-told; row.Status != statusGone {
					t.Errorf("its row says %d", row.Status)
				}
			})
		}
	}
}

// TestPipelined: requests that come before their turn are answered in turn, those too that
// come in pieces while one before them is served.
func TestPipelined(t *testing.T) {
	for _, stream := range []bool{false, true} {
		p := newPeer(t, "one", sim.Options{DecodeRate: 100}, nil) // 12 tokens
		conn := dialDoor(t, p)
		next := posted(chatBody(testModel, stream))
		fmt.Fprint(conn, next+next[:10])
		await(t, p.engine, func(st sim.State) bool { return st.Active == 1 })
		for _, piece := range []string{next[10:11], next[11:200], next[200:] + "\r\n" + next} {
			fmt.Fprint(conn, piece)
			runtime.Gosched()
		}
		in := bufio.NewReader(conn)
		for nth := range 3 {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("stream=%v, answer %d: %v", stream, nth, err)
			}
			body, err := io.ReadAll(resp.Body)
			if a := readAnswer(t, string(body)); err != nil || resp.StatusCode != 200 || a.text != wantText() || a.done != stream {
				t.Errorf("stream=%v, answer %d: %s %s %v", stream, nth, resp.Status, body, err)
			}
		}
		fmt.Fprint(conn, "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+testKey+"\r\n\r\n")
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("stream=%v, after them: %v %v", stream, resp, err)
		}
	}
}

// TestPipelinedLarge: one that is larger than what is kept comes whole, too.
func TestPipelinedLarge(t *testing.T) {
	p := newPeer(t, "one", sim.Options{DecodeRate: 100}, nil)
	conn := dialDoor(t, p)
	large := posted(`{"model":"` + testModel + `","messages":[{"role":"user","content":"a"}],"max_tokens":2,"user":"` + strings.Repeat("x", 2*mostEarly) + `"}`)
	fmt.Fprint(conn, posted(chatBody(testModel, true)))
	await(t, p.engine, func(st sim.State) bool { return st.Active == 1 })
	fmt.Fprint(conn, large+large)
	in := bufio.NewReader(conn)
	for nth := range 3 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", nth, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
			t.Errorf("answer %d: %s %s %v", nth, resp.Status, body, err)
		}
	}
}

// lines is a log, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestLeavingWithinTheBody: what another peer forwards and does not end is no fault of the
// request's, unless it is only late.
func TestLeavingWithinTheBody(t *testing.T) {
	for leaves, want := range map[bool]int{true: statusGone, false: http.StatusRequestTimeout} {
		log := make(lines, 10)
		p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
			o.Log = slog.New(slog.NewTextHandler(log, nil))
			o.Deadlines.ReadBody = 50 * time.Millisecond
			if leaves {
				o.Deadlines.ReadBody = 20 * time.Second
			}
		})
		c, err := net.Dial("tcp", p.hopAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "%-32s", "entrance")
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: relay\r\n%s: 1\r\n%s: %s\r\nContent-Length: 500\r\n\r\n{", pathChat, headerHop, headerModel, testUID)
		if leaves {
			c.Close()
		}
		if line := <-log; !strings.Contains(line, fmt.Sprintf(" status=%d ", want)) {
			t.Errorf("leaves=%v: %s", leaves, line)
		}
	}
}
