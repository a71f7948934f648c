package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"

	"relay/p2p/liveness"
	"relay/p2p/neighbours"
)

// TestFortyPeers: real hosts on loopback, more than keep links to all others. No
// other test runs beside it: it takes all that the machine has.
func TestFortyPeers(t *testing.T) {
	const n = 40
	first := found(t, nameOf(0))
	inv := invite(t, first, n-1)
	machines := make([]*machine, n)
	machines[0] = first
	var joins sync.WaitGroup
	slots := make(chan struct{}, 4) // Strangers that one address may have at a time are not what is tested.
	for i := 1; i < n; i++ {
		joins.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			m := newMachine(t)
			admission, err := Join(t.Context(), m.key, inv, nameOf(i), agent)
			if err != nil {
				t.Errorf("%s does not join: %v", nameOf(i), err)
				return
			}
			m.admission = &admission
			machines[i] = m
		})
	}
	joins.Wait()
	if t.Failed() {
		t.FailNow()
	}
	waiting := make(chan string)
	for i, m := range machines[1:] {
		m.open(t, m.admission.Mesh, nameOf(i+1), func(node *Node) error {
			answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, node.Name)
				if r.URL.Path == "/wait" {
					waiting <- node.Name
					<-r.Context().Done()
				}
			})
			node.Serve(answer, answer)
			return node.Adopt(*m.admission)
		})
	}
	began := time.Now()
	eventually(t, 90*time.Second, "all see all alive", func() bool { return agree(machines, liveness.Alive, machines...) })
	t.Logf("all alive %s after the last was started", time.Since(began).Round(10*time.Millisecond))

	// While they joined they were few, and linked to all: what is too much goes.
	eventually(t, 3*keptUnused, "links that are not needed are let go", func() bool {
		return !slices.ContainsFunc(machines, func(m *machine) bool { return len(m.Node.host.Network().Peers()) > neighbours.Most })
	})
	t.Logf("no more than %d links each %s after that start", neighbours.Most, time.Since(began).Round(time.Second))
	eventually(t, 60*time.Second, "all see all alive still", func() bool { return agree(machines, liveness.Alive, machines...) })

	asker, asked := unlinkedPair(t, machines)
	for _, p := range asker.Peers() {
		if p.ID == asked.Self() && (p.Transport != "" || p.State != liveness.Alive || p.Silence < 0 || p.Silence > liveness.FarSuspectAfter) {
			t.Errorf("without a link it is listed as %+v", p)
		}
	}
	if body := get(t, asker.HTTP(asked.Self())); body != asked.Name {
		t.Errorf("%s answered, not %s", body, asked.Name)
	}
	if !asker.links.isLinked(asked.Self()) {
		t.Error("the connection was not kept for the next request")
	}
	keptWhileNeeded(t, asker, asked, waiting)

	asker, asked = unlinkedPair(t, machines)
	if body := get(t, asker.Control(asked.Self())); body != asked.Name {
		t.Errorf("%s answered a question, not %s", body, asked.Name)
	}

	asker, asked = unlinkedPair(t, machines)
	if _, _, err := asker.Have(t.Context(), asked.Self(), testRoot("model")); !errors.Is(err, ErrNotHere) || !asker.links.isLinked(asked.Self()) {
		t.Errorf("what one has of a file that is not linked to the asker: %v", err)
	}

	asker, asked = unlinkedPair(t, machines)
	block := blocks.NewBlock([]byte("a block that one has who is not linked to the asker"))
	if err := asked.blocks.Put(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := asker.Reach(ctx, asked.Self()); err != nil { // As whoever pulls a model does with its holders.
		t.Fatal(err)
	}
	if _, err := asker.Fetch(ctx).GetBlock(ctx, block.Cid()); err != nil {
		t.Errorf("a block of a member that was reached for it: %v", err)
	}

	dead := machines[n/2]
	rest := slices.Concat(machines[:n/2], machines[n/2+1:])
	dead.stop()
	killed := time.Now()
	eventually(t, 20*time.Second, "gone everywhere", func() bool { return agree(rest, liveness.Gone, dead) })
	t.Logf("gone everywhere %s after it ended", time.Since(killed).Round(10*time.Millisecond))
	eventually(t, 20*time.Second, "the others alive", func() bool { return agree(rest, liveness.Alive, rest...) })
}

// unlinkedPair finds two that are alive to each other and not connected.
func unlinkedPair(t *testing.T, machines []*machine) (a, b *machine) {
	t.Helper()
	for _, a := range machines {
		for _, b := range machines[1:] { // Who serves.
			if a != b && !a.links.isLinked(b.Self()) && look(a, b) == liveness.Alive {
				return a, b
			}
		}
	}
	t.Fatal("all are linked to all")
	return nil, nil
}

// keptWhileNeeded: a link that a request has made stays for as long as it runs,
// and is let go a minute after its last use.
func keptWhileNeeded(t *testing.T, asker, asked *machine, waiting <-chan string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://replica/wait", nil)
	var asking sync.WaitGroup
	asking.Go(func() {
		if response, err := asker.HTTP(asked.Self()).RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
	<-waiting
	l := asker.links
	// unused makes it look as if nothing had needed the link for long.
	unused := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		k := l.members[asked.Self()]
		k.used, k.since = k.used-2*keptUnused, k.since-2*keptUnused
	}
	used := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.now()-l.members[asked.Self()].used < keptUnused
	}
	unused()
	eventually(t, 10*time.Second, "the link is seen to be in use", used)
	if !l.isLinked(asked.Self()) {
		t.Error("a link was let go on which a request runs")
	}
	cancel()
	asking.Wait()
	asker.web.channels[ProtocolHTTP].client.CloseIdleConnections()
	eventually(t, 10*time.Second, "the link is let go", func() bool {
		unused()
		return !l.isLinked(asked.Self())
	})
}

func get(t *testing.T, by http.RoundTripper) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://replica/x", nil)
	response, err := by.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
