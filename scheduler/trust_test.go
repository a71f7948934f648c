package scheduler

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/store/content"
)

// What each trust may do, as far as it is this package's to say: a cell for each
// matter and trust. The peer that is meant holds the file, has the most memory,
// and is first in rank; another one can do everything too.
func TestTrust(t *testing.T) {
	type cells struct{ replicas, shardOnly, client bool }
	whole, all := cells{replicas: true}, cells{true, true, true}
	for matter, row := range map[string]struct {
		want cells
		does func(t *testing.T, c *cluster, it, other *fakePeer) bool
	}{
		"leads, coordinates": {whole, func(_ *testing.T, c *cluster, it, _ *fakePeer) bool {
			return it.s.newView().placements[uidOf("m")].leader == it.id.String()
		}},
		"runs whole models": {whole, func(_ *testing.T, _ *cluster, it, _ *fakePeer) bool { return it.engine.count() > 0 }},
		"others' prompts: is sent them": {whole, func(t *testing.T, c *cluster, it, other *fakePeer) bool {
			return mustRoute(t, other) == it.name
		}},
		"others' prompts: takes them": {whole, func(t *testing.T, _ *cluster, it, _ *fakePeer) bool {
			lease, err := it.s.Serve(t.Context(), Want{UID: uidOf("m")})
			if err == nil {
				lease.Done(nil)
			}
			return err == nil
		}},
		"its own door": {all, func(t *testing.T, _ *cluster, it, _ *fakePeer) bool { return mustRoute(t, it) != "" }},
		"whole model files: registers": {whole, func(_ *testing.T, _ *cluster, it, _ *fakePeer) bool {
			_, err := it.s.mayAdd(AddOptions{Name: "another"})
			return ReasonOf(err) != NotAllowed
		}},
		"whole model files: pulls": {whole, func(t *testing.T, _ *cluster, it, _ *fakePeer) bool {
			_, err := it.s.Pull(t.Context(), PullOptions{Name: "m"}, func(content.Progress) {})
			return ReasonOf(err) != NotAllowed
		}},
		"whole model files: brings along": {whole, func(_ *testing.T, _ *cluster, it, other *fakePeer) bool {
			return ReasonOf(other.s.TakeIn(it.id, nil)) != NotAllowed
		}},
		"records: sees the models": {all, func(_ *testing.T, _ *cluster, it, _ *fakePeer) bool { return len(it.s.Models()) == 1 }},
	} {
		for trust, want := range map[membership.Trust]bool{
			membership.TrustReplicas: row.want.replicas, membership.TrustShardOnly: row.want.shardOnly, membership.TrustClient: row.want.client,
		} {
			t.Run(matter+"/"+string(trust), func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, c *cluster) {
					order := c.byRank(uidOf("m"))
					it, other := order[0], order[1]
					c.lends(other, 2<<30)
					c.say(it, said{trust: trust})
					c.hold("m", it, other)
					other.register("m", 1<<30)
					c.pass(10 * time.Second)
					if got := row.does(t, c, it, other); got != want {
						t.Errorf("%v, want %v", got, want)
					}
				})
			})
		}
	}
}

// A peer that may no longer run whole models stops at once, in the middle of its
// requests and without anybody to tell it; the others go to where it runs next.
func TestTrustLowered(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		uid := c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		c.pass(10 * time.Second)
		on, other := c.serving("m", c.peers[0], c.peers[1])
		if _, err := on.s.Route(t.Context(), Want{UID: "m"}); err != nil { // Never done.
			t.Fatal(err)
		}
		c.silence(on, true) // It goes on saying that it is ready.
		c.say(on, said{trust: membership.TrustClient})
		c.pass(time.Second)
		c.want("engines of the one that may no more", on.engine.count(), 0)
		c.want("ready, by what it says", c.peers[2].ready("m"), []string{})
		c.pass(10 * time.Second)
		c.want("ready", c.peers[2].ready("m"), []string{other.name})
		for _, p := range c.peers {
			c.want("routed to by "+p.name, mustRoute(t, p), other.name)
		}
		if p, _ := other.placement(uid); len(p.Peers) != 1 || p.Peers[0] != other.id.String() {
			t.Errorf("placed on %v", p.Peers)
		}
	})
}

// Where nobody is left who may lead, a peer still stops by itself, and says so.
func TestTrustLoweredEverywhere(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		c.addModel("m", 1<<30, p)
		c.pass(10 * time.Second)
		c.say(p, said{trust: membership.TrustShardOnly})
		c.pass(time.Second)
		c.want("engines", p.engine.count(), 0)
		m, err := p.s.Model("m")
		if err != nil || m.Leader != nil || m.Placed != `model "m": nobody leads it; its last leader may lead no more` {
			t.Errorf("%+v, %v", m, err)
		}
		c.say(p, said{})
		c.pass(10 * time.Second)
		c.want("ready again", p.ready("m"), []string{"a"})
	})
}

// The orders of a leader that may lead no more are none.
func TestOrdersOfTheUntrusted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, x, y := order[0], order[1], order[2]
		uid := c.addModel("m", 1<<30, x, y)
		c.pass(10 * time.Second)
		on, other := x, y
		if leader.ready("m")[0] == y.name {
			on, other = y, x
		}
		c.say(leader, said{trust: membership.TrustClient})
		_, version := leader.placement(uid)
		// The highest fence that anybody would obey.
		if err := leader.PutPlacement(uid, record.Version{version[0] + 1000, version[1], 0}, Placement{Peers: []string{other.id.String()}, Text: "mine"}); err != nil {
			t.Fatal(err)
		}
		c.pass(10 * time.Second)
		c.want("starts of the one it names", other.engine.starts(), 0)
		c.want("ready", leader.ready("m"), []string{on.name})
		c.want("starts", on.engine.starts(), 1)
		if p, v := on.placement(uid); v[0] != version[0]+1001 || p.Peers[0] != on.id.String() {
			t.Errorf("version %v, placed on %v", v, p.Peers)
		}
	})
}

// tripper answers with a body that never ends by itself.
type tripper struct{ asked int }

func (w *tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w.asked++
	read, write := io.Pipe()
	stop := func() { _ = write.CloseWithError(r.Context().Err()) }
	go func() {
		<-r.Context().Done()
		stop()
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: read}, nil
}

// What is under way at a peer is cut where the requests came in, whatever that
// peer does, and nothing more is sent there.
func TestRequestsAreCut(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		entrance, to := c.peers[0], c.peers[1]
		way := &tripper{}
		client := entrance.s.cuttable(to.id.String(), way)
		send := func() (*http.Response, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://peer/v1/completions", nil)
			if err != nil {
				t.Fatal(err)
			}
			return client.RoundTrip(r)
		}
		response, err := send()
		if err != nil {
			t.Fatal(err)
		}
		over, err := send() // One that is over is not counted any more.
		if err != nil {
			t.Fatal(err)
		}
		_ = over.Body.Close()
		c.want("under way", len(entrance.s.cuts.way[to.id.String()]), 1)
		read := make(chan error, 1)
		go func() {
			_, err := response.Body.Read(make([]byte, 1))
			read <- err
		}()
		c.say(to, said{trust: membership.TrustShardOnly})
		c.pass(time.Millisecond)
		select {
		case err := <-read:
			if !errors.Is(err, errNoMoreTrust) || errNoMoreTrust.Retry != RetryElsewhere {
				t.Errorf("cut with %v", err)
			}
		default:
			t.Error("it is still under way")
		}
		_ = response.Body.Close()
		if _, err := send(); !errors.Is(err, errNoMoreTrust) || way.asked != 2 {
			t.Errorf("sent again: %v, %d requests", err, way.asked)
		}
		c.want("under way", len(entrance.s.cuts.way), 0)
	})
}
