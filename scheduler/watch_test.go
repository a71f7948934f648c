package scheduler

import (
	"strings"
	"testing"
	"time"

	"relay/scheduler/ways"
)

// An engine that takes more and more memory is counted for what it takes, and
// replaced, without a gap where there is room, before the machine suffers.
func TestAnEngineThatLeaksIsReplaced(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		grows := func(bytes uint64) {
			for _, p := range a.engine.processes() {
				a.engine.mu.Lock()
				p.usage = Usage{RSS: bytes, Private: bytes}
				a.engine.mu.Unlock()
			}
			c.pass(2 * memoryEvery)
		}
		grows(1 << 30)
		grows(3 << 29)
		c.want("reserved for one that takes half as much again", a.s.ledger.Reserved()[ways.HostID], uint64(3<<29))
		c.want("room told", a.s.newView().peer[a.id.String()].advert.Room, uint64(4<<30-3<<29))
		c.want("starts", a.engine.starts(), 1)
		grows(5 << 29)
		c.always(5*time.Second, "it serves", a.serves("m", 1))
		c.want("starts", a.engine.starts(), 2)
		c.want("engines", a.engine.count(), 1)
		c.want("reserved for the new one", a.s.ledger.Reserved()[ways.HostID], uint64(1<<30))
		if !a.decided("its engine takes 2.5 GiB of memory where 1.0 GiB were expected, and is replaced") {
			t.Errorf("%+v", a.s.Decisions())
		}
	})
}

// What the engine says that it took is what is reserved, and what is planned with the
// next time; how fast it was is learnt for the device, told, and kept over a restart.
func TestWhatIsMeasuredIsKept(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		a.engine.reports = true
		c.alone(a)
		c.hold("m", a)
		b.register("m", 1, shaped(1<<30))
		c.pass(10 * time.Second)
		took := a.engine.peak(ways.HostID) + 64<<20 // What it does not count itself.
		c.want("reserved", a.s.ledger.Reserved()[ways.HostID], took)
		// 100 tokens in ten seconds, one request at a time.
		for n := range 3 {
			lease, err := a.s.Serve(t.Context(), Want{UID: uidOf("m")})
			if err != nil {
				t.Fatal(err)
			}
			a.engine.mu.Lock()
			for p := range a.engine.running {
				p.timings = Timings{Tokens: uint64(100 * (n + 1)), TokenTime: time.Duration(10*(n+1)) * time.Second}
			}
			a.engine.mu.Unlock()
			lease.Done(nil)
			c.pass(measuredEvery + 5*time.Second)
		}
		host := func() Device {
			devices := b.s.newView().peer[a.id.String()].advert.Devices
			return devices[len(devices)-1]
		}
		if d := host().Decode; d < 9.9*gib || d > 10.2*gib {
			t.Errorf("learnt: %g bytes a second", d)
		}
		learnt := host().Decode
		a.crash()
		a.engine = &fakeEngine{reports: true}
		a.open()
		a.start()
		c.lends(a, 4<<30)
		c.pass(10 * time.Second)
		c.want("told after a restart", host().Decode, learnt)
		plan, err := b.s.Plan("m")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range plan.Ways {
			if w.Peer != a.id.String() || w.Way != "cpu" {
				continue
			}
			if w.Measured == nil || w.Measured.Decode < 9.5 || w.Measured.Decode > 10.5 {
				t.Errorf("%+v", w)
			}
		}
		took = a.s.ledger.Reserved()[ways.HostID]
		b.act("m", ActUnload)
		c.pass(5 * time.Second)
		b.act("m", ActLoad)
		c.pass(5 * time.Second)
		way := a.engine.last.Way
		c.want("ordered memory", way.Need()[ways.HostID], took)
		if way.Guessed || way.Decode < 9.5 || way.Decode > 10.5 {
			t.Errorf("predicted: %+v", way)
		}
	})
}

// Two engines on the CPU share the cores that are lent: while the first, which has
// them all, is busy the second waits; once it is idle each gets half of them, and
// both work at a time.
func TestCoresAreShared(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("one", 1<<30, a)
		c.pass(10 * time.Second)
		c.want("threads of the first", a.engine.last.Threads, 2)
		first, err := a.s.Serve(t.Context(), Want{UID: uidOf("one")})
		if err != nil {
			t.Fatal(err)
		}
		c.addModel("two", 1<<30, a)
		c.pass(10 * time.Second)
		c.want("threads of the second", a.engine.last.Threads, 1)
		came := make(chan Lease, 1)
		go func() {
			if lease, err := a.s.Serve(t.Context(), Want{UID: uidOf("two")}); err == nil {
				came <- lease
			}
		}()
		c.pass(5 * time.Second)
		c.want("waiting for the cores", a.s.cores.Waiting(), 1)
		for _, l := range a.s.Workload() {
			c.want("waiting there", l.Waiting, map[bool]int{true: 1}[l.UID == uidOf("two")])
		}
		first.Done(nil)
		(<-came).Done(nil)
		c.pass(10 * time.Second)
		c.want("busy", len(a.s.cores.Busy()), 0)
		c.want("threads of the first then", a.engine.last.Threads, 1)
		for _, name := range []string{"one", "two"} {
			lease, err := a.s.Serve(t.Context(), Want{UID: uidOf(name)})
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Done(nil)
		}
		c.want("busy at a time", len(a.s.cores.Busy()), 2)
	})
}

// Across a cut each side serves; the side that kept its replica loses no request
// when it heals, and one engine is left.
func TestNoRequestIsLostWhenACutHeals(t *testing.T) {
	bubble(t, 4, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0], c.peers[3])
		c.pass(10 * time.Second)
		on, other := c.serving("m", c.peers[0], c.peers[3])
		near, far := c.peers[1], c.peers[2]
		if on == c.peers[3] {
			near, far = far, near
		}
		c.split(2)
		c.always(30*time.Second, "the side with the replica serves", near.serves("m", 1))
		c.want("the other side", far.ready("m"), []string{other.name})
		c.split(0)
		kept := near.serves("m", 1)
		c.always(40*time.Second, "it serves", kept)
		c.want("engines", on.engine.count()+other.engine.count(), 1)
	})
}

// A GPU's owner takes it back while the model loads there: loading is not another
// program's use, and long loads do not make a GPU busy.
func TestALongLoadIsNotAnotherProgram(t *testing.T) {
	withGPUs(t, true, []Device{card("CUDA0", 8*gib)}, func(t *testing.T, c *cluster, a, b *fakePeer) {
		a.engine.load = time.Minute
		a.engine.blind = true
		c.hold("m", a)
		b.register("m", 1, shaped(4*gib))
		c.pass(90 * time.Second)
		c.want("ready", b.ready("m"), []string{"a"})
		c.want("ways", a.engine.kinds(), []ways.Kind{ways.OneGPU})
		for _, d := range a.s.Peers() {
			for _, device := range d.Devices {
				if strings.Contains(device.Busy, "another program") {
					t.Errorf("%+v", device)
				}
			}
		}
	})
}
