package scheduler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay/store/content"
)

// twoRoots registers a model with a projector, both of one MiB, that a peer holds.
func (c *cluster) twoRoots(holder *fakePeer) {
	c.t.Helper()
	c.hold("m", holder)
	c.hold("eyes", holder)
	m := Model{Name: "m", CID: c.rootOf("m").String(), Bytes: 1 << 20, Kind: "chat", Context: 8, Slots: 1, Need: 1,
		Projector: Root{c.rootOf("eyes").String(), 1 << 20}}
	if err := c.peers[0].PutShared(KindModel, uidOf("m"), m); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// asked is a pull in the background.
type asked struct {
	out  Outcome
	err  error
	told []content.Progress
	done chan struct{}
}

func (p *fakePeer) pulling(ctx context.Context, o PullOptions) *asked {
	a := &asked{done: make(chan struct{})}
	var mu sync.Mutex
	go func() {
		defer close(a.done)
		a.out, a.err = p.s.Pull(ctx, o, func(p content.Progress) {
			mu.Lock()
			defer mu.Unlock()
			a.told = append(a.told, p)
		})
	}()
	return a
}

// All contents of a model are one pull with one sum; others learn of the copy
// while it is partial.
func TestPullsAllContents(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.slowly()
		a, b := c.peers[0], c.peers[1]
		c.twoRoots(b)
		it := a.pulling(t.Context(), PullOptions{Name: c.rootOf("m").String(), Limit: minLimit})
		c.pass(time.Second)
		m, _ := b.s.Model("m")
		c.want("partly", m.Partly, []string{a.id.String()})
		c.want("whole", m.Holders, []string{b.id.String()})
		here, _ := a.s.Model("m")
		if len(here.Pulls) != 1 || !here.Pulls[0].Running || here.Pulls[0].Done != 1<<19 {
			t.Errorf("%+v", here.Pulls)
		}
		c.want("limit", a.limit, minLimit)
		if got := (&swarm{s: b.s, cid: c.rootOf("m").String()}).Holders(); len(got) != 1 || got[0].Name() != "a" {
			t.Errorf("who is pulling is no holder: %v", got)
		}
		a.rest <- struct{}{}
		c.pass(time.Second)
		if p, err := a.s.Prune(t.Context(), PruneOptions{}); err != nil || len(p.Kept) != 2 || p.Kept[0].Why != "its model is being pulled" && p.Kept[1].Why != "its model is being pulled" {
			t.Errorf("%+v: %v", p, err)
		}
		a.rest <- struct{}{}
		<-it.done
		if it.err != nil || len(it.out.Holders) != 2 {
			t.Fatalf("%+v: %v", it.out, it.err)
		}
		last := it.told[len(it.told)-1]
		c.want("done", last.Done, 3<<19)
		c.want("total", last.Total, 2<<20)
		c.want("fetched", last.Fetched, 1<<20)
		c.want("left", last.Left, time.Second)
		c.want("from", last.From, []content.Source{{Name: "b", Bytes: 1 << 20, Rate: 1}})
		c.pass(time.Second)
		m, _ = b.s.Model("m")
		c.want("partly", len(m.Partly), 0)

		// What is here is no work.
		if _, err := a.s.Pull(t.Context(), PullOptions{Name: "m"}, nil); err != nil {
			t.Error(err)
		}
		if _, err := a.s.StopPull(t.Context(), "m", true); ReasonOf(err) != NotFound || !strings.Contains(err.Error(), "here whole") {
			t.Errorf("a whole model: %v", err)
		}
	})
}

// A pull that is paused keeps what is here and says so to all who wait for it;
// one that is cancelled leaves nothing, and the mesh hears of it.
func TestPullsAreStopped(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.slowly()
		a, b := c.peers[0], c.peers[1]
		c.twoRoots(b)
		if _, err := a.s.StopPull(t.Context(), "m", false); ReasonOf(err) != NotFound || !strings.Contains(err.Error(), "not being pulled") {
			t.Errorf("nothing to pause: %v", err)
		}
		if _, err := a.s.StopPull(t.Context(), "nosuch", false); ReasonOf(err) != ModelNotFound {
			t.Errorf("no such model: %v", err)
		}
		var all []*asked
		for range 20 {
			all = append(all, a.pulling(t.Context(), PullOptions{Name: "m"}))
		}
		c.pass(time.Second)
		stopped, err := a.s.StopPull(t.Context(), "m", false)
		if err != nil || !stopped.Ran || stopped.Deleted || stopped.Done != 1<<19 || stopped.Bytes != 2<<20 {
			t.Errorf("%+v: %v", stopped, err)
		}
		for _, it := range all {
			<-it.done
			if ReasonOf(it.err) != Paused || !errors.Is(it.err, content.ErrPaused) || !strings.Contains(it.err.Error(), "relay model pull m goes on") {
				t.Fatalf("%v", it.err)
			}
		}
		c.pass(time.Second)
		m, _ := b.s.Model("m")
		c.want("what is paused is offered", m.Partly, []string{a.id.String()})
		if again, err := a.s.StopPull(t.Context(), "m", false); err != nil || again.Ran {
			t.Errorf("%+v: %v", again, err)
		}

		// On with it, past the first content, and cancelled then.
		it := a.pulling(t.Context(), PullOptions{Name: "m"})
		c.pass(time.Second)
		a.rest <- struct{}{}
		c.pass(time.Second)
		stopped, err = a.s.StopPull(t.Context(), "m", true)
		<-it.done
		if err != nil || !stopped.Ran || !stopped.Deleted || ReasonOf(it.err) != NotFound || !errors.Is(it.err, content.ErrRemoved) {
			t.Errorf("%+v: %v, %v", stopped, err, it.err)
		}
		parts, _ := a.Partials()
		c.want("unfinished", len(parts), 0)
		c.pass(time.Second)
		m, _ = b.s.Model("m")
		if len(a.List()) == 0 { // Else it is the copy that stays.
			c.want("withdrawn", len(m.Partly), 0)
		}

		// Whoever asked may go by itself, as ever; and a pull whose model is out of
		// the mesh is found by its name.
		ctx, cancel := context.WithCancel(t.Context())
		it = a.pulling(ctx, PullOptions{Name: "m"})
		c.pass(time.Second)
		cancel()
		<-it.done
		if !errors.Is(it.err, context.Canceled) || errors.Is(it.err, content.ErrPaused) {
			t.Errorf("%v", it.err)
		}
		if _, err := b.s.Remove(t.Context(), "m", false, false); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		if stopped, err := a.s.StopPull(t.Context(), "m", true); err != nil || !stopped.Deleted {
			t.Errorf("%+v: %v", stopped, err)
		}
		parts, _ = a.Partials()
		c.want("unfinished", len(parts), 0)
	})
}

// What is just being deleted is not said to be here.
func TestPullWaitsForWhatIsBeingFreed(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.slowly()
		a, b := c.peers[0], c.peers[1]
		c.hold("m", a, b)
		a.register("m", 100<<30)
		root := c.rootOf("m")
		release, ok := a.s.claim(candidate{piece: Piece{CID: root.String()}})
		if !ok {
			t.Fatal("it runs")
		}
		it := a.pulling(t.Context(), PullOptions{Name: "m"})
		c.pass(time.Second)
		select {
		case <-it.done:
			t.Errorf("it was told %v of a file that is being deleted", it.err)
		default:
		}
		if _, err := a.RemovePulled(root); err != nil {
			t.Fatal(err)
		}
		release()
		close(a.rest)
		<-it.done
		if _, err := a.Get(root); err != nil || it.err != nil {
			t.Errorf("%v, %v", err, it.err)
		}
		if _, ok := a.s.claim(candidate{piece: Piece{CID: root.String()}}); !ok {
			t.Error("nothing pulls it any more")
		}
	})
}

// What is cancelled takes nothing along that another model needs, or that was here
// before, and leaves another model's pull alone.
func TestCancelTakesNothingElse(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.slowly()
		order := c.ofContent("y")
		a, b := order[0], order[1] // The copy of a may go.
		c.hold("y", b)
		c.hold("eyes", b)
		c.peers[0].register("y", 100<<30)
		eyes := Root{c.rootOf("eyes").String(), 1 << 20}
		for _, name := range []string{"z", "w"} {
			m := Model{Name: name, CID: c.rootOf("y").String(), Bytes: 1 << 20, Kind: "chat", Context: 8, Slots: 1, Need: 100 << 30, Projector: eyes}
			if name == "w" {
				m.CID = c.rootOf("own of w").String()
				c.hold("own of w", b)
			}
			if err := b.PutShared(KindModel, uidOf(name), m); err != nil {
				t.Fatal(err)
			}
		}
		c.pass(time.Second)
		x := a.pulling(t.Context(), PullOptions{Name: "y"})
		c.pass(time.Second)
		a.rest <- struct{}{}
		<-x.done
		c.pass(time.Second)

		z := a.pulling(t.Context(), PullOptions{Name: "z"}) // Its projector is what is missing.
		c.pass(time.Second)
		stopped, err := a.s.StopPull(t.Context(), "z", true)
		if err != nil || len(stopped.Kept) != 1 || stopped.Kept[0].Why != `model "y" needs it too` {
			t.Errorf("%+v: %v", stopped, err)
		}
		<-z.done
		_, err = a.Get(c.rootOf("y"))
		c.want("the copy that another model needs", err, nil)

		if _, err := b.s.Remove(t.Context(), "y", false, false); err != nil { // Now z alone needs it.
			t.Fatal(err)
		}
		w := a.pulling(t.Context(), PullOptions{Name: "w"})
		c.pass(time.Second)
		a.rest <- struct{}{}
		c.pass(time.Second)
		z = a.pulling(t.Context(), PullOptions{Name: "z"})
		c.pass(time.Second)
		stopped, err = a.s.StopPull(t.Context(), "z", true)
		if err != nil || len(stopped.Kept) != 2 || !stopped.Kept[0].Unfinished || stopped.Kept[1].Why != "it was here before" {
			t.Errorf("%+v: %v", stopped, err)
		}
		<-z.done
		_, err = a.Get(c.rootOf("y"))
		c.want("the copy that was here before", err, nil)
		parts, _ := a.Partials()
		if len(parts) != 1 || parts[0].CID != c.rootOf("eyes") {
			t.Errorf("the projector that w is pulling too: %+v", parts)
		}
		close(a.rest)
		<-w.done
		c.want("w", w.err, nil)
	})
}

// A model that nobody has anything of is not waited for.
func TestPullsNeedSomebody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.slowly()
		a, b := c.peers[0], c.peers[1]
		c.twoRoots(b)
		b.crash()
		c.pass(10 * time.Second)
		if _, err := a.s.Pull(t.Context(), PullOptions{Name: "m"}, nil); ReasonOf(err) != NoHolder || !strings.Contains(err.Error(), "away: b") {
			t.Errorf("%v", err)
		}
		c.peers[2].partials[c.rootOf("m")] = content.Partial{CID: c.rootOf("m"), Name: "m", Bytes: 1 << 20, Done: 1}
		if err := c.peers[2].s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		if _, err := a.s.Pull(t.Context(), PullOptions{Name: "m"}, nil); ReasonOf(err) != NoHolder { // Of the projector there is nothing.
			t.Errorf("%v", err)
		}
		if _, err := a.s.Pull(t.Context(), PullOptions{Name: "m", Limit: -1}, nil); ReasonOf(err) != InvalidRequest {
			t.Errorf("%v", err)
		}
	})
}
