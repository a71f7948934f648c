package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay/scheduler/admission"
	"relay/scheduler/ways"
)

// client is a request at a peer's own replica, which it keeps until it is told to leave.
type client struct {
	leave context.CancelFunc
	done  chan struct{} // Closed when it is over.

	mu    sync.Mutex
	lease Lease
	err   error
	after time.Duration // Until it came in, or was refused.
}

// serve has a request of another door wait, and returns when it has come in or waits.
func (p *fakePeer) serve(want Want) *client {
	ctx, leave := context.WithCancel(p.c.t.Context())
	k := &client{leave: leave, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(k.done)
		lease, err := p.s.Serve(ctx, want)
		k.mu.Lock()
		k.lease, k.err, k.after = lease, err, time.Since(began)
		k.mu.Unlock()
		if err == nil {
			<-ctx.Done()
			lease.Done(nil)
		}
	}()
	synctest.Wait()
	return k
}

// state is "runs", "waits", or the reason why it was refused.
func (k *client) state() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.err != nil:
		return string(ReasonOf(k.err))
	case k.lease.Done != nil:
		return "runs"
	}
	return "waits"
}

// states are those of several.
func states(clients ...*client) (list []string) {
	for _, k := range clients {
		list = append(list, k.state())
	}
	return list
}

// leave has requests leave, one after the other.
func leave(clients ...*client) {
	for _, k := range clients {
		k.leave()
		<-k.done
		synctest.Wait()
	}
}

func slotted(n int) func(*Model) { return func(m *Model) { m.Slots = n } }

// loaded runs a test of one peer that serves a model with so many slots.
func loaded(t *testing.T, slots int, f func(t *testing.T, c *cluster, p *fakePeer, uid string)) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		c.hold("m", p)
		uid := p.register("m", 1<<30, slotted(slots))
		c.pass(time.Minute)
		f(t, c, p, uid)
	})
}

func TestRequestsWaitForASlot(t *testing.T) {
	loaded(t, 2, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		want := Want{UID: uid, Key: "k"}
		first, second, third, fourth := p.serve(want), p.serve(want), p.serve(want), p.serve(want)
		c.want("at first", states(first, second, third, fourth), "[runs runs waits waits]")
		c.want("told to the second", second.lease.Load, Load{Running: 2, Slots: 2})
		c.want("load", p.s.work.loadOf(uid), Load{Running: 2, Waiting: 2, Slots: 2})
		w := p.s.Workload()[0]
		c.want("in flight and waiting", []int{w.InFlight, w.Waiting}, "[4 2]")
		c.pass(time.Minute)
		leave(second)
		c.want("then", states(first, third, fourth), "[runs runs waits]")
		c.want("waited", third.after, time.Minute)
		c.want("told to the third", third.lease.Load, Load{Running: 2, Waiting: 1, Slots: 2})
		leave(fourth) // Who leaves does not wait any more.
		c.want("load", p.s.work.loadOf(uid), Load{Running: 2, Slots: 2})
		if err := fourth.err; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		leave(first, third)
		c.want("load at the end", p.s.work.loadOf(uid), Load{Slots: 2})
		c.want("in flight at the end", len(p.s.InFlight()), 0)
	})
}

// What waits for as long as it may is told when to ask again, and what finds the queue
// full that somebody else is to be asked.
func TestWaitingIsBounded(t *testing.T) {
	loaded(t, 1, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		leave(p.serve(Want{UID: uid}))
		running := p.serve(Want{UID: uid})
		c.pass(8 * time.Second)
		late := p.serve(Want{UID: uid})
		c.pass(queueTime - time.Second)
		c.want("before its time is over", late.state(), "waits")
		c.pass(time.Second)
		c.want("then", late.state(), string(Busy))
		var no *Error
		if !errors.As(late.err, &no) || no.Retry != RetryLater || no.RetryAfter < leastLater || no.RetryAfter > mostLater {
			t.Errorf("%+v", no)
		}
		c.want("with what load", late.lease.Load, Load{Running: 1, Slots: 1})

		var waiting []*client
		for range maxQueue {
			waiting = append(waiting, p.serve(Want{UID: uid, Key: "many"}))
		}
		over := p.serve(Want{UID: uid, Key: "many"})
		if !errors.As(over.err, &no) || no.Why != Busy || no.Retry != RetryElsewhere || no.RetryAfter != mostLater {
			t.Errorf("one more: %+v", over.err)
		}
		c.want("with what load", over.lease.Load, Load{Running: 1, Waiting: maxQueue, Slots: 1})
		few := p.serve(Want{UID: uid, Key: "few"})
		c.want("of another key", few.state(), "waits")
		c.want("the last of the key of which many wait", waiting[maxQueue-1].state(), string(Busy))
		leave(running)
		leave(waiting[0])
		c.want("who is next after the first", few.state(), "runs")
		leave(few)
		leave(waiting...)
	})
}

func TestBatchGivesWay(t *testing.T) {
	for slots, want := range map[int]string{1: "[runs waits waits]", 3: "[runs runs waits]"} {
		loaded(t, slots, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
			batch := Want{UID: uid, Key: "b", Batch: true}
			first, second, third := p.serve(batch), p.serve(batch), p.serve(batch)
			c.want(fmt.Sprintf("batch at %d slots", slots), states(first, second, third), want)
			normal := p.serve(Want{UID: uid, Key: "n"})
			if slots == 1 {
				c.want("the only slot is taken", normal.state(), "waits")
				leave(first)
			}
			c.want("normal", states(normal, third), "[runs waits]")
			leave(normal)
			leave(first, second, third)
		})
	}
}

// A request of batch that asks for all slots is refused, at another peer's door as at its
// own, and takes none.
func TestBatchLeavesASlot(t *testing.T) {
	loaded(t, 3, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		var no *Error
		_, err := p.s.Serve(t.Context(), Want{UID: uid, Batch: true, Answers: 3})
		if !errors.As(err, &no) || no.Why != InvalidRequest || no.Retry != RetryNever || !strings.Contains(no.Message, "at most 2 answers") {
			t.Errorf("another door's: %+v", err)
		}
		_, err = p.s.Route(t.Context(), Want{UID: "m", Batch: true, Answers: 3})
		if !errors.As(err, &no) || no.Why != InvalidRequest {
			t.Errorf("its own: %+v", err)
		}
		c.want("load", p.s.work.loadOf(uid), Load{Slots: 3})
		c.want("in flight", len(p.s.InFlight()), 0)
		two := p.serve(Want{UID: uid, Batch: true, Answers: 2})
		normal := p.serve(Want{UID: uid, Answers: 1})
		c.want("two of batch, and one", states(two, normal), "[runs runs]")
		leave(two, normal)
	})
	loaded(t, 1, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		one := p.serve(Want{UID: uid, Batch: true, Answers: 3}) // The only slot is free for it.
		c.want("of one slot", one.state(), "runs")
		leave(one)
	})
}

// What goes on with an answer that is there in part comes before what has not begun.
func TestWhatContinuesComesFirst(t *testing.T) {
	loaded(t, 1, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		running, sooner := p.serve(Want{UID: uid, Key: "a"}), p.serve(Want{UID: uid, Key: "b"})
		goesOn := p.serve(Want{UID: uid, Key: "a", Continues: true})
		leave(running)
		c.want("then", states(sooner, goesOn), "[waits runs]")
		leave(goesOn, sooner)
	})
}

// A request takes as many slots as it has answers, and none where it only reads or writes
// tokens.
func TestSlotsOfARequest(t *testing.T) {
	loaded(t, 3, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		two := p.serve(Want{UID: uid, Answers: 2})
		many := p.serve(Want{UID: uid, Answers: 100})
		c.want("two answers, then a hundred", states(two, many), "[runs waits]")
		light := p.serve(Want{UID: uid, Light: true})
		c.want("tokens", light.state(), "runs")
		c.want("told", light.lease.Load, Load{Running: 2, Waiting: 1, Slots: 3})
		leave(two)
		c.want("a hundred", many.state(), "runs")
		c.want("load", p.s.work.loadOf(uid), Load{Running: 3, Slots: 3})
		other := p.serve(Want{UID: uid, Light: true})
		c.want("tokens while all is taken", other.state(), "runs")
		c.want("in flight", p.s.InFlight()[uid], 3)
		leave(many, light, other)
		c.want("load", p.s.work.loadOf(uid), Load{Slots: 3})
	})
}

// A door's own replica is waited for as any other is, and is left alone where another has
// a slot.
func TestTheDoorsOwnReplicaIsWaitedFor(t *testing.T) {
	loaded(t, 2, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		batch := p.serve(Want{UID: uid, Batch: true})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := p.s.Route(ctx, Want{UID: "m", Batch: true})
		var no *Error
		if !errors.As(err, &no) || no.Why != Busy || no.Retry != RetryLater || no.RetryAfter < leastLater || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		route, err := p.s.Route(t.Context(), Want{UID: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-p.ask("m"); got.err == nil {
			t.Error("a third one came in to two slots")
		}
		leave(batch)
		c.want("load", p.s.work.loadOf(uid), Load{Running: 1, Slots: 2})
		route.Done(nil)
	})
}

// Whoever waits at an engine that is replaced waits at the next one, which has slots of its
// own, and the engine that goes finishes what it has.
func TestWhoWaitsMovesToTheNextEngine(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		c.addModel("other", 1<<30, p) // So that one engine has half of the cores, and two can work.
		c.pass(10 * time.Second)
		c.hold("m", p)
		uid := p.register("m", 1<<30, slotted(2))
		c.pass(10 * time.Second)
		var clients []*client
		for range 6 {
			clients = append(clients, p.serve(Want{UID: uid, Key: "k"}))
		}
		old, waited := clients[:2], clients[2:]
		c.want("before", states(clients...), "[runs runs waits waits waits waits]")
		p.act("m", ActRestart)
		c.pass(10 * time.Second)
		c.want("at the engine that goes", states(old...), "[runs runs]")
		c.want("at the next one", slices.Sorted(slices.Values(states(waited...))), "[runs runs waits waits]")
		c.want("load", p.s.work.loadOf(uid), Load{Running: 2, Waiting: 2, Slots: 2})
		w := p.s.Workload()
		i := slices.IndexFunc(w, func(w Workload) bool { return w.UID == uid })
		c.want("in flight and waiting at both", []int{w[i].InFlight, w[i].Waiting}, "[6 2]")
		leave(old...)
		c.want("slots of the one that is gone are none", p.s.work.loadOf(uid), Load{Running: 2, Waiting: 2, Slots: 2})
		c.pass(queueTime - 10*time.Second)
		c.want("the time that they may wait went on", slices.Sorted(slices.Values(states(waited...))), "[busy busy runs runs]")
		leave(waited...)
	})
}

// Where a model is gone, or its peer stops, nobody waits for it any more.
func TestNobodyWaitsForWhatIsGone(t *testing.T) {
	loaded(t, 1, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		running, waiting := p.serve(Want{UID: uid}), p.serve(Want{UID: uid})
		if _, err := p.s.Remove(t.Context(), "m", false, false); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		c.want("a model that is removed", states(running, waiting), "[runs model_loading]")
		leave(running)
	})
	loaded(t, 1, func(t *testing.T, c *cluster, p *fakePeer, uid string) {
		running, waiting := p.serve(Want{UID: uid}), p.serve(Want{UID: uid})
		stopped := make(chan struct{})
		go func() {
			p.stop()
			close(stopped)
		}()
		c.pass(time.Second)
		c.want("a peer that stops", states(running, waiting), "[runs model_loading]")
		leave(running)
		<-stopped
		p.stop = func() {}
	})
}

// The slots of a group are those of its coordinator's engine.
func TestAGroupHasSlots(t *testing.T) {
	spreadOver(t, 2, func(t *testing.T, c *cluster, uid string) {
		names := c.formed()
		p := c.named(names[0])
		first, second := p.serve(Want{UID: uid}), p.serve(Want{UID: uid})
		c.want("one slot", states(first, second), "[runs waits]")
		leave(first)
		c.want("then", second.state(), "runs")
		leave(second)
	})
}

// Requests of models that take turns on the cores, with slots of their own, all come to
// their end: nobody has a turn and waits for a slot. And never do more compute than there
// are slots, nor engines at a time than there are cores for.
func TestSlotsAndTurns(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, 1, func(t *testing.T, c *cluster) {
			p := c.peers[0]
			var uids []string
			slots := map[string]int{"a": 1, "b": 2, "c": 3}
			for _, name := range []string{"a", "b", "c"} {
				c.hold(name, p)
				uids = append(uids, p.register(name, 1<<30, slotted(slots[name])))
			}
			c.pass(time.Minute)
			c.want("engines", p.engine.count(), 3)
			p.s.cores.SetLent(1)
			random := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			computing := map[string]int{}
			var clients sync.WaitGroup
			served, left := 0, 0
			for i := range 150 {
				want := Want{UID: uids[random.IntN(3)], Key: fmt.Sprint(random.IntN(3)), Batch: random.IntN(3) == 0, Answers: random.IntN(3), Light: random.IntN(10) == 0}
				if want.Batch { // More would be refused.
					want.Answers = min(want.Answers, max(1, slots[want.UID[:1]]-1))
				}
				comes, takes, patience := time.Duration(random.IntN(120))*time.Second, time.Duration(1+random.IntN(4000))*time.Millisecond, time.Hour
				if random.IntN(4) == 0 {
					patience = time.Duration(random.IntN(20)) * time.Second
				}
				clients.Go(func() {
					<-time.After(comes)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					lease, err := p.s.Serve(ctx, want)
					if err != nil {
						mu.Lock()
						left++
						mu.Unlock()
						if patience == time.Hour && ReasonOf(err) != Busy {
							t.Errorf("request %d: %v", i, err)
						}
						return
					}
					most := slots[want.UID[:1]]
					n := min(max(1, want.Answers), most)
					if want.Light {
						n = 0
					}
					mu.Lock()
					served++
					computing[want.UID] += n
					if computing[want.UID] > most {
						t.Errorf("%d of %d slots of %.1s are taken", computing[want.UID], most, want.UID)
					}
					others := 0
					for _, uid := range uids {
						if computing[uid] > 0 {
							others++
						}
					}
					if others > 1 {
						t.Errorf("%v compute at one time on one core", computing)
					}
					mu.Unlock()
					<-time.After(takes)
					mu.Lock()
					computing[want.UID] -= n
					mu.Unlock()
					lease.Done(nil)
				})
			}
			clients.Wait()
			c.pass(time.Second)
			if served < 50 {
				t.Errorf("%d were served, %d left", served, left)
			}
			for _, uid := range uids {
				c.want("load at the end", p.s.work.loadOf(uid), Load{Slots: slots[uid[:1]]})
			}
			c.want("who waits for the cores", p.s.cores.Waiting(), 0)
			c.want("who has them", len(p.s.cores.Busy()), 0)
		})
	}
}

// A request that waits for a slot does not hold a turn that others wait for.
func TestWhoWaitsForASlotHasNoTurn(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		uids := []string{c.addModel("a", 1<<30, p), c.addModel("b", 1<<30, p)}
		c.pass(time.Minute)
		p.s.cores.SetLent(1)
		first, second := p.serve(Want{UID: uids[0]}), p.serve(Want{UID: uids[0]})
		other := p.serve(Want{UID: uids[1]})
		c.want("while the first computes", states(first, second, other), "[runs waits waits]")
		c.want("who waits for the cores", p.s.cores.Waiting(), 1)
		leave(first)
		c.want("the turn goes to the other model", states(second, other), "[waits runs]")
		c.want("who waits for them then", p.s.cores.Waiting(), 1)
		leave(other)
		c.want("at last", second.state(), "runs")
		leave(second)
	})
}

// What had a slot and no turn on the cores says nothing of how long requests take.
func TestWhoHadNoTurnTeachesNothing(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		uids := []string{c.addModel("a", 1<<30, p), c.addModel("b", 1<<30, p)}
		c.pass(time.Minute)
		p.s.cores.SetLent(1)
		long := p.serve(Want{UID: uids[1]})
		c.pass(8 * time.Second)
		leave(long)
		other := p.serve(Want{UID: uids[0]})
		for range 20 {
			k := p.serve(Want{UID: uids[1]})
			c.want("without a turn", k.state(), "waits")
			leave(k)
			if _, busy := p.s.work.admitNow(Want{UID: uids[1]}); !busy {
				t.Fatal("it got the cores that another model has")
			}
		}
		last := p.serve(Want{UID: uids[1]})
		p.s.work.mu.Lock()
		wait := p.s.work.runs[uids[1]].engine.queue.Wait(admission.Request{}, p.s.work.now())
		p.s.work.mu.Unlock()
		c.want("about how long the next would wait", wait, 8*time.Second)
		leave(other, last)
	})
}

// What an engine computes one at a time is told apart from what it computes together,
// whoever waits: only then does it say how fast it is.
func TestWhoWaitsDoesNotCountAsComputing(t *testing.T) {
	withGPUs(t, false, []Device{card("CUDA0", 8*gib)}, func(t *testing.T, c *cluster, a, _ *fakePeer) {
		c.hold("m", a)
		uid := a.register("m", 1, shaped(2*gib))
		c.pass(15 * time.Second)
		c.want("ways", fmt.Sprint(a.engine.kinds()), fmt.Sprint([]ways.Kind{ways.OneGPU}))
		first, second := a.serve(Want{UID: uid}), a.serve(Want{UID: uid})
		c.want("one of two", states(first, second), "[runs waits]")
		a.s.work.mu.Lock()
		peak := a.s.work.runs[uid].engine.peak
		a.s.work.mu.Unlock()
		c.want("the most at a time", peak, 1)
		leave(first, second)
	})
}
