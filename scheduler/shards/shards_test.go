package shards_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// dozen is a model of 12 layers of 1 GiB that takes 14.75 GiB on a CPU.
var dozen = ways.Shape{Input: gib, Output: gib, Compute: gib / 2, Host: gib / 4, Largest: gib / 4, Layers: []ways.Layers{{Count: 12, Weights: gib}}}

func lending(d ways.Device, lent float64, rate float64) ways.Device {
	d.Known, d.Lent, d.Decode = true, uint64(lent*gib), rate
	d.Free = d.Lent
	return d
}

// peer is one that holds the file, with so much RAM, all of them equally fast and near.
func peer(name string, ram float64, change ...func(*shards.Member)) shards.Member {
	m := shards.Member{ID: name, Name: name, Holds: true, Build: pinned,
		Machine: ways.Machine{Host: lending(ways.Device{ID: ways.HostID}, ram, 20e9)}}
	for _, c := range change {
		c(&m)
	}
	return m
}

func empty(m *shards.Member)     { m.Holds = false }
func shardOnly(m *shards.Member) { m.Holds, m.ShardOnly = false, true }
func gone(m *shards.Member) {
	m.Barred = &shards.Bar{Reason: "peer_gone", Text: m.Name + " does not answer"}
}
func bare(m *shards.Member)  { m.Build = shards.Build{} }
func older(m *shards.Member) { m.Build.RPC = "5.0.0" }
func fell(m *shards.Member) {
	m.Machine.Blocked = []ways.Block{{Kind: ways.Shards, Reason: "engine_failed", Text: "it fell"}}
}

func slower(by float64) func(*shards.Member) {
	return func(m *shards.Member) { m.Machine.Host.Decode /= by }
}

func away(rtt time.Duration) func(*shards.Member) {
	return func(m *shards.Member) {
		m.RTT = map[string]time.Duration{}
		for _, other := range []string{"attic", "barn", "cellar", "den"} {
			m.RTT[other] = rtt
		}
	}
}

func taken(gb float64) func(*shards.Member) {
	return func(m *shards.Member) { m.Machine.Host.Free -= uint64(gb * gib) }
}

func card(gb float64) func(*shards.Member) {
	return func(m *shards.Member) {
		id := fmt.Sprint("CUDA", len(m.Machine.GPUs))
		m.Machine.GPUs = append(m.Machine.GPUs, lending(ways.Device{ID: id, GPU: true}, gb, 200e9))
	}
}

func form(p shards.Problem, members ...shards.Member) string {
	p.Name, p.Pieces, p.Members = "m", ways.Of(dozen), members
	plan, no := shards.Form(p)
	if no != nil {
		return fmt.Sprintf("%s: %s: %s", no.Verdict, no.Reason, no.Text)
	}
	return fmt.Sprintf("%s: %s", plan.Verdict, plan.Text)
}

func TestSentences(t *testing.T) {
	for name, tc := range map[string]struct {
		p       shards.Problem
		members []shards.Member
		want    string
	}{
		"two alike": {shards.Problem{Bytes: 14 * gib}, []shards.Member{peer("attic", 10), peer("barn", 10)},
			"fits: runs on attic and barn together, since no peer could hold all of it: layers 0-5 on RAM of attic, layers 6-11 on RAM of barn and the output on RAM of attic; 1.4 tokens/s are predicted, loading takes about 19 s"},
		"one whole copy": {shards.Problem{}, []shards.Member{peer("attic", 10), peer("barn", 10, empty)},
			"fits: runs on attic and barn together, since no peer could hold all of it: layers 0-5 on RAM of attic, layers 6-11 on RAM of barn and the output on RAM of attic; 1.4 tokens/s are predicted"},
		"one that is half as fast has half as much": {shards.Problem{Force: true}, []shards.Member{peer("attic", 16), peer("barn", 16, empty, slower(2))},
			"fits: runs on attic and barn together, since somebody asked for it (relay model load m ends that): layers 0-7 on RAM of attic, layers 8-11 on RAM of barn and the output on RAM of attic; 1.0 tokens/s are predicted"},
		"or what it has room for": {shards.Problem{Force: true}, []shards.Member{peer("attic", 16), peer("barn", 3.5, empty)},
			"fits: runs on attic and barn together, since somebody asked for it (relay model load m ends that): layers 0-9 on RAM of attic, layers 10-11 on RAM of barn and the output on RAM of attic; 1.4 tokens/s are predicted"},
		"the coordinator's GPU has the last layers": {shards.Problem{}, []shards.Member{peer("attic", 3, card(6)), peer("barn", 2, card(9), empty)},
			"fits: runs on attic and barn together, since no peer could hold all of it: layers 0-7 on CUDA0 of barn and layers 8-11 and the output on CUDA0 of attic; 14.1 tokens/s are predicted"},
		"the first one not to a peer that is trusted with shards only": {shards.Problem{}, []shards.Member{peer("attic", 3, card(6)), peer("barn", 2, card(9), shardOnly)},
			"fits: runs on attic and barn together, since no peer could hold all of it: layer 0 on RAM of attic, layers 1-7 on CUDA0 of barn and layers 8-11 and the output on CUDA0 of attic; 8.3 tokens/s are predicted"},
		"several GPUs": {shards.Problem{}, []shards.Member{peer("attic", 3, card(1), card(1.75)), peer("barn", 2, card(4), card(9), empty)},
			"fits: runs on attic and barn together, since no peer could hold all of it: layer 0 on RAM of attic, layers 1-11 on CUDA0 and CUDA1 of barn and the output on CUDA1 of attic; 8.3 tokens/s are predicted"},
		"who is left out": {shards.Problem{}, []shards.Member{peer("attic", 10), peer("barn", 10, empty), peer("cellar", 99, older), peer("den", 99, gone), peer("easel", 99, bare)},
			"fits: runs on attic and barn together, since no peer could hold all of it: layers 0-5 on RAM of attic, layers 6-11 on RAM of barn and the output on RAM of attic; 1.4 tokens/s are predicted" +
				"; cellar has another engine (commit 80fb11a, RPC 5.0.0) than attic (commit 80fb11a, RPC 6.0.0); den does not answer; easel has no engine that works for others"},
		"one that is too slow": {shards.Problem{}, []shards.Member{peer("attic", 9), peer("barn", 9, slower(100)), peer("cellar", 5), peer("den", 5)},
			"fits: runs on attic, cellar and den together, since no peer could hold all of it: layers 0-3 on RAM of attic, layers 4-7 on RAM of cellar, layers 8-11 on RAM of den and the output on RAM of attic; 1.4 tokens/s are predicted; barn would make it too slow"},
		"idle models": {shards.Problem{Worst: ways.Evicts}, []shards.Member{peer("attic", 10), peer("barn", 10, taken(8), func(m *shards.Member) { m.Machine.Host.Evictable = 8 * gib })},
			"evicts: runs on attic and barn together, since no peer could hold all of it: layers 0-5 on RAM of attic, layers 6-11 on RAM of barn and the output on RAM of attic; 1.4 tokens/s are predicted, once idle models are unloaded"},
		"too slow": {shards.Problem{}, []shards.Member{peer("attic", 10, slower(4)), peer("barn", 10, empty, slower(4))},
			"never: no_capacity: would write 0.3 tokens/s on attic and barn together: layers 0-5 on RAM of attic, layers 6-11 on RAM of barn and the output on RAM of attic; --force runs it all the same"},
		"too far": {shards.Problem{}, []shards.Member{peer("attic", 10, away(time.Second)), peer("barn", 10, empty)},
			"never: no_capacity: would write 0.5 tokens/s on attic and barn together: layers 0-5 on RAM of attic, layers 6-11 on RAM of barn and the output on RAM of attic; --force runs it all the same"},
		"too little": {shards.Problem{}, []shards.Member{peer("attic", 5), peer("barn", 5), peer("cellar", 99, gone)},
			"never: no_capacity: needs 14.8 GiB, attic and barn together lend 10.0 GiB; cellar does not answer"},
		"too little for now": {shards.Problem{}, []shards.Member{peer("attic", 10), peer("barn", 10, taken(8))},
			"later: no_capacity: needs 14.8 GiB, attic and barn together have 12.0 GiB free of the 20.0 GiB they lend"},
		"too little in whole layers": {shards.Problem{}, []shards.Member{peer("attic", 8), peer("barn", 7)},
			"never: no_capacity: needs 14.8 GiB, attic and barn together lend 15.0 GiB, over which whole layers do not share out with what each peer takes beside them"},
		"nobody with the same engine": {shards.Problem{}, []shards.Member{peer("attic", 10), peer("barn", 10, empty, older), peer("cellar", 10, empty, bare)},
			"never: no_capacity: needs 14.8 GiB, attic alone lends 10.0 GiB; barn has another engine (commit 80fb11a, RPC 5.0.0) than attic (commit 80fb11a, RPC 6.0.0); cellar has no engine that works for others"},
		"too many to name": {shards.Problem{}, []shards.Member{peer("attic", 5), peer("barn", 1), peer("cellar", 1), peer("den", 1), peer("easel", 1), peer("flat", 1), peer("garage", 1),
			peer("h", 1, gone), peer("i", 1, gone), peer("j", 1, gone), peer("k", 1, gone), peer("l", 1, gone), peer("m", 1, gone), peer("n", 1, gone)},
			"never: no_capacity: needs 14.8 GiB, attic, barn, cellar, den, easel and 2 more together lend 11.0 GiB; h does not answer; i does not answer; j does not answer; k does not answer; l does not answer; 2 more"},
		"nobody else": {shards.Problem{}, []shards.Member{peer("attic", 5), peer("barn", 99, gone)},
			"never: no_capacity: there is nobody to share it with attic: barn does not answer"},
		"no holder": {shards.Problem{}, []shards.Member{peer("attic", 10, empty), peer("barn", 10, shardOnly)},
			"never: no_holder: no peer holds the whole file, which a coordinator needs"},
		"holders that may not": {shards.Problem{}, []shards.Member{peer("attic", 10, fell), peer("barn", 10, gone), peer("cellar", 10, shardOnly, func(m *shards.Member) { m.Holds = true }), peer("den", 10, empty)},
			"never: engine_failed: nobody can coordinate: attic: it fell; barn does not answer; cellar has the file, and its trust is shard-only"},
		"the one that is to": {shards.Problem{Coordinator: "barn"}, []shards.Member{peer("attic", 10), peer("barn", 10, empty)},
			"never: not_allowed: nobody can coordinate: attic is not the one that is to; barn does not hold the whole file"},
	} {
		if got := form(tc.p, tc.members...); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}

// Of as few peers as do, the nearest are taken, whatever their speed; of those that are
// as near, the fastest.
func TestTheClosestThenTheFastest(t *testing.T) {
	far, near := away(30*time.Millisecond), away(500*time.Microsecond)
	for name, tc := range map[string]struct {
		others []shards.Member
		with   string
	}{
		"nearer":              {[]shards.Member{peer("barn", 10, far, slower(.5)), peer("cellar", 10, near, slower(2))}, "attic and cellar"},
		"as near, and faster": {[]shards.Member{peer("barn", 10, near, slower(2)), peer("cellar", 10, away(900*time.Microsecond))}, "attic and cellar"},
		"alike":               {[]shards.Member{peer("barn", 10, near), peer("cellar", 10, near, slower(.95))}, "attic and barn"},
		"nearer, but more":    {[]shards.Member{peer("barn", 10, far), peer("cellar", 4, near), peer("den", 4, near)}, "attic and barn"},
	} {
		members := []shards.Member{peer("attic", 10)}
		for _, m := range tc.others {
			empty(&m)
			members = append(members, m)
		}
		if got := form(shards.Problem{}, members...); !strings.HasPrefix(got, "fits: runs on "+tc.with+" together") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Round trips are those that one of the two measured, and are waited for by each worker
// as often as is said.
func TestRoundTrips(t *testing.T) {
	for name, tc := range map[string]struct {
		attic, barn func(*shards.Member)
		turns, want float64 // Milliseconds
	}{
		"the coordinator's": {away(20 * time.Millisecond), away(90 * time.Millisecond), 0, 20},
		"the other one's":   {away(0), away(90 * time.Millisecond), 0, 90},
		"nobody's":          {away(0), away(0), 0, 1},
		"three turns":       {away(20 * time.Millisecond), away(0), 3, 60},
	} {
		p := shards.Problem{Name: "m", Pieces: ways.Of(dozen), Turns: tc.turns, Coordinator: "attic",
			Members: []shards.Member{peer("attic", 10, tc.attic), peer("barn", 10, tc.barn)}}
		plan, no := shards.Form(p)
		if no != nil {
			t.Fatal(no)
		}
		computing := 13 * gib / 20e9
		if got := (1/plan.Way.Decode - computing) * 1e3; got < tc.want*.99 || got > tc.want*1.01 {
			t.Errorf("%s: a token waits %v ms, want %v", name, got, tc.want)
		}
	}
}

func BenchmarkForm(b *testing.B) {
	for _, many := range []int{20, 200} {
		b.Run(fmt.Sprint(many, "peers"), func(b *testing.B) {
			s := dozen
			s.Layers = []ways.Layers{{Count: 50, Weights: gib}, {Count: 50, Weights: gib + 64*mib}}
			p := shards.Problem{Name: "m", Pieces: ways.Of(s), Force: true}
			for i := range many {
				m := peer(fmt.Sprintf("peer%03d", i), 8+float64(i*7%12), slower(1+float64(i*13%17)/8))
				m.RTT = map[string]time.Duration{}
				for k := range many {
					m.RTT[fmt.Sprintf("peer%03d", k)] = time.Duration(200+(i*31+k*17)%5000) * time.Microsecond
				}
				for g := range i % 3 {
					m.Machine.GPUs = append(m.Machine.GPUs, lending(ways.Device{ID: fmt.Sprint("CUDA", g), GPU: true}, 8, 0))
				}
				p.Members = append(p.Members, m)
			}
			for b.Loop() {
				if _, no := shards.Form(p); no != nil {
					b.Fatal(no)
				}
			}
		})
	}
}
