package main_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"relay/api"
	"relay/scheduler"
)

// TestNetTwoLeaders: a mesh is cut, a model is led and served on both sides, and
// healed: one placement is left, one engine, and on the side that kept its replica
// no request was lost.
func TestNetTwoLeaders(t *testing.T) {
	n := newNetworkWith(t, nil)
	west, east := []string{"a", "b"}, []string{"c", "d"}
	n.machines(slices.Concat(west, east)...)
	n.mesh("a", "b", "c", "d")
	n.held("a", "c")
	n.servedOn(20*time.Second, "b", "a")
	n.servedOn(20*time.Second, "d", "a")

	asking := n.askOn("b", "m")
	n.must(n.Cut(west, east))
	n.servedOn(30*time.Second, "d", "c") // The east has a leader and a replica of its own by now.
	n.must(n.stage.Chat(n.Context(), n.peers["d"], "m", "hello", 4, func(string) {}))
	n.servedOn(time.Second, "b", "a")
	if engines := n.engines("a") + n.engines("c"); engines != 2 {
		t.Errorf("%d engines on two sides", engines)
	}
	n.must(n.Mend(west, east))
	n.allAlive(60*time.Second, "a", "b", "c", "d")
	took := n.eventually(30*time.Second, "one placement and one engine", func() error {
		var one string
		for _, name := range slices.Concat(west, east) {
			m, err := n.model(name)
			if err != nil {
				return err
			}
			if m.Leader == nil || len(m.Replicas) != 1 || m.Replicas[0].State != scheduler.StateReady {
				return fmt.Errorf("%s sees %+v led by %v", name, m.Replicas, m.Leader)
			}
			is := fmt.Sprint(*m.Leader, m.Replicas[0].Peer)
			if one == "" {
				one = is
			}
			if is != one {
				return fmt.Errorf("%s has %s, a has %s", name, is, one)
			}
		}
		if engines := n.engines("a") + n.engines("c"); engines != 1 {
			return fmt.Errorf("%d engines", engines)
		}
		return nil
	})
	t.Logf("one placement %.1f s after healing", took.Seconds())
	kept, err := n.model("a")
	n.must(err)
	answered, lost := asking()
	if answered == 0 {
		t.Error("nothing was asked meanwhile")
	}
	// What was asked on the side whose replica went moved to the other one unseen, too.
	if lost != nil {
		t.Errorf("of %d requests in the west one was lost, %s keeps it: %v", answered, kept.Replicas[0].Peer, lost)
	}
}

// held adds the model m on one peer, and has another one pull it.
func (n *network) held(first, second string) {
	n.Helper()
	n.relay(first, "model", "add", "m", n.demoFile(), "--json")
	n.eventually(10*time.Second, second+" knows who holds it", func() error {
		if m, err := n.model(second); err != nil || len(m.Holders) == 0 {
			return fmt.Errorf("%v: held by %v", err, m.Holders)
		}
		return nil
	})
	n.relay(second, "model", "pull", "m")
}

// model is the model m as a peer sees it.
func (n *network) model(by string) (m scheduler.ModelState, err error) {
	ctx, cancel := context.WithTimeout(n.Context(), 5*time.Second)
	defer cancel()
	var s api.Status
	if err := n.peers[by].Ask(ctx, "/v0/status", nil, &s); err != nil {
		return m, err
	}
	for _, m := range s.Models {
		if m.Name == "m" {
			return m, nil
		}
	}
	return m, fmt.Errorf("%s knows no such model", by)
}

// servedOn waits until a peer sees the model ready on another one.
func (n *network) servedOn(within time.Duration, by, on string) {
	n.Helper()
	n.eventually(within, fmt.Sprintf("%s sees the model on %s", by, on), func() error {
		m, err := n.model(by)
		if err != nil {
			return err
		}
		id := ""
		var s api.Status
		if err := n.peers[by].Ask(n.Context(), "/v0/status", nil, &s); err != nil {
			return err
		}
		for _, p := range s.Peers {
			if p.Name == on {
				id = p.ID
			}
		}
		for _, r := range m.Replicas {
			if r.Peer == id && r.State == scheduler.StateReady {
				return nil
			}
		}
		return fmt.Errorf("%+v", m.Replicas)
	})
}

// askOn asks a model through a peer, again and again, until the func is called: it
// returns how many requests were answered, and the error of the first that was not.
func (n *network) askOn(by, model string) (stop func() (answered int64, lost error)) {
	ctx, cancel := context.WithCancel(n.Context())
	var ends sync.WaitGroup
	var count atomic.Int64
	var first error
	ends.Go(func() {
		for ctx.Err() == nil {
			// One that has begun is finished.
			err := n.stage.Chat(context.WithoutCancel(ctx), n.peers[by], model, "hello", 8, func(string) {})
			if err != nil {
				first = err
				return
			}
			count.Add(1)
		}
	})
	return func() (int64, error) {
		cancel()
		ends.Wait()
		return count.Load(), first
	}
}

// engines counts the engines of a peer's process.
func (n *network) engines(name string) (count int) {
	n.Helper()
	p, err := process.NewProcess(int32(n.peers[name].Pid()))
	n.must(err)
	shims, err := p.Children()
	if err != nil {
		return 0 // It has none.
	}
	for _, shim := range shims {
		if below, err := shim.Children(); err == nil {
			count += len(below)
		}
	}
	return count
}
