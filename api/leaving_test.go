package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
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
