package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// stream is an answer under way at a replica, as its entrance holds it.
type stream struct {
	c    *cluster
	away context.Context
	over func()
}

// stream begins an answer by the replica of a peer.
func (p *fakePeer) stream(name string, on *fakePeer) *stream {
	p.c.t.Helper()
	v, _ := p.s.latest()
	m := v.resolve(name)
	for _, r := range m.replicas {
		if r.peer == on.id.String() && r.State == StateReady {
			away, over := p.s.away(m.uid, r)
			p.c.t.Cleanup(over)
			return &stream{p.c, away, over}
		}
	}
	p.c.t.Fatalf("%s sees no %q ready on %s", p.name, name, on.name)
	return nil
}

// why is the reason for which it is to go on elsewhere, "" where it is not.
func (s *stream) why() Reason {
	s.c.t.Helper()
	if s.away.Err() == nil {
		return ""
	}
	var no *Error
	if err := context.Cause(s.away); !errors.As(err, &no) || no.Retry != RetryElsewhere || no.Message == "" {
		s.c.t.Errorf("it ended with %v", err)
	}
	return no.Why
}

// two has a model ready on two peers of three; the third one is an entrance.
func two(t *testing.T, f func(t *testing.T, c *cluster, on, other, door *fakePeer)) {
	t.Helper()
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		two := 2
		c.peers[0].set("m", SetOptions{Min: &two})
		c.pass(10 * time.Second)
		c.want("ready", len(c.peers[2].ready("m")), 2)
		f(t, c, c.peers[0], c.peers[1], c.peers[2])
	})
}

// What a peer answers goes on elsewhere as soon as it is known that it goes or cannot be
// heard, also for the clients of its own door; what others answer stays.
func TestAway(t *testing.T) {
	for name, test := range map[string]struct {
		does func(t *testing.T, c *cluster, on *fakePeer)
		want Reason
		own  Reason // At its own door.
	}{
		"drained":          {func(_ *testing.T, c *cluster, on *fakePeer) { c.say(on, said{draining: true}) }, Draining, Draining},
		"stopping":         {func(_ *testing.T, _ *cluster, on *fakePeer) { on.s.Leave(time.Nanosecond) }, Draining, Draining},
		"silent":           {func(_ *testing.T, c *cluster, on *fakePeer) { c.suspect(on, true) }, PeerGone, ""},
		"quiet":            {func(_ *testing.T, c *cluster, on *fakePeer) { c.hush(on, true) }, PeerGone, ""},
		"dead":             {func(_ *testing.T, _ *cluster, on *fakePeer) { on.crash() }, PeerGone, ""},
		"its engine ended": {func(_ *testing.T, _ *cluster, on *fakePeer) { on.engine.killAll() }, EngineFailed, EngineFailed},
		"its GPU is wanted": {func(t *testing.T, c *cluster, on *fakePeer) {
			on.s.work.mu.Lock()
			defer on.s.work.mu.Unlock()
			on.s.work.runs[uidOf("m")].notices <- Errorf(DeviceBusy, "another program uses it")
		}, Draining, Draining},
		"one replica less": {func(t *testing.T, c *cluster, on *fakePeer) {
			one := 1
			on.set("m", SetOptions{Min: &one, Only: &c.peers[1].name})
		}, Draining, Draining},
		"cordoned": {func(_ *testing.T, c *cluster, on *fakePeer) { c.say(on, said{cordoned: true}) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			two(t, func(t *testing.T, c *cluster, on, other, door *fakePeer) {
				held, err := on.s.Serve(t.Context(), Want{UID: uidOf("m")}) // What runs there is not done.
				if err != nil {
					t.Fatal(err)
				}
				moves, own, stays := door.stream("m", on), on.stream("m", on), door.stream("m", other)
				test.does(t, c, on)
				c.pass(time.Millisecond)
				c.want("away", moves.why(), test.want)
				if on.up {
					c.want("away from its own door", own.why(), test.own)
				}
				c.want("away from the other one", stays.why(), "")
				held.Done(nil)
			})
		})
	}
}

// Where nobody else serves, nothing is to go anywhere, until somebody does: a drain makes
// another replica first.
func TestAwayWaitsForSomewhereToGo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		c.pass(10 * time.Second)
		on, other := c.serving("m", c.peers[0], c.peers[1])
		door := c.peers[2]
		other.engine.load = time.Minute
		s := door.stream("m", on)
		c.say(on, said{draining: true})
		c.pass(55 * time.Second)
		c.want("away while the other one loads", s.why(), "")
		c.pass(10 * time.Second)
		c.want("ready", door.ready("m"), []string{other.name})
		c.want("away", s.why(), Draining)
		c.want("what is held of it", len(door.s.aways.way), 0)

		back := door.stream("m", other)
		c.suspect(other, true) // The first one is drained still.
		c.pass(time.Millisecond)
		c.want("away from the last one", back.why(), "")
	})
}

// An engine that another one takes the place of lets go of what it has at once, also to
// the other one on the same peer; not before that one is ready.
func TestAwayFromAnEngineThatIsReplaced(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, door := c.peers[0], c.peers[1]
		c.alone(a)
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		s := door.stream("m", a)
		lease, err := a.s.Serve(t.Context(), Want{UID: uidOf("m")})
		if err != nil {
			t.Fatal(err)
		}
		a.engine.load = 5 * time.Second
		door.act("m", ActRestart)
		c.pass(4 * time.Second)
		c.want("away while the next one starts", s.why(), "")
		c.pass(2 * time.Second)
		c.want("away", s.why(), Draining)
		c.want("engines", a.engine.count(), 2)
		after := door.stream("m", a)
		lease.Done(nil)
		c.pass(time.Minute)
		c.want("engines once it is empty", a.engine.count(), 1)
		c.want("away from the new one", after.why(), "")
	})
}

// Thousands of requests are told with one look at each engine, and nothing is left of them.
func TestAwayOfMany(t *testing.T) {
	two(t, func(t *testing.T, c *cluster, on, other, door *fakePeer) {
		var list []*stream
		for range 2000 {
			list = append(list, door.stream("m", on))
		}
		c.want("judged", len(door.s.aways.way), 1)
		for _, s := range list[1000:] {
			s.over()
		}
		c.say(on, said{draining: true})
		c.pass(time.Millisecond)
		for _, s := range list[:1000] {
			if s.why() != Draining {
				t.Fatalf("one has %q", s.why())
			}
			s.over()
		}
		c.want("held", len(door.s.aways.way), 0)
	})
}

// A peer that was suspect for a moment is as good as any afterwards: what went away from it
// may come back.
func TestAwayIsJudgedAnew(t *testing.T) {
	two(t, func(t *testing.T, c *cluster, on, other, door *fakePeer) {
		before := door.stream("m", on)
		c.suspect(on, true)
		c.pass(time.Millisecond)
		c.suspect(on, false)
		c.pass(time.Millisecond)
		after := door.stream("m", on)
		c.want("away", []Reason{before.why(), after.why()}, []Reason{PeerGone, ""})
		before.over()
		c.say(on, said{draining: true})
		c.pass(time.Millisecond)
		c.want("away later", after.why(), Draining)
	})
}

// What moves stays where it has moved to, and nothing new comes to where it was; at an
// entrance that serves itself as well.
func TestWhatMovesStaysThere(t *testing.T) {
	for name, change := range map[string]func(c *cluster, on *fakePeer){
		"drained": func(c *cluster, on *fakePeer) { c.say(on, said{draining: true}) },
		"quiet":   func(c *cluster, on *fakePeer) { c.hush(on, true) },
	} {
		t.Run(name, func(t *testing.T) {
			two(t, func(t *testing.T, c *cluster, on, other, door *fakePeer) {
				for _, at := range []*fakePeer{door, on} {
					if at == on && name == "quiet" {
						continue // It hears itself.
					}
					var routes []Route
					there := 0
					for len(routes) < 10 || there == 0 {
						route, err := at.s.Route(t.Context(), Want{UID: "m", Light: true})
						if err != nil {
							t.Fatal(err)
						}
						routes = append(routes, route)
						if route.PeerName == on.name {
							there++
						}
					}
					change(c, on)
					c.pass(time.Millisecond)
					for _, route := range routes {
						moves := route.PeerName == on.name
						if (route.Away.Err() != nil) != moves {
							t.Errorf("one at %s: %v", route.PeerName, context.Cause(route.Away))
						}
						next, err := at.s.Route(t.Context(), Want{UID: "m", Light: true, Tried: []string{route.Mark}})
						switch {
						case moves && (err != nil || next.PeerName != other.name || next.Away.Err() != nil):
							t.Errorf("it goes on at %s: %v", next.PeerName, err)
						case err == nil:
							next.Done(nil)
						}
						route.Done(nil)
						c.want("routed to", mustRoute(t, at), other.name)
					}
					c.say(on, said{})
					c.hush(on, false)
					c.pass(time.Minute)
				}
				c.want("held", len(door.s.aways.way)+len(on.s.aways.way), 0)
			})
		})
	}
}

// again asks for another replica than one that was lost, and says how long that took.
func (p *fakePeer) again(name string, lost Route) routed {
	p.c.t.Helper()
	began := time.Now()
	route, err := p.s.Route(p.c.t.Context(), Want{UID: name, Tried: []string{lost.Mark}})
	if err == nil {
		route.Done(nil)
	}
	return routed{route, err, time.Since(began)}
}

// Whoever loses the last replica in the middle of an answer waits for the next one: on
// another peer, on the same one, and for another group.
func TestTheLastReplicaIsLost(t *testing.T) {
	lose := func(t *testing.T, c *cluster, door *fakePeer, name string, lost func(on *fakePeer)) (before, after Route) {
		t.Helper()
		before, err := door.s.Route(t.Context(), Want{UID: name})
		if err != nil {
			t.Fatal(err)
		}
		lost(c.named(before.PeerName))
		got := door.again(name, before)
		if got.err != nil || got.after > 10*time.Second {
			t.Fatalf("after %s: %v", got.after, got.err)
		}
		if got.route.Mark == before.Mark {
			t.Errorf("it is the one that was lost: %s", before.Mark)
		}
		before.Done(errors.New("it is lost"))
		return before, got.route
	}
	t.Run("its peer dies", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, c *cluster) {
			c.addModel("m", 1<<30, c.peers[0], c.peers[1])
			c.pass(10 * time.Second)
			before, after := lose(t, c, c.peers[2], "m", (*fakePeer).crash)
			if before.Peer == after.Peer {
				t.Errorf("it goes on at %s, which is dead", after.PeerName)
			}
		})
	})
	t.Run("its engine dies", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, c *cluster) {
			a, door := c.peers[0], c.peers[1]
			c.alone(a)
			c.addModel("m", 1<<30, a)
			c.pass(10 * time.Second)
			before, after := lose(t, c, door, "m", func(on *fakePeer) { on.engine.killAll() })
			c.want("peers", []string{before.PeerName, after.PeerName}, []string{a.name, a.name})
		})
	})
	t.Run("its peer dies and comes back", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, c *cluster) {
			a, door := c.peers[0], c.peers[1]
			c.alone(a)
			c.addModel("m", 1<<30, a)
			c.pass(10 * time.Second)
			lose(t, c, door, "m", func(on *fakePeer) {
				on.crash()
				on.open()
				on.start()
			})
		})
	})
	t.Run("a worker of its group dies", func(t *testing.T) {
		spreadOver(t, 4, func(t *testing.T, c *cluster, uid string) {
			names := c.formed()
			door := c.peers[slices.IndexFunc(c.peers, func(p *fakePeer) bool { return !slices.Contains(names, p.name) })]
			lose(t, c, door, "m", func(*fakePeer) { c.named(names[1]).crash() })
			if now := door.group("m"); len(now) != 2 || slices.Contains(now, names[1]) {
				t.Errorf("it goes on at %v, of %v the last is dead", now, names)
			}
		})
	})
	t.Run("the coordinator of its group dies", func(t *testing.T) {
		spreadOver(t, 4, func(t *testing.T, c *cluster, uid string) {
			names := c.formed()
			door := c.peers[slices.IndexFunc(c.peers, func(p *fakePeer) bool { return !slices.Contains(names, p.name) })]
			lose(t, c, door, "m", func(on *fakePeer) { on.crash() })
			if now := door.group("m"); len(now) != 2 || slices.Contains(now, names[0]) {
				t.Errorf("it goes on at %v, of %v the first is dead", now, names)
			}
		})
	})
}
