package p2p

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
)

// runStreamer is a peer in a process of its own, so that it can be frozen. Its handler
// writes a byte every few milliseconds (/stream), or nothing ever (/wait), until who asked
// has left, and says how many of these there are (/count).
func runStreamer(in *bufio.Scanner) error {
	in.Scan()
	inv, err := membership.ParseInvite(in.Text())
	if err != nil {
		return err
	}
	m, err := bareMachine()
	if err != nil {
		return err
	}
	admission, err := Join(context.Background(), m.key, inv, "den", agent)
	if err != nil {
		return err
	}
	return benchNode(admission.Mesh, m, "den", func(n *Node) error {
		n.Serve(streams(new(atomic.Int64)), http.NotFoundHandler())
		return n.Adopt(admission)
	}, func(_ context.Context, n *Node) error {
		fmt.Println(n.Self())
		in.Scan()
		return nil
	})
}

func streams(active *atomic.Int64) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, active.Load()) })
	hold := func(w http.ResponseWriter, r *http.Request, each func()) {
		active.Add(1)
		defer active.Add(-1)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
				each()
			}
		}
	}
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) { hold(w, r, func() {}) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		hold(w, r, func() {
			_, _ = w.Write([]byte{'.'})
			_ = http.NewResponseController(w).Flush()
		})
	})
	return mux
}

// isQuiet says whether requests had better not be at a member.
func isQuiet(m *machine, id peer.ID) bool {
	return slices.ContainsFunc(m.Peers(), func(p Peer) bool { return p.ID == id && p.Quiet })
}

// requests are those that one peer has under way at another.
type requests struct {
	leave   context.CancelFunc
	all     sync.WaitGroup
	began   atomic.Int64 // Whose answers have begun.
	left    atomic.Int64 // That returned.
	started int64
}

// startRequests begins so many, each with a body.
func startRequests(t *testing.T, at *machine, to peer.ID, path string, n int, body string) *requests {
	ctx, leave := context.WithCancel(t.Context())
	a := &requests{leave: leave, started: int64(n)}
	for range n {
		a.all.Go(func() {
			defer a.left.Add(1)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://peer"+path, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			response, err := at.HTTP(to).RoundTrip(r)
			if err != nil {
				return
			}
			defer response.Body.Close()
			one := make([]byte, 1)
			for first := true; ; first = false {
				if _, err := io.ReadFull(response.Body, one); err != nil {
					return
				}
				if first {
					a.began.Add(1)
				}
			}
		})
	}
	return a
}

// count asks a peer how many requests it has under way.
func count(at *machine, to peer.ID) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://peer/count", nil)
	if err != nil {
		return 0, err
	}
	response, err := at.HTTP(to).RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(said))
}
