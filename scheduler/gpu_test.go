package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/scheduler/ways"
)

const gib = 1 << 30

// shaped gives a model four layers of a quarter of so many bytes each.
func shaped(bytes uint64) func(*Model) {
	return func(m *Model) {
		m.Shape = &ways.Shape{Input: 1 << 20, Output: 1 << 20, Layers: []ways.Layers{{Count: 4, Weights: bytes / 4, KV: 1 << 20}}, Compute: 16 << 20, Host: 64 << 20}
		m.Need = m.Shape.CPU()
	}
}

func card(id string, total uint64) Device {
	return Device{ID: id, Name: "a GPU", Kind: "gpu", Total: total, Known: true}
}

// withGPUs runs a test of two peers, the first of which has GPUs, and both 4 GiB of
// RAM and more.
func withGPUs(t *testing.T, autoPause bool, gpus []Device, f func(t *testing.T, c *cluster, a, b *fakePeer)) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		a.crash()
		a.lend, a.autoPause = 0, autoPause
		a.engine = &fakeEngine{gpus: gpus}
		a.open()
		a.start()
		c.alone(a)
		c.pass(settledAfter)
		f(t, c, a, b)
	})
}

func TestWaysOnGPUs(t *testing.T) {
	unified := card("CUDA0", 24*gib)
	unified.Unified = true
	unknown := card("CUDA0", 0)
	unknown.Known = false
	for name, test := range map[string]struct {
		gpus  []Device
		bytes uint64
		kind  ways.Kind
	}{
		"it fits":         {[]Device{card("CUDA0", 8*gib)}, 4 * gib, ways.OneGPU},
		"on two":          {[]Device{card("CUDA0", 3*gib), card("CUDA1", 3*gib)}, 4 * gib, ways.GPUs},
		"partly":          {[]Device{card("CUDA0", 3*gib)}, 4 * gib, ways.Hybrid},
		"not at all":      {[]Device{card("CUDA0", 100<<20)}, 4 * gib, ways.CPU},
		"unified":         {[]Device{unified}, 4 * gib, ways.OneGPU},
		"it is not known": {[]Device{unknown}, 4 * gib, ways.CPU},
	} {
		t.Run(name, func(t *testing.T) {
			withGPUs(t, false, test.gpus, func(t *testing.T, c *cluster, a, b *fakePeer) {
				c.hold("m", a)
				b.register("m", 1, shaped(test.bytes))
				c.pass(10 * time.Second)
				c.want("ready", b.ready("m"), []string{"a"})
				c.want("ways", a.engine.kinds(), []ways.Kind{test.kind})
				m, _ := b.s.Model("m")
				c.want("told", m.Replicas[0].Way, test.kind)
				reserved := a.s.ledger.Reserved()
				for device, most := range a.engine.most {
					c.want("reserved on "+device, reserved[device], most)
				}
				if test.gpus[0].Unified && reserved[ways.HostID] < test.bytes {
					t.Errorf("in host memory %d bytes are reserved", reserved[ways.HostID])
				}
			})
		})
	}
}

// What other programs do with a GPU keeps new models from it, in words; loading one
// for long is not another program.
func TestAGPUThatOthersUse(t *testing.T) {
	withGPUs(t, false, []Device{card("CUDA0", 8*gib)}, func(t *testing.T, c *cluster, a, b *fakePeer) {
		a.engine.others("CUDA0", gib)
		c.pass(15 * time.Second)
		c.hold("m", a)
		b.register("m", 1, shaped(2*gib))
		c.pass(10 * time.Second)
		c.want("ways", a.engine.kinds(), []ways.Kind{ways.CPU})
		plan, err := b.s.Plan("m")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(plan.Ways, func(w PlannedWay) bool { return w.Peer == a.id.String() && w.Way == "gpu" })
		if i < 0 || !strings.Contains(plan.Ways[i].Text, "another program uses CUDA0 (1.0 GiB") {
			t.Errorf("%+v", plan.Ways)
		}
		a.engine.others("CUDA0", 0)
		c.pass(30 * time.Second)
		c.hold("n", a)
		b.register("n", 1, shaped(2*gib))
		c.pass(10 * time.Second)
		c.want("ways", a.engine.kinds(), []ways.Kind{ways.CPU, ways.OneGPU, ways.OneGPU}) // The first one has moved.
	})
}

// With auto-pause what runs on a GPU ends when somebody else uses it, once its
// requests are finished, and the mesh serves the model another way.
func TestAutoPause(t *testing.T) {
	withGPUs(t, true, []Device{card("CUDA0", 8*gib)}, func(t *testing.T, c *cluster, a, b *fakePeer) {
		c.hold("m", a)
		b.register("m", 1, shaped(2*gib))
		c.pass(10 * time.Second)
		route, err := a.s.Route(t.Context(), Want{UID: "m"})
		if err != nil {
			t.Fatal(err)
		}
		a.engine.others("CUDA0", gib)
		c.pass(15 * time.Second)
		c.want("engines under a request", a.engine.count(), 1)
		route.Done(nil)
		c.pass(15 * time.Second)
		c.want("ready", b.ready("m"), []string{"a"})
		c.want("ways", fmt.Sprint(a.engine.kinds()), "[gpu cpu]")
		if !b.decided("another program uses CUDA0") {
			t.Errorf("%+v", b.s.Decisions())
		}
	})
}

// What other programs hold of a GPU is lent neither while models are being started
// there, when it is not told from what those take.
func TestWhatOthersHoldIsNotLentWhileModelsStart(t *testing.T) {
	withGPUs(t, false, []Device{card("CUDA0", 6*gib)}, func(t *testing.T, c *cluster, a, b *fakePeer) {
		a.engine.others("CUDA0", 200<<20)
		a.engine.load = 20 * time.Second
		c.pass(15 * time.Second)
		c.hold("one", a)
		c.hold("two", a)
		b.register("one", 1, shaped(gib))
		most := uint64(0)
		for i := range 30 {
			if i == 7 { // Between two looks.
				b.register("two", 1, shaped(2*gib))
			}
			c.pass(time.Second)
			a.s.advert.mu.Lock()
			most = max(most, a.s.advert.current.Devices[0].Lent)
			a.s.advert.mu.Unlock()
		}
		c.want("ways", a.engine.kinds(), []ways.Kind{ways.OneGPU, ways.OneGPU})
		c.want("lent at most", most, uint64(6*gib-200<<20))
	})
}
