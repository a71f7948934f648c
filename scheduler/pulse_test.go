package scheduler

import (
	"testing"
	"time"
)

// An engine that has requests and neither answers nor computes is ended within seconds, and
// what it had goes on elsewhere; one that reads a long prompt answers nothing for long, and
// stays, and so does one that has nothing to do, or of which the system tells nothing.
func TestAnEngineThatHangsIsEnded(t *testing.T) {
	const most = pulseEvery + pulsesMissed*pulseTime + time.Second
	none := func() time.Duration { return time.Second }
	for name, test := range map[string]struct {
		works func() time.Duration
		asked bool
		ends  bool
	}{
		"it does nothing":          {none, true, true},
		"it reads a prompt":        {func() time.Duration { return time.Duration(time.Now().UnixNano()) / 2 }, true, false},
		"nobody asks it":           {none, false, false},
		"the system tells nothing": {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			two(t, func(t *testing.T, c *cluster, on, other, door *fakePeer) {
				s := door.stream("m", on)
				if test.asked {
					lease, err := on.s.Serve(t.Context(), Want{UID: uidOf("m")})
					if err != nil {
						t.Fatal(err)
					}
					defer lease.Done(nil)
				}
				on.engine.mu.Lock()
				for p := range on.engine.running {
					p.stuck, p.works = true, test.works
				}
				on.engine.mu.Unlock()
				c.pass(most)
				if !test.ends {
					c.pass(time.Minute)
					c.want("away", s.why(), "")
					c.want("starts", on.engine.starts(), 1)
					return
				}
				if why := s.why(); why != EngineFailed && why != Draining { // The next one may be on its way already.
					t.Errorf("away: %q", why)
				}
				c.want("ready", door.ready("m"), []string{other.name})
				c.pass(10 * time.Second)
				c.want("ready again", len(door.ready("m")), 2)
				c.want("starts", on.engine.starts(), 2)
			})
		})
	}
}

// One that hesitates once is not ended.
func TestAnEngineThatHesitatesStays(t *testing.T) {
	two(t, func(t *testing.T, c *cluster, on, other, door *fakePeer) {
		lease, err := on.s.Serve(t.Context(), Want{UID: uidOf("m")})
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Done(nil)
		stuck := func(yes bool) {
			on.engine.mu.Lock()
			defer on.engine.mu.Unlock()
			for p := range on.engine.running {
				p.stuck, p.works = yes, func() time.Duration { return time.Second }
			}
		}
		for range 20 {
			stuck(true)
			c.pass(pulseTime + pulseEvery/2)
			stuck(false)
			c.pass(2 * pulseEvery)
		}
		c.want("starts", on.engine.starts(), 1)
	})
}
