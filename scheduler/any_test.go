package scheduler

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/scheduler/leadership"
	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

// world is a random mesh that random things happen to.
type world struct {
	*cluster
	r      *rand.Rand
	names  []string // Of models that there are, or were.
	obeyed map[string]leadership.Fence
	log    []string
}

// TestAnyMesh: no peer over its memory, whatever happens; no fence that falls; and
// once all is quiet, one placement for each model, no engine without one, and every
// model that is asked for served or refused. RELAY_TEST_MESHES is how many meshes.
func TestAnyMesh(t *testing.T) {
	meshes, first := 10, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("RELAY_TEST_MESHES")); err == nil {
		meshes = n
	}
	if n, err := strconv.Atoi(os.Getenv("RELAY_TEST_SEED")); err == nil {
		meshes, first = 1, uint64(n)
	}
	for seed := first; seed < first+uint64(meshes); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			bubble(t, 1+r.IntN(4), func(t *testing.T, c *cluster) {
				w := &world{cluster: c, r: r, obeyed: map[string]leadership.Fence{}}
				defer func() {
					if t.Failed() {
						t.Logf("what happened:\n%s", strings.Join(w.log, "\n"))
					}
				}()
				w.begin()
				for range 12 {
					w.event()
					for range 1 + r.IntN(8) {
						c.pass(time.Duration(1+r.IntN(2000)) * time.Millisecond)
						w.check()
					}
				}
				w.rest()
			})
		})
	}
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%s ", time.Now().Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

func (w *world) one() *fakePeer { return w.peers[w.r.IntN(len(w.peers))] }

// begin gives some peers GPUs, and the mesh some models.
func (w *world) begin() {
	for _, p := range w.peers {
		if w.r.IntN(3) > 0 {
			continue
		}
		p.engine.mu.Lock()
		for i := range 1 + w.r.IntN(2) {
			p.engine.gpus = append(p.engine.gpus, card(fmt.Sprint("CUDA", i), uint64(1+w.r.IntN(4))*gib))
		}
		p.engine.mu.Unlock()
	}
	w.pass(time.Minute + time.Second) // They are found.
	for i := range 1 + w.r.IntN(5) {
		name := "m" + string(rune('a'+i))
		w.names = append(w.names, name)
		var holders []*fakePeer
		for _, p := range w.peers {
			if w.r.IntN(2) == 0 {
				holders = append(holders, p)
			}
		}
		w.hold(name, holders...)
		size := uint64(1+w.r.IntN(12)) * gib / 4
		w.one().register(name, 1, shaped(size), func(m *Model) {
			m.Pinned, m.IdleUnload = w.r.IntN(8) == 0, int64(w.r.IntN(2)*40)
		})
		w.say("model %s of %d MiB on %d peers", name, size>>20, len(holders))
	}
}

// up are the peers that run.
func (w *world) up() (list []*fakePeer) {
	for _, p := range w.peers {
		if p.up {
			list = append(list, p)
		}
	}
	return list
}

// event has something happen.
func (w *world) event() {
	p, name := w.one(), w.names[w.r.IntN(len(w.names))]
	switch what := w.r.IntN(12); {
	case what == 0 && p.up && len(w.up()) > 1:
		w.say("%s crashes", p.name)
		p.crash()
	case !p.up:
		w.say("%s is started", p.name)
		p.engine = &fakeEngine{gpus: p.engine.gpus}
		p.open()
		p.start()
	case what == 1:
		n := w.r.IntN(len(w.peers))
		w.say("%d are cut off", n)
		w.split(n)
	case what == 2:
		w.say("healed")
		w.split(0)
	case what == 3:
		s := said{cordoned: w.r.IntN(2) == 0, draining: w.r.IntN(3) == 0}
		w.say("%s is %+v", p.name, s)
		w.cluster.say(p, s)
	case what == 4:
		w.say("%s: its engines die", p.name)
		p.engine.killAll()
	case what == 5:
		fails := w.r.IntN(2) == 0
		w.say("%s: its engines fail: %v", p.name, fails)
		p.engine.failWith(nil)
		if fails {
			p.engine.failWith(Errorf(EngineFailed, "no"))
		}
	case what == 6:
		act := []Act{ActUnload, ActRestart, ActLoad, ActRetry}[w.r.IntN(4)]
		_, err := p.s.Act(w.t.Context(), name, act)
		w.say("%s: %s %s: %v", p.name, act, name, err)
	case what == 7:
		o := SetOptions{Pinned: ptr(w.r.IntN(2) == 0), Min: ptr(w.r.IntN(3)), Only: ptr("")}
		if w.r.IntN(4) == 0 {
			o.Only = ptr(w.one().name)
		}
		_, changed, err := p.s.Set(name, o)
		w.say("%s: set %s: %v %v", p.name, name, changed, err)
	default:
		w.say("%s: %s is asked for", p.name, name)
		_ = p.ask(name)
	}
}

// check is what holds at all times.
func (w *world) check() {
	w.t.Helper()
	for _, p := range w.peers {
		p.engine.mu.Lock()
		for device, used := range p.engine.used {
			lent := p.lend
			for _, g := range p.engine.gpus {
				if g.ID == device {
					lent = g.Total
				}
			}
			if used > lent {
				w.t.Errorf("%s uses %d bytes of %s, %d are lent", p.name, used, device, lent)
			}
		}
		p.engine.mu.Unlock()
		if !p.up {
			continue
		}
		cores := 0
		for _, n := range p.s.cores.Busy() {
			cores += n
		}
		if cores > p.s.CoresLent {
			w.t.Errorf("%s: %d cores are busy, %d are lent", p.name, cores, p.s.CoresLent)
		}
		for _, name := range w.names {
			kept, ok, _ := p.state.Get([]byte("fence/" + uidOf(name)))
			if !ok {
				continue
			}
			key := p.name + name
			f := leadership.Fence{Epoch: binary.BigEndian.Uint64(kept), Rank: binary.BigEndian.Uint64(kept[8:])}
			if f.Less(w.obeyed[key]) {
				w.t.Errorf("%s obeyed %v after %v for %s", p.name, f, w.obeyed[key], name)
			}
			w.obeyed[key] = f
		}
		if v := p.s.newView(); len(v.models) > 0 { // The same view gives the same plan.
			m := v.models[w.r.IntN(len(v.models))]
			model := placement.Model{UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: 1, Evict: true, Fetch: true}
			one, two := placement.Place(model, v.snapshot(m, p.s.self)), placement.Place(model, p.s.newView().snapshot(m, p.s.self))
			if fmt.Sprint(one) != fmt.Sprint(two) {
				w.t.Errorf("%s plans %v and %v", p.name, one, two)
			}
		}
	}
}

// rest heals everything and checks what holds then.
func (w *world) rest() {
	w.t.Helper()
	w.say("all is healed")
	w.split(0)
	for _, p := range w.peers {
		w.cluster.say(p, said{})
		p.engine.failWith(nil)
		if !p.up {
			p.engine = &fakeEngine{gpus: p.engine.gpus}
			p.open()
			p.start()
		}
	}
	w.compareAll()
	w.pass(time.Minute)
	for _, name := range w.names {
		if _, err := w.peers[0].s.Act(w.t.Context(), name, ActRetry); err != nil {
			w.t.Errorf("retry %s: %v", name, err)
		}
	}
	w.pass(time.Minute)
	w.check()
	engines := map[string]int{}
	for _, p := range w.peers {
		for _, process := range p.engine.processes() {
			engines[process.launch.UID]++
			placed := p.s.newView().placements[process.launch.UID]
			if !slices.Contains(placed.Peers, p.id.String()) {
				w.t.Errorf("%s runs %s without an order: %s", p.name, process.launch.Model.Name, placed.Text)
			}
		}
	}
	for _, name := range w.names {
		uid := uidOf(name)
		first := w.peers[0].s.newView().placements[uid]
		for _, p := range w.peers {
			if own := p.s.newView().placements[uid]; own.version != first.version || own.leader != first.leader {
				w.t.Errorf("%s has another placement of %s: %v, %v", p.name, name, own.version, first.version)
			}
		}
		if len(first.Peers) != engines[uid] {
			w.t.Errorf("%s runs %d times, and is placed on %d: %s", name, engines[uid], len(first.Peers), first.Text)
		}
		w.served(name)
	}
}

// served has a model asked for that fits, or refused for a reason that is true.
func (w *world) served(name string) {
	w.t.Helper()
	p := w.one()
	if got := <-p.ask(name); got.err != nil {
		v := p.s.newView()
		m := v.model[uidOf(name)]
		for _, o := range w.peers {
			q := v.peer[o.id.String()]
			machine := v.machine(q, m.uid)
			if _, _, fits := ways.Best(m.shape(), machine, ways.Evicts); fits && slices.Contains(v.wholeHolders(m), q.id) && (m.Only == "" || m.Only == q.id) {
				w.t.Errorf("%s is refused (%v), and fits on %s", name, got.err, o.name)
			}
		}
	}
	w.pass(5 * time.Second)
	w.check()
}
