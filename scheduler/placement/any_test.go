package placement_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/placement"
	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

func chance(t *rapid.T, what string, of float64) bool {
	return rapid.Float64Range(0, 1).Draw(t, what) < of
}

func anyDevice(t *rapid.T, id string) ways.Device {
	size := rapid.Uint64Range(0, 8)
	d := ways.Device{ID: id, GPU: id != ways.HostID, Known: chance(t, "known", 0.95)}
	if d.Known {
		d.Lent = size.Draw(t, "lent") * gib
		d.Free = min(d.Lent, size.Draw(t, "free")*gib)
		d.Evictable = min(d.Lent-d.Free, size.Draw(t, "evictable")*gib)
	}
	if chance(t, "busy", 0.1) {
		d.Busy = "a game runs there"
	}
	if rapid.Bool().Draw(t, "learnt") {
		d.Decode = rapid.Float64Range(1e9, 1e12).Draw(t, "decode")
	}
	return d
}

// anySplit is how a model may run on a machine, with less of it on a GPU than there is
// room for, or with all of it in RAM.
func anySplit(t *rapid.T, s ways.Shape, m ways.Machine) *ways.Way {
	layers := s.Count() + 1
	onGPU := rapid.IntRange(0, layers-1).Draw(t, "on GPU")
	host := ways.Part{Device: ways.HostID, Layers: layers - onGPU, Bytes: gib}
	if onGPU == 0 {
		return &ways.Way{Kind: ways.CPU, Parts: []ways.Part{host}}
	}
	return &ways.Way{Kind: ways.Hybrid, Parts: []ways.Part{{Device: m.GPUs[0].ID, Layers: onGPU, Bytes: gib}, host}}
}

func anyPeer(t *rapid.T, i int, shape ways.Shape) placement.Peer {
	name := fmt.Sprint("peer", i)
	p := placement.Peer{
		ID: fmt.Sprint("id", i), Name: name, Alive: chance(t, "alive", 0.8), Draining: chance(t, "draining", 0.1),
		Trust:  rapid.SampledFrom([]string{"replicas", "replicas", "replicas", "replicas", "shard-only", "client"}).Draw(t, "trust"),
		Engine: chance(t, "engine", 0.9), Build: shards.Build{Commit: "80fb11a", RPC: rapid.SampledFrom([]string{"6.0.0", "6.0.0", ""}).Draw(t, "rpc")}, Holds: rapid.Bool().Draw(t, "holds"), Machine: ways.Machine{Name: name, Host: anyDevice(t, ways.HostID)},
		DiskKnown: rapid.Bool().Draw(t, "disk known"), DiskFree: rapid.Uint64Range(0, 8).Draw(t, "disk") * gib,
		FetchRate: rapid.SampledFrom([]float64{0, 1e-300, gib / 200, gib / 100, gib / 90, gib}).Draw(t, "rate"),
		Placed:    chance(t, "placed", 0.2), Was: chance(t, "was", 0.2), Cordoned: chance(t, "cordoned", 0.1), Drained: chance(t, "drained", 0.2), Grace: rapid.Bool().Draw(t, "grace"),
	}
	for g := range rapid.IntRange(0, 3).Draw(t, "gpus") {
		d := anyDevice(t, fmt.Sprint("CUDA", g))
		d.Unified = chance(t, "unified", 0.2)
		p.Machine.GPUs = append(p.Machine.GPUs, d)
	}
	if chance(t, "failed", 0.1) {
		p.Failed, p.FailedText = "engine_failed", "it fell"
		p.Parked = rapid.Bool().Draw(t, "parked")
	}
	for _, k := range []ways.Kind{ways.OneGPU, ways.GPUs, ways.Hybrid, ways.CPU} {
		if chance(t, "blocked", 0.15) {
			p.Machine.Blocked = append(p.Machine.Blocked, ways.Block{Kind: k, Parked: rapid.Bool().Draw(t, "parked"), Reason: "engine_failed", Text: "it fell that way"})
		}
	}
	if chance(t, "paused", 0.1) {
		p.Paused = "its owner paused it"
	}
	if !p.Holds && rapid.Bool().Draw(t, "gone") {
		p.Gone = "/models/m.gguf vanished"
	}
	p.Runs = chance(t, "runs", 0.2)
	p.Ready = p.Runs && rapid.Bool().Draw(t, "ready")
	if p.Runs && len(p.Machine.GPUs) > 0 && rapid.Bool().Draw(t, "split") {
		p.Way = anySplit(t, shape, p.Machine)
	} else if p.Runs && rapid.Bool().Draw(t, "way") {
		p.Way = &ways.Way{Kind: ways.Hybrid, Parts: []ways.Part{{Device: "CUDA9", Layers: 1, Bytes: 100 * gib}, {Device: ways.HostID, Layers: 1, Bytes: gib}}}
	}
	return p
}

func anyModel(t *rapid.T, peers int) placement.Model {
	size := rapid.Uint64Range(0, 4)
	m := placement.Model{UID: "u", Name: "m", CID: "c", Bytes: int64(size.Draw(t, "bytes") * gib), Want: rapid.IntRange(0, 3).Draw(t, "want"),
		Evict: rapid.Bool().Draw(t, "evict"), Fetch: rapid.Bool().Draw(t, "fetch"),
		Shape: ways.Shape{Input: gib / 8, Output: gib / 8, Compute: gib / 16, Host: size.Draw(t, "host") * gib / 4}}
	if layers := rapid.IntRange(0, 8).Draw(t, "layers"); layers > 0 {
		m.Shape.Layers = []ways.Layers{{Count: layers, Weights: size.Draw(t, "weights") * gib / 4, KV: gib / 32}}
	}
	if chance(t, "only", 0.2) {
		m.Only = fmt.Sprint("id", rapid.IntRange(0, peers).Draw(t, "there"))
	}
	return m
}

// allowed says, apart from its memory, whether a peer may be told to run the model
// that it does not run yet.
func allowed(m placement.Model, p placement.Peer, source bool) bool {
	fetches := m.Fetch && source && p.Gone == "" && p.DiskKnown && p.DiskFree >= uint64(m.Bytes)
	return inService(m, p) && !p.Drained && p.Failed == "" && !p.Parked && (!p.Cordoned || p.Runs || p.Placed) && (p.Holds || fetches)
}

// inService says whether it may run the model at all.
func inService(m placement.Model, p placement.Peer) bool {
	return p.Alive && !p.Draining && p.Trust == "replicas" && p.Engine && p.Paused == "" && (m.Only == "" || m.Only == p.ID)
}

// room is what an order may ask of a device.
func room(p placement.Peer, device string, evict bool) uint64 {
	d := p.Machine.Host
	if i := slices.IndexFunc(p.Machine.GPUs, func(g ways.Device) bool { return g.ID == device }); i >= 0 {
		d = p.Machine.GPUs[i]
	}
	switch {
	case !d.Known || d.Busy != "":
		return 0
	case evict:
		return d.Free + d.Evictable
	}
	return d.Free
}

func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s placement.Snapshot
		byID := make(map[string]placement.Peer)
		source := false
		count := rapid.IntRange(0, 5).Draw(t, "peers")
		m := anyModel(t, count)
		for i := range count {
			p := anyPeer(t, i, m.Shape)
			s.Peers = append(s.Peers, p)
			byID[p.ID] = p
			source = source || p.Holds && p.Alive
		}
		given := slices.Clone(s.Peers)
		plan, rejections, options := placement.Place(m, s), placement.Reject(m, s), placement.Options(m, s)
		if !reflect.DeepEqual(given, s.Peers) {
			t.Fatal("the snapshot was changed")
		}
		other := placement.Snapshot{Peers: rapid.Permutation(s.Peers).Draw(t, "order")}
		if again := placement.Place(m, other); !reflect.DeepEqual(plan, again) {
			t.Fatalf("the order of the peers matters:\n%+v\n%+v", plan, again)
		}
		if !reflect.DeepEqual(rejections, placement.Reject(m, other)) || !reflect.DeepEqual(options, placement.Options(m, other)) {
			t.Fatal("the order of the peers matters")
		}

		checkText(t, m, plan)
		var lasting, standing []placement.Order
		chosen := make(map[string]placement.Order)
		ready := 0
		for _, o := range plan.Orders {
			p := byID[o.Peer]
			if _, twice := chosen[o.Peer]; twice {
				t.Fatalf("%s is there twice", o.Peer)
			}
			chosen[o.Peer] = o
			if p.Drained {
				standing = append(standing, o)
				if !p.Grace || !p.Ready || !inService(m, p) || p.Failed != "" {
					t.Fatalf("stands in: %+v", p)
				}
				continue
			}
			if len(standing) > 0 {
				t.Fatal("those that stand in come last")
			}
			lasting = append(lasting, o)
			if p.Ready {
				ready++
			}
			checkOrder(t, m, p, o, source)
		}
		if len(lasting) > m.Want || len(standing) > 0 && len(standing)+ready > m.Want || len(lasting) > 0 && plan.Reason != "" {
			t.Fatalf("%+v", plan)
		}
		checkOptions(t, options, chosen, s)
		checkOthers(t, m, s, lasting, chosen, rejections, source)
		checkFinal(t, m, s, plan)
		checkLater(t, m, s, plan, source)
	})
}

// checkText: a plan without orders says why, one with orders names its peers.
func checkText(t *rapid.T, m placement.Model, plan placement.Plan) {
	t.Helper()
	if !strings.HasPrefix(plan.Text, `model "m": `) || len(plan.Orders) == 0 && m.Want > 0 && plan.Reason == "" ||
		m.Want == 0 && (plan.Reason != "" || len(plan.Orders) > 0) || plan.Final && (len(plan.Orders) > 0 || plan.Reason == "") {
		t.Fatalf("%+v", plan)
	}
	for _, o := range plan.Orders {
		if name := "peer" + strings.TrimPrefix(o.Peer, "id"); !strings.Contains(plan.Text, name) {
			t.Fatalf("%q does not name %s", plan.Text, name)
		}
		if o.Fetch && !strings.Contains(plan.Text, "fetches the file") {
			t.Fatalf("%q does not say that the file is fetched", plan.Text)
		}
	}
}

// checkOrder: the peer may run the model, and is asked for no more than it has.
func checkOrder(t *rapid.T, m placement.Model, p placement.Peer, o placement.Order, source bool) {
	t.Helper()
	switch {
	case p.Runs && (!inService(m, p) || p.Failed != "" || o.Fetch || len(o.Way.Parts) == 0):
		t.Fatalf("%+v stays on %+v", o, p)
	case p.Runs && (p.Way == nil || reflect.DeepEqual(*p.Way, o.Way)):
		return
	case p.Runs: // It moves.
		pieces := ways.Of(m.Shape)
		before, after := pieces.Decode(&p.Machine, p.Way), pieces.Decode(&p.Machine, &o.Way)
		if !p.Ready || !(before > 0) || after < 1.5*before || o.Way.Kind == ways.CPU || p.Way.Kind != ways.CPU && p.Way.Kind != ways.Hybrid ||
			o.Way.Parts[len(o.Way.Parts)-1].Layers >= p.Way.Parts[len(p.Way.Parts)-1].Layers {
			t.Fatalf("%+v moves, %.2f tokens/s, to %+v, %.2f tokens/s", p.Way, before, o.Way, after)
		}
		m.Evict = false // Nothing is unloaded for that.
	case !allowed(m, p, source) || o.Fetch == p.Holds:
		t.Fatalf("%+v goes to %+v", o, p)
	}
	checkRoom(t, p, o, m.Evict)
}

// checkRoom: a way is not blocked, and no memory is asked for more than it has.
func checkRoom(t *rapid.T, p placement.Peer, o placement.Order, evict bool) {
	t.Helper()
	if slices.ContainsFunc(p.Machine.Blocked, func(b ways.Block) bool { return b.Kind == o.Way.Kind }) {
		t.Fatalf("%+v goes to %+v, where that is blocked", o, p)
	}
	ofHost := uint64(0)
	for device, bytes := range o.Way.Need() {
		if bytes > room(p, device, evict) {
			t.Fatalf("%+v asks too much of %+v", o, p)
		}
		if device == ways.HostID || slices.ContainsFunc(p.Machine.GPUs, func(g ways.Device) bool { return g.ID == device && g.Unified }) {
			ofHost += bytes
		}
	}
	if ofHost > room(p, ways.HostID, evict) {
		t.Fatalf("%+v asks too much of the host's memory of %+v", o, p)
	}
}

// checkOthers: a peer that is not chosen is rejected with a sentence, or could run
// the model and those chosen come before it.
func checkOthers(t *rapid.T, m placement.Model, s placement.Snapshot, lasting []placement.Order, chosen map[string]placement.Order, rejections []placement.Rejection, source bool) {
	t.Helper()
	rejected := make(map[string]bool)
	for _, r := range rejections {
		if r.Reason == "" || r.Text == "" || rejected[r.Peer] {
			t.Fatalf("%+v", r)
		}
		if _, is := chosen[r.Peer]; is {
			t.Fatalf("%+v, and it is chosen", r)
		}
		rejected[r.Peer] = true
	}
	only := slices.ContainsFunc(s.Peers, func(p placement.Peer) bool { return p.ID == m.Only })
	for _, p := range s.Peers {
		if only && p.ID != m.Only { // Nothing is said of the others.
			if rejected[p.ID] {
				t.Fatalf("%s is rejected, and only %s may run it", p.ID, m.Only)
			}
			continue
		}
		worst := ways.Fits
		if m.Evict {
			worst = ways.Evicts
		}
		way, _, ok := ways.Best(m.Shape, p.Machine, worst)
		could := allowed(m, p, source) && ok || inService(m, p) && !p.Drained && p.Runs && p.Failed == ""
		if _, is := chosen[p.ID]; is {
			continue
		}
		if could == rejected[p.ID] {
			t.Fatalf("could run it: %v; rejected: %v: %+v", could, rejected[p.ID], p)
		}
		if !could || m.Want == 0 {
			continue
		}
		if len(lasting) < m.Want {
			t.Fatalf("%s was passed over", p.ID)
		}
		_, verdict, _ := ways.Best(m.Shape, p.Machine, ways.Fits)
		for _, o := range lasting {
			q := s.Peers[slices.IndexFunc(s.Peers, func(q placement.Peer) bool { return q.ID == o.Peer })]
			_, _, fits := ways.Best(m.Shape, q.Machine, ways.Fits)
			switch {
			case p.Ready != q.Ready:
				if p.Ready {
					t.Fatalf("%s was taken before %s, which is ready", q.ID, p.ID)
				}
			case (p.Runs || verdict == ways.Fits) != (q.Runs || fits):
				if !q.Runs && !fits {
					t.Fatalf("%s was taken before %s, where nothing has to go", q.ID, p.ID)
				}
			case p.Placed != q.Placed:
				if p.Placed {
					t.Fatalf("%s was taken before %s, where it is placed", q.ID, p.ID)
				}
			case p.Was != q.Was:
				if p.Was {
					t.Fatalf("%s was taken before %s, where it was last", q.ID, p.ID)
				}
			case p.Runs != q.Runs:
				if p.Runs {
					t.Fatalf("%s was taken before %s, where it runs", q.ID, p.ID)
				}
			case p.Runs:
			case p.Holds != q.Holds:
				if p.Holds {
					t.Fatalf("%s was taken before %s, which holds it", q.ID, p.ID)
				}
			case !p.Holds && fetchSeconds(m, p)+60 < fetchSeconds(m, q):
				t.Fatalf("%s was taken before %s, which has the file sooner", q.ID, p.ID)
			case !p.Holds && fetchSeconds(m, p) > fetchSeconds(m, q):
			default:
				if w, _, is := ways.Best(m.Shape, p.Machine, ways.Fits); is {
					way = w
				}
				if ways.Faster(way.Decode, o.Way.Decode) {
					t.Fatalf("%s was taken before %s, which is faster", q.ID, p.ID)
				}
			}
		}
	}
}

// fetchSeconds is how long a peer needs for the file; what nobody knows is longest.
func fetchSeconds(m placement.Model, p placement.Peer) float64 {
	if p.FetchRate == 0 {
		return math.Inf(1)
	}
	return float64(m.Bytes) / p.FetchRate
}

// checkOptions: each peer has its five ways, and those of the plan are marked.
func checkOptions(t *rapid.T, options []placement.Option, chosen map[string]placement.Order, s placement.Snapshot) {
	t.Helper()
	marked, many := 0, 4*len(s.Peers)
	for _, p := range s.Peers {
		if p.Holds && p.Trust == "replicas" {
			many++ // It could coordinate a group.
		}
	}
	for i, o := range options {
		if order, is := chosen[o.Peer]; o.Chosen {
			if order.Way.Decode == 0 { // Of what runs, the speeds are predicted.
				order.Way.Decode, order.Way.Prefill, order.Way.Guessed = o.Decode, o.Prefill, o.Guessed
			}
			if marked++; !is || !reflect.DeepEqual(order.Way, o.Way) || i >= len(chosen) || o.Verdict > ways.Evicts {
				t.Fatalf("%+v is marked, the order is %+v", o, order)
			}
		}
		if o.Text == "" || o.Holds && o.FetchSeconds != 0 {
			t.Fatalf("%+v", o)
		}
	}
	if marked != len(chosen) || len(options) != many {
		t.Fatalf("%d of %d options are marked, %d are chosen", marked, len(options), len(chosen))
	}
}

// checkFinal: what is said to run nowhere for good runs nowhere either when every
// model in the way has ended, each device is idle and what failed is tried again.
func checkFinal(t *rapid.T, m placement.Model, s placement.Snapshot, plan placement.Plan) {
	t.Helper()
	if !plan.Final {
		return
	}
	var calm placement.Snapshot
	for _, p := range s.Peers {
		p.Machine.GPUs = slices.Clone(p.Machine.GPUs)
		for _, d := range append([]*ways.Device{&p.Machine.Host}, pointers(p.Machine.GPUs)...) {
			d.Free, d.Evictable, d.Busy = d.Lent, 0, ""
		}
		p.Paused, p.Grace = "", false
		p.Machine.Blocked = slices.DeleteFunc(slices.Clone(p.Machine.Blocked), func(b ways.Block) bool { return !b.Parked })
		if !p.Parked {
			p.Runs, p.Ready, p.Failed = p.Runs && p.Failed == "", p.Ready && p.Failed == "", ""
		}
		if p.DiskFree = 1 << 60; !p.Alive {
			p.Alive = p.Holds
		}
		p.DiskKnown = true
		calm.Peers = append(calm.Peers, p)
	}
	if again := placement.Place(m, calm); len(again.Orders) > 0 {
		t.Fatalf("%+v is final, but then %+v", plan, again)
	}
}

// checkLater: what is said to wait for memory alone would run if each device were idle and
// lent what it lends, with nothing else changed; and only that is said to.
func checkLater(t *rapid.T, m placement.Model, s placement.Snapshot, plan placement.Plan, source bool) {
	t.Helper()
	calm := false
	for _, p := range s.Peers {
		p.Machine.GPUs = slices.Clone(p.Machine.GPUs)
		for _, d := range append([]*ways.Device{&p.Machine.Host}, pointers(p.Machine.GPUs)...) {
			d.Free, d.Evictable, d.Busy = d.Lent, 0, ""
		}
		_, _, fits := ways.Best(m.Shape, p.Machine, ways.Fits)
		calm = calm || fits && allowed(m, p, source)
	}
	if want := calm && m.Want > 0 && len(plan.Orders) == 0; plan.Later != want || plan.Later && plan.Final {
		t.Fatalf("later %v, final %v, and it would fit then: %v", plan.Later, plan.Final, want)
	}
}

func pointers(list []ways.Device) (all []*ways.Device) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// Models placed one after the other, each seen by the next, never ask a device
// for more than it lends, and what runs is not moved by others that come.
func TestNeverOverMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var peers []placement.Peer
		used := make(map[string]map[string]uint64)
		for i := range rapid.IntRange(1, 4).Draw(t, "peers") {
			p := peer(fmt.Sprint("peer", i), float64(rapid.IntRange(0, 20).Draw(t, "lent")), 0)
			for g := range rapid.IntRange(0, 2).Draw(t, "gpus") {
				card(fmt.Sprint("CUDA", g), float64(rapid.IntRange(1, 12).Draw(t, "lent")), 0)(&p)
			}
			peers = append(peers, p)
			used[p.ID] = map[string]uint64{}
		}
		snapshot := func(runs []placement.Order) (s placement.Snapshot) {
			for _, p := range peers {
				p.Machine.GPUs = slices.Clone(p.Machine.GPUs)
				for _, d := range append([]*ways.Device{&p.Machine.Host}, pointers(p.Machine.GPUs)...) {
					d.Free = d.Lent - used[p.ID][d.ID]
				}
				if i := slices.IndexFunc(runs, func(o placement.Order) bool { return o.Peer == p.ID }); i >= 0 {
					p.Runs, p.Way = true, &runs[i].Way
				}
				s.Peers = append(s.Peers, p)
			}
			return s
		}
		byPeer := func(list []placement.Order) []placement.Order {
			return slices.SortedFunc(slices.Values(list), func(a, b placement.Order) int { return strings.Compare(a.Peer, b.Peer) })
		}
		type placed struct {
			m  placement.Model
			on []placement.Order
		}
		var all []placed
		for n := range rapid.IntRange(1, 10).Draw(t, "models") {
			m := placement.Model{UID: fmt.Sprint(n), Name: fmt.Sprint("m", n), Want: rapid.IntRange(1, 3).Draw(t, "want"),
				Shape: ways.Shape{Output: gib / 4, Compute: gib / 8, Host: gib / 8,
					Layers: []ways.Layers{{Count: rapid.IntRange(1, 8).Draw(t, "layers"), Weights: rapid.Uint64Range(1, gib).Draw(t, "weights")}}}}
			before := snapshot(nil)
			plan := placement.Place(m, before)
			chosen := make(map[string]bool)
			for _, o := range plan.Orders {
				chosen[o.Peer] = true
				for device, bytes := range o.Way.Need() {
					used[o.Peer][device] += bytes
				}
			}
			for _, p := range peers {
				for _, d := range append([]ways.Device{p.Machine.Host}, p.Machine.GPUs...) {
					if used[p.ID][d.ID] > d.Lent {
						t.Fatalf("%s lends %d on %s and is asked for %d", p.ID, d.Lent, d.ID, used[p.ID][d.ID])
					}
				}
			}
			for _, p := range before.Peers {
				if _, _, fits := ways.Best(m.Shape, p.Machine, ways.Fits); fits && !chosen[p.ID] && len(plan.Orders) < m.Want {
					t.Fatalf("%s has room and was not used", p.ID)
				}
			}
			all = append(all, placed{m, plan.Orders})
			for _, old := range all {
				if len(old.on) == 0 {
					continue
				}
				old.m.Want = len(old.on)
				again := placement.Place(old.m, snapshot(old.on))
				if !reflect.DeepEqual(byPeer(again.Orders), byPeer(old.on)) {
					t.Fatalf("model %s ran on %+v and was moved to %+v", old.m.Name, old.on, again.Orders)
				}
			}
		}
	})
}

// What runs in RAM, wholly or in part, on a peer that is ready moves only to where more
// of it is on GPUs, that is half as fast again, is not blocked, and has the room beside
// it; and it moves wherever there is such a way.
func TestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := placement.Model{UID: "u", Name: "m", Want: 1, Shape: ways.Shape{Input: gib / 8, Output: gib / 8, Compute: gib / 16,
			Layers: []ways.Layers{{Count: rapid.IntRange(2, 8).Draw(t, "layers"), Weights: gib}}}}
		p := peer("attic", 16, 8, ready)
		for i := range rapid.IntRange(1, 2).Draw(t, "gpus") {
			lent := rapid.Float64Range(1, 12).Draw(t, "lent")
			card(fmt.Sprint("CUDA", i), lent, rapid.Float64Range(1, lent).Draw(t, "free"))(&p)
			p.Machine.GPUs[i].Decode = rapid.Float64Range(1e10, 1e11).Draw(t, "decode")
			p.Machine.GPUs[i].Unified = chance(t, "unified", 0.2)
		}
		for _, k := range []ways.Kind{ways.OneGPU, ways.GPUs, ways.Hybrid} {
			if chance(t, "blocked", 0.2) {
				falls(k, rapid.Bool().Draw(t, "parked"))(&p)
			}
		}
		p.Way = anySplit(t, m.Shape, p.Machine)
		plan := placement.Place(m, placement.Snapshot{Peers: []placement.Peer{p}})
		if len(plan.Orders) != 1 {
			t.Fatalf("%+v", plan)
		}
		now := ways.Of(m.Shape).Decode(&p.Machine, p.Way)
		inRAM := func(w ways.Way) int { return w.Parts[len(w.Parts)-1].Layers }
		o := plan.Orders[0]
		if !reflect.DeepEqual(o.Way, *p.Way) {
			if o.Way.Decode < 1.5*now || inRAM(o.Way) >= inRAM(*p.Way) || o.Way.Kind == ways.CPU {
				t.Fatalf("%+v, %.2f tokens/s, moves to %+v", p.Way, now, o.Way)
			}
			checkRoom(t, p, o, false)
			return
		}
		if best, _, ok := ways.Best(m.Shape, p.Machine, ways.Fits); ok && best.Decode >= 1.5*now && inRAM(best) < inRAM(*p.Way) {
			t.Fatalf("%+v, %.2f tokens/s, does not move to %+v", p.Way, now, best)
		}
	})
}
