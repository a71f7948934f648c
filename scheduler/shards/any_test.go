package shards_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

var pinned = shards.Build{Commit: "80fb11a", RPC: "6.0.0"}

// sizes are how large things may be in a problem.
type sizes struct {
	members, layers int
	even            bool // All layers are alike.
}

func anyShape(t *rapid.T, z sizes) ways.Shape {
	size := rapid.Uint64Range(1, 8)
	s := ways.Shape{
		Input: size.Draw(t, "input") * 8 * mib, Output: size.Draw(t, "output") * 8 * mib, Tied: rapid.Bool().Draw(t, "tied"),
		Compute: size.Draw(t, "compute") * 4 * mib, Host: size.Draw(t, "host") * 4 * mib, Largest: 8 * mib,
	}
	for left := rapid.IntRange(z.layers/2, z.layers).Draw(t, "layers"); left > 0; {
		l := ways.Layers{Count: left, Weights: size.Draw(t, "weights") * 16 * mib, KV: size.Draw(t, "kv") * 4 * mib}
		if !z.even {
			l.Count = rapid.IntRange(1, left).Draw(t, "alike")
		}
		s.Layers, left = append(s.Layers, l), left-l.Count
	}
	return s
}

// rare is not what the simplest case has.
func rare(t *rapid.T, what string) bool { return rapid.IntRange(0, 11).Draw(t, what) == 11 }

func anyDevice(t *rapid.T, id string, most uint64) ways.Device {
	d := ways.Device{ID: id, GPU: id != ways.HostID, Known: !rare(t, "unknown")}
	if d.Known {
		d.Lent = (most - rapid.Uint64Range(0, most).Draw(t, "less")) * 8 * mib
		d.Free = d.Lent - rapid.Uint64Range(0, d.Lent/8/mib).Draw(t, "taken")*8*mib
		d.Evictable = rapid.Uint64Range(0, d.Lent-d.Free).Draw(t, "evictable")
	}
	if rare(t, "busy") {
		d.Busy = "a game runs there"
	}
	if rapid.Bool().Draw(t, "learnt") {
		d.Decode = rapid.Float64Range(1e8, 1e12).Draw(t, "decode")
	}
	return d
}

func anyMember(t *rapid.T, i int, z sizes) shards.Member {
	m := shards.Member{ID: fmt.Sprint("id", i), Name: fmt.Sprint("peer", i), Build: pinned, RTT: map[string]time.Duration{},
		Machine: ways.Machine{Host: anyDevice(t, ways.HostID, 60)},
		Holds:   !rapid.Bool().Draw(t, "no file"), ShardOnly: rapid.IntRange(0, 3).Draw(t, "shard-only") == 3}
	for g := range rapid.IntRange(0, 2).Draw(t, "gpus") {
		d := anyDevice(t, fmt.Sprint("CUDA", g), 30)
		d.Unified = !z.even && rapid.IntRange(0, 3).Draw(t, "unified") == 0
		m.Machine.GPUs = append(m.Machine.GPUs, d)
	}
	for k := range z.members {
		if rapid.Bool().Draw(t, "measured") {
			m.RTT[fmt.Sprint("id", k)] = time.Duration(rapid.IntRange(1, 100).Draw(t, "rtt")) * 100 * time.Microsecond
		}
	}
	if rare(t, "other engine") {
		m.Build.Commit = "1234567"
	}
	if rare(t, "barred") {
		m.Barred = &shards.Bar{Reason: "peer_gone", Text: m.Name + " does not answer"}
	}
	return m
}

func anyProblem(t *rapid.T, z sizes) (shards.Problem, ways.Shape) {
	s := anyShape(t, z)
	p := shards.Problem{Name: "m", Bytes: 1 << 30, Pieces: ways.Of(s), Force: rapid.Bool().Draw(t, "force"),
		Worst: rapid.SampledFrom([]ways.Verdict{ways.Fits, ways.Evicts}).Draw(t, "worst")}
	for i := range z.members - rapid.IntRange(0, z.members-1).Draw(t, "fewer") {
		p.Members = append(p.Members, anyMember(t, i, z))
	}
	return p, s
}

func member(p shards.Problem, id string) shards.Member {
	i := slices.IndexFunc(p.Members, func(m shards.Member) bool { return m.ID == id })
	return p.Members[i]
}

// holds says whether a machine has so much memory for the verdict, that of GPUs without
// their own counted with the host's.
func holds(m ways.Machine, need map[string]uint64, v ways.Verdict) bool {
	room := func(d ways.Device) uint64 {
		bytes, _ := d.Room(v)
		return bytes
	}
	host := need[ways.HostID]
	for _, g := range m.GPUs {
		if need[g.ID] > room(g) {
			return false
		}
		if g.Unified {
			host += need[g.ID]
		}
	}
	return host <= room(m.Host)
}

// may says whether a member may be in a group of a coordinator.
func may(m, coordinator shards.Member) bool {
	return m.Barred == nil && m.Build == coordinator.Build
}

// Whatever the mesh: the layers add up, no device is asked for more than it has, nobody
// is in a group who may not be, and a peer trusted with shards only is in the middle.
func TestPlansHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, s := anyProblem(t, sizes{members: 6, layers: 12})
		plan, no := shards.Form(p)
		if no != nil {
			if no.Reason == "" || no.Text == "" || no.Verdict < ways.Later || plan.Coordinator != "" {
				t.Fatalf("%+v, %+v", no, plan)
			}
			return
		}
		c := member(p, plan.Coordinator)
		need, ok := p.Pieces.Cost(plan.Way)
		if !ok || plan.Way.Kind != ways.Shards || plan.Verdict > p.Worst || !may(c, c) || !c.Holds || c.ShardOnly || plan.Text == "" || plan.Layers == "" {
			t.Fatalf("%+v is none", plan)
		}
		if !holds(c.Machine, need, plan.Verdict) || !reflect.DeepEqual(need, plan.Way.Need()) {
			t.Fatalf("%+v takes %v of %+v", plan, need, c.Machine)
		}
		seen := map[string]bool{c.ID: true}
		for _, share := range plan.Way.Group.Shares {
			m := member(p, share.Peer)
			need, ok := p.Pieces.Share(share.From, share.Parts)
			if !ok || seen[m.ID] || !may(m, c) || !holds(m.Machine, need, plan.Verdict) || !reflect.DeepEqual(need, (&ways.Way{Parts: share.Parts}).Need()) {
				t.Fatalf("%+v: %+v takes %v of %+v", plan, share, need, m.Machine)
			}
			if m.ShardOnly && (share.From == 0 || share.From+share.Layers() > s.Count()) {
				t.Fatalf("%s is trusted with shards only: %+v", m.Name, plan)
			}
			seen[m.ID] = true
		}
		if !p.Force && plan.Way.Decode < shards.LeastUseful*0.999 {
			t.Fatalf("%v tokens/s", plan.Way.Decode)
		}
		shuffled := p
		shuffled.Members = rapid.Permutation(p.Members).Draw(t, "order")
		if again, no := shards.Form(shuffled); no != nil || !reflect.DeepEqual(again, plan) {
			t.Fatalf("in another order %+v (%v), not %+v", again, no, plan)
		}
	})
}

// fewest is how many workers a group has at the least, by trying all: for each
// coordinator and each set of workers whether what they hold together is enough. All
// layers are alike, so that nothing but their number counts; 0 is that there is none.
func fewest(p shards.Problem, s ways.Shape, v ways.Verdict) (best int) {
	n, per := s.Count(), s.Layers[0].Weights+s.Layers[0].KV
	room := func(d ways.Device) uint64 {
		bytes, _ := d.Room(v)
		return bytes
	}
	fit := func(bytes, beside uint64) int {
		if bytes < beside {
			return -1
		}
		return int((bytes - beside) / per)
	}
	for _, c := range p.Members {
		if !c.Holds || c.ShardOnly || !may(c, c) {
			continue
		}
		type post struct{ ram, all int } // Layers that it holds in RAM, and in all.
		var posts []post
		output := uint64(0)
		if !s.Tied {
			output = s.Output
		}
		if k := fit(room(c.Machine.Host), s.Input+s.Host+output+s.Compute); k >= 0 {
			posts = append(posts, post{k, k})
		}
		onGPUs, withOutput := 0, false
		for i := len(c.Machine.GPUs) - 1; i >= 0; i-- {
			beside := s.Compute
			if !withOutput {
				beside += s.Output
			}
			if k := fit(room(c.Machine.GPUs[i]), beside); k >= 0 && room(c.Machine.GPUs[i]) > s.Compute {
				withOutput, onGPUs = true, onGPUs+k
			}
		}
		if host := room(c.Machine.Host); withOutput && host >= s.Input+s.Host {
			k := max(0, fit(host, s.Input+s.Host+s.Compute))
			posts = append(posts, post{k, k + onGPUs})
		}
		for _, at := range posts {
			for set := 1; set < 1<<len(p.Members); set++ {
				held, many, ok := at.all, 0, true
				for i, m := range p.Members {
					if set&(1<<i) == 0 {
						continue
					}
					beside := p.Pieces.Beside()
					inRAM, gpus := fit(room(m.Machine.Host), beside+s.Compute), 0
					for _, g := range m.Machine.GPUs {
						if room(m.Machine.Host) >= beside {
							gpus += max(0, fit(room(g), s.Compute))
						}
					}
					takes := max(inRAM, gpus)
					ok = ok && m.ID != c.ID && may(m, c) && takes > 0 && (!m.ShardOnly || at.ram > 0)
					held, many = held+takes, many+1
				}
				if ok && held >= n && many <= n && (best == 0 || many < best) {
					best = many
				}
			}
		}
	}
	return best
}

// As few peers as do take part, and there is a plan wherever there is one.
func TestFewestPeers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, s := anyProblem(t, sizes{members: 5, layers: 12, even: true})
		p.Force, p.Worst = true, ways.Fits
		if s.Count() < len(p.Members)+1 {
			return // A layer for everybody.
		}
		plan, no := shards.Form(p)
		want := fewest(p, s, ways.Fits)
		if (no == nil) != (want > 0) || no == nil && len(plan.Way.Group.Shares) != want {
			t.Fatalf("%d workers do: %+v, %+v", want, plan, no)
		}
		if no != nil && no.Reason == "no_capacity" && (no.Verdict == ways.Later) != (fewest(p, s, ways.Later) > 0) {
			t.Fatalf("%+v, and later %d workers do", no, fewest(p, s, ways.Later))
		}
	})
}

// Where somebody has more memory there is a plan as before, of no more peers.
func TestMoreMemoryLosesNoPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := anyProblem(t, sizes{members: 5, layers: 12, even: true})
		p.Force = true
		before, no := shards.Form(p)
		if no != nil || len(p.Members) == 0 {
			return
		}
		m := &p.Members[rapid.IntRange(0, len(p.Members)-1).Draw(t, "who")].Machine
		d := &m.Host
		if i := rapid.IntRange(0, len(m.GPUs)).Draw(t, "device"); i > 0 {
			d = &m.GPUs[i-1]
		}
		more := rapid.Uint64Range(0, 100).Draw(t, "more") * 8 * mib
		d.Lent, d.Free = d.Lent+more, d.Free+more
		after, no := shards.Form(p)
		worse := after.Verdict > before.Verdict
		if no == nil && after.Verdict == before.Verdict {
			worse = len(after.Way.Group.Shares) > len(before.Way.Group.Shares)
		}
		if no != nil || worse {
			t.Fatalf("%+v, with more memory %+v, %+v", before, after, no)
		}
	})
}
