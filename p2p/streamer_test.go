package p2p

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

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
