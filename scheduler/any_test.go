package scheduler

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay/p2p/record"
	"relay/scheduler/leadership"
	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

// world is a random mesh that random things happen to.
type world struct {
	*cluster
	r      *rand.Rand
	models []*worldModel
	obeyed map[string]leadership.Fence
	old    []record.Signed // Placements as they once were.
	log    []string

	ctx      context.Context // Of the requests.
	requests sync.WaitGroup
	heldMu   sync.Mutex
	held     map[*fakeProcess]int // Requests that computed when that was last looked at.
}

// worldModel is a name that there was a model of. Each time that it is added again
// it has another uid.
type worldModel struct {
	name, uid string
	times     int
	size      uint64
	large     bool // More than most peers lend, in layers fine enough for several.
}

// TestAnyMesh: no peer over its memory or its cores, whatever happens; no fence that
// falls, and nothing that a leader says who leads no more; and once all is quiet, one
// placement for each model, no engine without one, and every model that is asked for
// served, or refused for a reason that is true. RELAY_TEST_MESHES is how many meshes,
// RELAY_TEST_SEED the first of them.
func TestAnyMesh(t *testing.T) {
	meshes, first := 30, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("RELAY_TEST_SEED")); err == nil {
		meshes, first = 1, uint64(n)
	}
	if n, err := strconv.Atoi(os.Getenv("RELAY_TEST_MESHES")); err == nil {
		meshes = n
	}
	for seed := first; seed < first+uint64(meshes); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { anyMesh(t, seed) })
	}
}

func anyMesh(t *testing.T, seed uint64) {
	var secret [32]byte
	binary.BigEndian.PutUint64(secret[:], seed)
	r := rand.New(rand.NewPCG(seed, 0))
	seededBubble(t, 1+r.IntN(4), rand.NewChaCha8(secret), func(t *testing.T, c *cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{cluster: c, r: r, obeyed: map[string]leadership.Fence{}, ctx: ctx, held: map[*fakeProcess]int{}}
		defer func() {
			cancel()
			w.requests.Wait()
			if t.Failed() {
				t.Logf("what happened:\n%s", strings.Join(w.log, "\n"))
			}
		}()
		w.begin()
		for range 20 {
			w.event()
			for range 1 + r.IntN(8) {
				w.goOn(time.Duration(1+r.IntN(2000)) * time.Millisecond)
			}
		}
		w.rest()
	})
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%s ", time.Now().Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

// goOn lets time go by, and checks.
func (w *world) goOn(d time.Duration) {
	w.t.Helper()
	w.pass(d)
	w.check()
}

func (w *world) one() *fakePeer { return w.peers[w.r.IntN(len(w.peers))] }

func (w *world) chance(of int) bool { return w.r.IntN(of) == 0 }

// begin gives some peers GPUs, and the mesh some models.
func (w *world) begin() {
	for _, p := range w.peers {
		p.engine.mu.Lock()
		p.engine.blind = w.chance(4)
		if w.chance(3) {
			for i := range 1 + w.r.IntN(2) {
				g := card(fmt.Sprint("CUDA", i), uint64(1+w.r.IntN(4))*gib)
				g.Unified = w.chance(8)
				p.engine.gpus = append(p.engine.gpus, g)
			}
		}
		p.engine.mu.Unlock()
		w.allow(p)
	}
	w.pass(time.Minute + time.Second) // They are found.
	for i := range 1 + w.r.IntN(5) {
		m := &worldModel{name: "m" + string(rune('a'+i)), size: uint64(1+w.r.IntN(12)) * gib / 4}
		if w.chance(3) {
			m.large, m.size = true, 2*m.size
		}
		w.models = append(w.models, m)
		var holders []*fakePeer
		for _, p := range w.peers {
			if !w.chance(3) {
				holders = append(holders, p)
			}
		}
		w.hold(m.name, holders...)
		w.say("model %s of %d MiB on %d peers", m.name, m.size>>20, len(holders))
		w.add(w.one(), m)
	}
}

// add registers a model, under a uid that there was not before.
func (w *world) add(p *fakePeer, m *worldModel) {
	m.uid = uidOf(m.name + string(rune('a'+m.times)))
	m.times++
	model := Model{Name: m.name, CID: w.rootOf(m.name).String(), Bytes: 1 << 20, Kind: "chat", Context: 1024, Slots: 1 + w.r.IntN(2),
		Pinned: w.chance(5), IdleUnload: int64(w.r.IntN(2) * 40)}
	if m.large {
		layered(m.size)(&model)
	} else {
		shaped(m.size)(&model)
	}
	w.say("%s: %s is added as %s, pinned %v", p.name, m.name, m.uid[:4], model.Pinned)
	if err := p.PutShared(KindModel, m.uid, model); err != nil {
		w.t.Error(err)
	}
}

// allow has the engine of a peer note what is more than it lends, or has beside what
// other programs hold, as far as that is known: while models start it is not told from
// what those take.
func (w *world) allow(p *fakePeer) {
	synctest.Wait()
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	p.engine.may = map[string]uint64{ways.HostID: p.lend}
	for _, g := range p.engine.gpus {
		foreign := min(p.engine.foreign[g.ID], p.s.devices.foreign[g.ID])
		p.engine.may[g.ID] = min(p.lend, g.Total-min(g.Total, foreign))
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

// begins starts a peer that had ended.
func (w *world) begins(p *fakePeer) {
	w.t.Helper()
	was := p.engine
	if n := was.count() + was.shares(); n > 0 || len(was.over) > 0 {
		w.t.Errorf("%s left %d engines behind, %v", p.name, n, was.over)
	}
	p.engine = &fakeEngine{gpus: was.gpus, foreign: was.foreign, blind: was.blind}
	p.autoPause = w.chance(2)
	w.allow(p)
	p.open()
	p.start()
}

// event has something happen.
func (w *world) event() {
	p, m := w.one(), w.models[w.r.IntN(len(w.models))]
	if !p.up {
		w.say("%s is started", p.name)
		w.begins(p)
		return
	}
	switch w.r.IntN(22) {
	case 0:
		if len(w.up()) > 1 {
			w.say("%s crashes", p.name)
			p.crash()
		}
	case 1:
		n := w.r.IntN(len(w.peers))
		w.say("%d are cut off", n)
		w.split(n)
	case 2:
		w.say("healed")
		w.split(0)
	case 3:
		s := said{cordoned: w.chance(2), draining: w.chance(3)}
		w.say("%s is %+v", p.name, s)
		w.cluster.say(p, s)
	case 4:
		w.say("%s: its engines die", p.name)
		p.engine.killAll()
	case 5:
		w.fails(p)
	case 6, 7:
		act := []Act{ActUnload, ActRestart, ActLoad, ActRetry, ActSpread}[w.r.IntN(5)]
		acted, err := p.s.Act(w.ctx, m.uid, act)
		w.say("%s: %s %s: %s %v", p.name, act, m.name, acted.Text, err)
	case 8, 9:
		w.set(p, m)
	case 10:
		if len(w.up()) > 1 {
			w.leaves(p)
		}
	case 11, 12:
		w.lends(p, uint64(1+w.r.IntN(12))*gib/2)
	case 13:
		w.others(p)
	case 14:
		w.remove(p, m)
	case 15:
		w.stale(m)
	default:
		w.ask(p, m)
	}
}

// fails has the engines of a peer fail from now on, or no longer.
func (w *world) fails(p *fakePeer) {
	kind := w.r.IntN(4)
	w.say("%s: its engines fail: %s", p.name, []string{"no longer", "all", "on GPUs", "for others"}[kind])
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	p.engine.fail, p.engine.gpuFails, p.engine.shareFails = nil, nil, nil
	switch kind {
	case 1:
		p.engine.fail = Errorf(EngineFailed, "no")
	case 2:
		p.engine.gpuFails = Errorf(EngineFailed, "not there")
	case 3:
		p.engine.shareFails = Errorf(EngineFailed, "not for others")
	}
}

func (w *world) set(p *fakePeer, m *worldModel) {
	var o SetOptions
	if w.chance(3) {
		o.Pinned = ptr(w.chance(3))
	}
	if w.chance(2) {
		o.Min = ptr(w.r.IntN(3))
	}
	if w.chance(3) {
		o.Max = ptr(w.r.IntN(4))
	}
	if w.chance(3) {
		o.IdleUnload = ptr(int64(w.r.IntN(2) * 40))
	}
	switch w.r.IntN(4) {
	case 0:
		o.Only = ptr(w.one().name)
	case 1, 2:
		o.Only = ptr("")
	}
	_, changed, err := p.s.Set(m.uid, o)
	w.say("%s: set %s: %v %v", p.name, m.name, changed, err)
}

// leaves ends a peer in good order.
func (w *world) leaves(p *fakePeer) {
	w.say("%s leaves", p.name)
	p.s.Leave(10 * time.Second)
	p.stop()
	if n := p.engine.count() + p.engine.shares(); n > 0 {
		w.t.Errorf("%s left %d engines behind", p.name, n)
	}
	w.mu.Lock()
	p.up = false
	w.mu.Unlock()
	w.signal()
	w.say("%s has left", p.name)
}

// lends has a peer lend another amount of each device; what it runs stays.
func (w *world) lends(p *fakePeer, bytes uint64) {
	w.say("%s lends %d MiB", p.name, bytes>>20)
	p.lend = max(p.lend, bytes) // Less is known a little later.
	w.allow(p)
	p.s.advert.mu.Lock()
	p.s.Lend.Bytes = bytes
	p.s.advert.mu.Unlock()
	w.goOn(2 * measureEvery)
	p.lend = bytes
	w.allow(p)
}

// others has other programs use a GPU of a peer, or no longer.
func (w *world) others(p *fakePeer) {
	if len(p.engine.gpus) == 0 {
		return
	}
	g := p.engine.gpus[w.r.IntN(len(p.engine.gpus))]
	bytes := []uint64{0, 200 << 20, gib}[w.r.IntN(3)] // Some is too little for the GPU to be busy.
	w.say("%s: others use %d MiB of %s", p.name, bytes>>20, g.ID)
	p.engine.others(g.ID, bytes)
	w.allow(p)
}

// remove takes a model out of the mesh, or adds it again.
func (w *world) remove(p *fakePeer, m *worldModel) {
	if _, err := p.s.Model(m.uid); err != nil {
		w.add(p, m)
		return
	}
	_, err := p.s.Remove(w.ctx, m.uid, false, false)
	w.say("%s: %s is removed: %v", p.name, m.name, err)
	if err == nil && w.chance(2) {
		w.add(p, m)
	}
}

// staleText is what a leader says who leads no more.
const staleText = "it goes everywhere"

// stale offers everybody what was once the placement of a model, and what a peer says
// that believes to lead it still: who knows better keeps to that.
func (w *world) stale(m *worldModel) {
	w.t.Helper()
	offers := slices.Clone(w.old)
	if s, ok := w.one().table.Get(KindPlacement, m.uid); ok && s.Version[0] > 0 {
		p := w.one()
		order := Placement{Text: staleText, Evict: true}
		for _, o := range w.peers {
			order.Peers = append(order.Peers, o.id.String())
		}
		ghost, err := record.NewTable(record.Options{Storage: newMemory(), Key: p.key, Kinds: Kinds(anything, anything), Rights: p})
		if err != nil {
			w.t.Error(err)
			return
		}
		payload, err := record.Marshal(order)
		if err != nil {
			w.t.Error(err)
			return
		}
		version := record.Version{s.Version[0], leadership.Rank(m.uid, p.id.String()), 99}
		if version[1] >= s.Version[1] { // It took over before the one that leads.
			version[0]--
		}
		said, err := ghost.PutPlacement(m.uid, version, payload)
		if err != nil {
			w.say("%s cannot say that it leads %s under %v: %v", p.name, m.name, version, err)
		} else {
			w.say("%s says that it leads %s under %v", p.name, m.name, version)
			offers = append(offers, said)
		}
	}
	w.say("%d old placements are offered", len(offers))
	for _, p := range w.up() {
		for _, s := range offers {
			now, ok := p.table.Get(KindPlacement, s.ID)
			if !ok || now.Version.Compare(s.Version) <= 0 {
				continue
			}
			_, _ = p.table.Offer(s)
			if after, _ := p.table.Get(KindPlacement, s.ID); after.Version != now.Version || after.Author != now.Author {
				w.t.Errorf("%s takes placement %v of %s, and had %v", p.name, s.Version, s.ID[:4], now.Version)
			}
		}
	}
}

// ask has a model asked for, or all of them, and used for a while.
func (w *world) ask(p *fakePeer, m *worldModel) {
	models := []*worldModel{m}
	if w.chance(2) {
		models = w.models
	}
	for _, m := range models {
		many, hold := 1+w.r.IntN(3), time.Duration(w.r.IntN(3)*w.r.IntN(20))*time.Second
		w.say("%s: %s is asked for, %d times, for %s each", p.name, m.name, many, hold)
		for range many {
			w.request(p, m.uid, hold)
		}
	}
}

// request asks a peer for a model, as its door would, and keeps for a while what it
// is given.
func (w *world) request(p *fakePeer, uid string, hold time.Duration) <-chan error {
	done, s := make(chan error, 1), p.s
	w.requests.Go(func() {
		var tried []string
		for range 4 {
			route, err := s.Route(w.ctx, Want{UID: uid, Tried: tried})
			if err != nil {
				done <- err
				return
			}
			if route.Local {
				w.compute(p, route.Client.(toProcess).process, hold)
				route.Done(nil)
				done <- nil
				return
			}
			lease, o, ok := w.serve(p, route)
			if ok {
				w.compute(o, lease.Client.(toProcess).process, hold)
				lease.Done(nil)
				route.Done(nil)
				done <- nil
				return
			}
			route.Done(nil)
			tried = append(tried, route.Peer)
		}
		done <- Errorf(Unreachable, "nobody who was tried serves")
	})
	return done
}

func (w *world) serve(p *fakePeer, route Route) (lease Lease, o *fakePeer, ok bool) {
	o = w.peers[slices.IndexFunc(w.peers, func(o *fakePeer) bool { return o.id.String() == route.Peer })]
	w.mu.Lock()
	heard := w.hears(p, o)
	w.mu.Unlock()
	if !heard {
		return lease, o, false
	}
	lease, err := o.s.Serve(w.ctx, Want{UID: route.Model.UID})
	return lease, o, err == nil
}

// compute keeps a process busy, and checks that no peer has more threads at work than
// it lends cores.
func (w *world) compute(p *fakePeer, process *fakeProcess, hold time.Duration) {
	w.heldMu.Lock()
	w.held[process]++
	w.threads(p)
	w.heldMu.Unlock()
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-process.done:
	case <-w.ctx.Done():
	}
	w.heldMu.Lock()
	defer w.heldMu.Unlock()
	if w.held[process]--; w.held[process] == 0 {
		delete(w.held, process)
	}
}

// threads adds up those at work on a peer; heldMu is held.
func (w *world) threads(p *fakePeer) {
	threads := 0
	var names []string
	for _, process := range p.engine.processes() {
		if w.held[process] > 0 && onCPU(process.launch.Way) {
			threads += process.launch.Threads
			names = append(names, process.launch.instance())
		}
	}
	if threads > p.s.CoresLent {
		w.t.Errorf("%s lends %d cores, and %d threads of %v are at work", p.name, p.s.CoresLent, threads, names)
	}
}

// check is what holds at all times.
func (w *world) check() {
	w.t.Helper()
	for _, p := range w.peers {
		p.engine.mu.Lock()
		for _, text := range p.engine.over {
			w.t.Errorf("%s: %s", p.name, text)
		}
		p.engine.over = nil
		used := taken(p.engine.used)
		p.engine.mu.Unlock()
		if !p.up {
			continue
		}
		w.allow(p)
		// While a file is fetched the memory for it waits.
		reserved := taken(p.s.ledger.Reserved())
		for device, bytes := range used {
			if reserved[device] < bytes {
				w.t.Errorf("%s has reserved %v, and its engines take %v", p.name, reserved, used)
			}
		}
		fetching := slices.ContainsFunc(p.s.ModelStates(), func(m ModelState) bool {
			return slices.ContainsFunc(m.Replicas, func(r ReplicaState) bool { return r.Peer == p.id.String() && r.State != StateReady })
		}) || p.s.work.taking()
		if !fetching && !maps.Equal(reserved, used) {
			w.t.Errorf("%s has reserved %v, and its engines take %v, with nothing under way", p.name, reserved, used)
		}
		w.heldMu.Lock()
		w.threads(p)
		w.heldMu.Unlock()
		w.checkFences(p)
		v := p.s.newView()
		for _, placed := range v.placements {
			if placed.Text == staleText {
				w.t.Errorf("%s follows who leads no more", p.name)
			}
		}
		if len(v.models) > 0 {
			w.checkPlan(p, v, v.models[w.r.IntN(len(v.models))])
		}
	}
}

// taking says whether a share is on its way in or out.
func (w *worker) taking() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shares {
		if s.server == nil && !s.failed {
			return true
		}
	}
	return false
}

// taken leaves out the devices of which nothing is.
func taken(bytes map[string]uint64) map[string]uint64 {
	bytes = maps.Clone(bytes)
	maps.DeleteFunc(bytes, func(_ string, n uint64) bool { return n == 0 })
	return bytes
}

func (w *world) checkFences(p *fakePeer) {
	w.t.Helper()
	for _, m := range w.models {
		kept, ok, _ := p.state.Get([]byte("fence/" + m.uid))
		if !ok {
			continue
		}
		key := p.name + m.uid
		f := leadership.Fence{Epoch: binary.BigEndian.Uint64(kept), Rank: binary.BigEndian.Uint64(kept[8:])}
		if f.Less(w.obeyed[key]) {
			w.t.Errorf("%s obeyed %v after %v for %s", p.name, f, w.obeyed[key], m.name)
		}
		w.obeyed[key] = f
		if s, ok := p.table.Get(KindPlacement, m.uid); ok && len(w.old) < 200 && w.chance(4) {
			w.old = append(w.old, s)
		}
	}
}

// checkPlan: the same view gives the same plan, and so do the same records on another
// peer that hears the same.
func (w *world) checkPlan(p *fakePeer, v *view, m *modelView) {
	w.t.Helper()
	model := placement.Model{UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: 1 + m.Min, Evict: true, Fetch: true, Only: m.Only}
	plan := func(v *view, m *modelView) string {
		s := v.snapshot(m, p.s.self)
		return fmt.Sprintf("%+v %+v", placement.Place(model, s), placement.Reject(model, s))
	}
	one := plan(v, m)
	if two := plan(v, m); two != one {
		w.t.Errorf("%s plans %s and %s", p.name, one, two)
	}
	o := w.one()
	if !o.up || len(w.cut) > 0 || o.table.Root() != p.table.Root() {
		return
	}
	other := o.s.newView()
	if two := plan(other, other.model[m.uid]); two != one {
		w.t.Errorf("%s plans %s, and %s plans %s", p.name, one, o.name, two)
	}
}
