package routing_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"relay/scheduler/routing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// scene is an entrance and the replicas that it sees.
type scene struct {
	t        *testing.T
	book     *routing.Book
	replicas []routing.Replica
	now      time.Time
	chance   uint64
	d        routing.Decision
}

// set is a scene of equal replicas called a, b, c.
func set(t *testing.T, n int) *scene {
	s := &scene{t: t, book: routing.New(), now: start, chance: 1}
	for i := range n {
		s.replicas = append(s.replicas, routing.Replica{Peer: string(rune('a' + i)), RTT: time.Millisecond, Slots: 2, Context: 4096, Decode: 40, Prefill: 1000})
	}
	return s
}

func (s *scene) change(at int, how func(*routing.Replica)) *scene {
	how(&s.replicas[at])
	return s
}

func (s *scene) pick(w routing.Want) *routing.Trip {
	var trip *routing.Trip
	s.d, trip = s.book.Pick("model", w, s.replicas, s.now, s.chance)
	return trip
}

// send has requests under way at one replica, and nobody else asked.
func (s *scene) send(at, requests int) (trips []*routing.Trip) {
	s.t.Helper()
	only := s.only(at)
	for range requests {
		_, trip := s.book.Pick("model", routing.Want{}, only, s.now, 0)
		trips = append(trips, trip)
	}
	return trips
}

// only are the replicas with all others tried.
func (s *scene) only(at int) []routing.Replica {
	only := append([]routing.Replica{}, s.replicas...)
	for i := range only {
		if i != at {
			only[i].Out = routing.Tried
		}
	}
	return only
}

// served has one request answered at one replica.
func (s *scene) served(at int, w routing.Want) *scene { return s.ended(at, w, routing.Served) }

func (s *scene) ended(at int, w routing.Want, end routing.End) *scene {
	_, trip := s.book.Pick("model", w, s.only(at), s.now, 0)
	trip.Done(end, s.now, 0)
	return s
}

// heard has a replica say how busy it is.
func (s *scene) heard(at, running, waiting int) *scene {
	trip := s.send(at, 1)[0]
	trip.Heard(routing.Load{Running: running + 1, Waiting: waiting, Slots: s.replicas[at].Slots}, s.now)
	trip.Done(routing.Served, s.now, 0)
	return s
}

func (s *scene) later(d time.Duration) *scene {
	s.now = s.now.Add(d)
	return s
}

// talking is a request of the nth talk, after so many turns, with a prompt so long.
func talking(nth, turns, tokens int) routing.Want {
	c := conversation{id: nth, asked: turns}
	return routing.Want{Prefix: c.prefix(), Shared: 1, Tokens: tokens}
}

var decisions = []struct {
	name  string
	scene func(t *testing.T) *scene
	want  routing.Want
}{
	{"nothing to read again: this peer's own", func(t *testing.T) *scene { return set(t, 3).change(1, local) }, routing.Want{Tokens: 500}},
	{"this peer's own has something to do", func(t *testing.T) *scene {
		return set(t, 3).change(1, local).change(1, func(r *routing.Replica) { r.Load = routing.Load{Running: 1, Slots: 2} })
	}, routing.Want{Tokens: 500}},
	{"who had the least to do lately", func(t *testing.T) *scene { return set(t, 3).served(0, routing.Want{}).served(2, routing.Want{}) }, routing.Want{Tokens: 500}},
	{"why replicas are not asked", func(t *testing.T) *scene {
		s := set(t, 9)
		for i, out := range []routing.Out{routing.NotReady, routing.NotAlive, routing.NoTrust, routing.Tried, routing.Leaving} {
			s.replicas[i].Out = out
		}
		s.replicas[5].Context = 400
		return s.ended(6, routing.Want{}, routing.Refused).ended(7, routing.Want{}, routing.Failed)
	}, routing.Want{Tokens: 500}},
	{"nobody can be asked", func(t *testing.T) *scene {
		return set(t, 2).change(0, func(r *routing.Replica) { r.Out = routing.NotReady }).change(1, func(r *routing.Replica) { r.Out = routing.Tried })
	}, routing.Want{}},
	{"all are full: rather than one that failed", func(t *testing.T) *scene {
		return set(t, 2).ended(0, routing.Want{}, routing.Failed).ended(1, routing.Want{}, routing.Refused)
	}, routing.Want{}},
	{"all failed: asked all the same", func(t *testing.T) *scene {
		return set(t, 2).ended(0, routing.Want{}, routing.Failed).ended(1, routing.Want{}, routing.Failed)
	}, routing.Want{}},
	{"all are leaving", func(t *testing.T) *scene {
		return set(t, 2).change(0, leaving).change(1, leaving)
	}, routing.Want{}},
	{"it said that it is full, a moment ago", func(t *testing.T) *scene {
		return set(t, 2).ended(0, routing.Want{}, routing.Refused).later(time.Second)
	}, routing.Want{}},
	{"the fast one first", func(t *testing.T) *scene {
		s := set(t, 2).change(1, slower(2))
		s.send(0, 1)
		return s
	}, routing.Want{Tokens: 500}},
	{"the fast one is full, the slower one next", func(t *testing.T) *scene {
		s := set(t, 2).change(1, slower(2))
		s.send(0, 2)
		return s
	}, routing.Want{Tokens: 500}},
	{"one that is far slower: the queue is quicker", func(t *testing.T) *scene {
		s := set(t, 2).change(1, slower(10))
		s.send(0, 2)
		return s
	}, routing.Want{Tokens: 500}},
	{"all are full: the shorter queue", func(t *testing.T) *scene {
		s := set(t, 2)
		s.send(0, 5)
		s.send(1, 3)
		return s
	}, routing.Want{Tokens: 500}},
	{"a little slower is no difference", func(t *testing.T) *scene { return set(t, 2).change(0, slower(1.2)).served(1, routing.Want{}) }, routing.Want{Tokens: 500}},
	{"its speed is not known yet", func(t *testing.T) *scene {
		return set(t, 3).change(0, slower(3)).change(1, func(r *routing.Replica) { r.Decode, r.Prefill = 0, 0 }).served(2, routing.Want{})
	}, routing.Want{Tokens: 500}},
	{"no speed is known", func(t *testing.T) *scene {
		s := set(t, 2)
		for i := range s.replicas {
			s.replicas[i].Decode, s.replicas[i].Prefill = 0, 0
		}
		return s
	}, routing.Want{Tokens: 500}},
	{"far, by way of a relay, and near", func(t *testing.T) *scene {
		return set(t, 3).change(0, func(r *routing.Replica) { r.RTT = 200 * time.Millisecond }).change(1, func(r *routing.Replica) { r.Relayed = true })
	}, routing.Want{Tokens: 500}},
	{"others keep it busy, as it said", func(t *testing.T) *scene { return set(t, 2).heard(0, 2, 3) }, routing.Want{Tokens: 500}},
	{"others kept it busy, long ago", func(t *testing.T) *scene { return set(t, 2).heard(0, 2, 3).heard(1, 0, 0).later(2 * time.Minute) }, routing.Want{Tokens: 500}},
	{"it has no slot for several answers", func(t *testing.T) *scene {
		s := set(t, 2)
		s.send(0, 1)
		return s
	}, routing.Want{Tokens: 500, Answers: 2}},
	{"what takes no slot does not wait for one", func(t *testing.T) *scene {
		s := set(t, 2).change(0, local)
		s.send(1, 2)
		return s.change(0, func(r *routing.Replica) { r.Load = routing.Load{Running: 2, Slots: 2} })
	}, routing.Want{Tokens: 500, Light: true}},
	{"a talk goes on where it was", func(t *testing.T) *scene { return set(t, 3).change(0, local).served(2, talking(1, 0, 300)) }, talking(1, 1, 500)},
	{"the only talk stays, although all work is done there", func(t *testing.T) *scene {
		return set(t, 3).served(1, talking(1, 0, 300)).served(1, talking(1, 1, 500)).served(1, talking(1, 2, 700))
	}, talking(1, 3, 900)},
	{"where it was is full, and there is little to read again", func(t *testing.T) *scene {
		s := set(t, 2).served(1, talking(1, 0, 300))
		s.send(1, 2)
		return s
	}, talking(1, 1, 500)},
	{"where it was is full, and there is much to read again, slowly", func(t *testing.T) *scene {
		s := set(t, 2)
		for i := range s.replicas {
			s.replicas[i].Context, s.replicas[i].Prefill = 1<<16, 100
		}
		s.served(1, talking(1, 5, 20000))
		s.send(1, 2)
		return s
	}, talking(1, 6, 20200)},
	{"a second talk with the same instructions goes elsewhere", func(t *testing.T) *scene { return set(t, 2).served(0, talking(1, 0, 300)) }, talking(2, 0, 300)},
	{"one of too many talks moves on", func(t *testing.T) *scene {
		s := set(t, 2)
		for i := range 4 {
			s.served(0, talking(i, 0, 300))
		}
		return s
	}, talking(3, 1, 500)},
	{"a talk that went on elsewhere is where others took it", func(t *testing.T) *scene { return set(t, 3) }, talking(5, 2, 500)},
	{"a talk whose replica is gone", func(t *testing.T) *scene {
		return set(t, 3).served(0, talking(1, 0, 300)).change(0, func(r *routing.Replica) { r.Out = routing.NotAlive })
	}, talking(1, 1, 500)},
	{"a talk whose replica is slow, and a fast one has come", func(t *testing.T) *scene {
		return set(t, 2).change(0, slower(4)).served(0, talking(1, 0, 300))
	}, talking(1, 1, 500)},
}

func local(r *routing.Replica)   { r.Local, r.RTT = true, 0 }
func leaving(r *routing.Replica) { r.Out = routing.Leaving }

func slower(times float64) func(*routing.Replica) {
	return func(r *routing.Replica) { r.Decode, r.Prefill = r.Decode/times, r.Prefill/times }
}

func TestDecisions(t *testing.T) {
	var b strings.Builder
	for _, c := range decisions {
		s := c.scene(t)
		s.pick(c.want)
		fmt.Fprintf(&b, "%s\n", c.name)
		for i, v := range s.d.Each {
			mark := " "
			if i == s.d.Pick {
				mark = ">"
			}
			fmt.Fprintf(&b, "%s %s %-10s wait %6.2f  read %6.2f  write %6.2f  way %5.3f  in all %6.2f\n", mark, v.Peer, v.Out, v.Wait, v.Read, v.Write, v.Way, v.Seconds())
		}
		fmt.Fprintln(&b)
	}
	const path = "testdata/decisions.txt"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("decisions are others than in %s (see -update):\n%s", path, b.String())
	}
}
