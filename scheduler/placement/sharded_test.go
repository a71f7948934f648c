package placement_test

import (
	"testing"
	"time"

	"relay/scheduler/placement"
	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// grouped is a peer whose engine works for others.
func grouped(p *placement.Peer) { p.Build = shards.Build{Commit: "80fb11a", RPC: "6.0.0"} }

// Who takes part in a group is who may run anything, and peers that are trusted with
// shards only; what a peer has of the model already is free for another group.
func TestSharded(t *testing.T) {
	trusted := func(p *placement.Peer) { p.Trust = "shard-only" }
	parked := func(p *placement.Peer) { p.Parked, p.Failed, p.FailedText = true, "engine_failed", "it fell" }
	own := func(p *placement.Peer) { p.Own = map[string]uint64{ways.HostID: 3 * gib, "CUDA0": 30 * gib} }
	s := placement.Snapshot{Peers: []placement.Peer{
		peer("attic", 16, 4, grouped, card("CUDA0", 8, 2), own), peer("barn", 16, 16, trusted, empty), peer("cellar", 16, 16, client), peer("den", 16, 16, gone),
		peer("easel", 16, 16, pauses), peer("flat", 16, 16, cordons), peer("garage", 16, 16, drained), peer("hall", 16, 16, bare), peer("inn", 16, 16, failed),
		peer("jetty", 16, 16, parked), peer("kiosk", 16, 16, trusted, drained), peer("loft", 16, 16, falls(ways.Shards, false)),
	}}
	s.Peers[0].RTT = map[string]time.Duration{"barn": time.Millisecond}
	problem := placement.Sharded(placement.Model{Name: "qwen", Bytes: gib, Shape: layered, Evict: true}, s)
	want := map[string]string{
		"attic": "", "barn": "", "loft": "",
		"cellar": "not_allowed: cellar runs nothing for others (its trust is client)",
		"den":    "peer_gone: den does not answer",
		"easel":  "no_capacity: easel lends nothing for now: its owner plays a game",
		"flat":   "cordoned: flat is cordoned",
		"garage": "draining: garage is drained",
		"hall":   "no_engine: hall has no engine: no llama-server in PATH",
		"inn":    "engine_failed: inn: the engine ended at once",
		"jetty":  "engine_failed: jetty: parked there until somebody says relay model retry qwen: it fell",
		"kiosk":  "draining: kiosk is drained",
	}
	if len(problem.Members) != len(want) || problem.Worst != ways.Evicts || problem.Name != "qwen" || problem.Bytes != gib || problem.Force {
		t.Fatalf("%+v", problem)
	}
	for _, m := range problem.Members {
		got := ""
		if m.Barred != nil {
			got = m.Barred.Reason + ": " + m.Barred.Text
		}
		if got != want[m.ID] {
			t.Errorf("%s: %q, want %q", m.ID, got, want[m.ID])
		}
		if m.ShardOnly != (m.ID == "barn" || m.ID == "kiosk") || m.Holds != (m.ID != "barn") {
			t.Errorf("%+v", m)
		}
	}
	m := problem.Members[0]
	if m.Machine.Host.Free != 7*gib || m.Machine.GPUs[0].Free != 8*gib || m.RTT["barn"] != time.Millisecond || m.Build.RPC != "6.0.0" {
		t.Errorf("%+v", m)
	}
	if q := s.Peers[0].Machine; q.Host.Free != 4*gib || q.GPUs[0].Free != 2*gib {
		t.Errorf("what was told has changed: %+v", q)
	}
	unified := peer("attic", 16, 4, card("iGPU0", 8, 2), func(p *placement.Peer) {
		p.Machine.GPUs[0].Unified, p.Own = true, map[string]uint64{"iGPU0": 3 * gib, ways.HostID: gib}
	})
	m = placement.Sharded(placement.Model{Shape: layered}, placement.Snapshot{Peers: []placement.Peer{unified}}).Members[0]
	if m.Machine.Host.Free != 8*gib || m.Machine.GPUs[0].Free != 6*gib {
		t.Errorf("one memory: %+v", m.Machine)
	}
	only := placement.Sharded(placement.Model{Name: "qwen", Shape: layered, Only: "attic"}, s)
	if b := only.Members[1].Barred; only.Members[0].Barred != nil || b == nil || b.Text != "it may run only on attic, not on barn" {
		t.Errorf("%+v", only.Members)
	}
}

// Of each peer that could coordinate, the options show the best group, or why there is
// none.
func TestOptionsOfGroups(t *testing.T) {
	// 14.75 GiB are needed.
	s := placement.Snapshot{Peers: []placement.Peer{
		peer("attic", 10, 10, grouped), peer("barn", 10, 10, grouped, empty), peer("cellar", 10, 10, gone, grouped), peer("den", 10, 1, grouped, idle(9)),
	}}
	for i := range s.Peers {
		s.Peers[i].Machine.Host.Decode = 20e9
	}
	want := map[string]string{
		"attic":  "fits: layers 0-4 on RAM of attic, layers 5-9 on RAM of barn and the output on RAM of attic; 1.6 tokens/s are predicted",
		"cellar": "later: cellar does not answer",
		"den":    "evicts: layers 0-4 on RAM of den, layers 5-9 on RAM of attic and the output on RAM of den; 1.6 tokens/s are predicted, once idle models are unloaded",
	}
	for _, o := range placement.Options(placement.Model{Name: "qwen", Shape: layered, Want: 1}, s) {
		if o.Kind != ways.Shards {
			continue
		}
		if got := o.Verdict.String() + ": " + o.Text; got != want[o.Name] {
			t.Errorf("%s:\n%s\nwant\n%s", o.Name, got, want[o.Name])
		}
		if o.Name == "attic" && (o.Group == nil || len(o.Group.Shares) != 1 || o.Group.Shares[0].Peer != "barn" || o.Decode == 0) {
			t.Errorf("%+v", o)
		}
		delete(want, o.Name)
	}
	if len(want) > 0 {
		t.Errorf("no option: %v", want)
	}
}

func TestWholeSomewhere(t *testing.T) {
	group := func(p *placement.Peer) { p.Runs, p.Ready, p.Way = true, true, &ways.Way{Kind: ways.Shards} }
	for name, tc := range map[string]struct {
		p    placement.Peer
		want bool
	}{
		"it fits":                        {peer("attic", 16, 16), true},
		"later":                          {peer("attic", 16, 1), true},
		"it runs":                        {peer("attic", 4, 1, runs), true},
		"a group runs":                   {peer("attic", 4, 1, group), false},
		"a group runs where it would go": {peer("attic", 16, 1, group), true},
		"too small":                      {peer("attic", 8, 8), false},
		"nobody has asked for the file":  {peer("attic", 16, 16, empty), false},
		"gone":                           {peer("attic", 16, 16, gone), false},
		"shards only":                    {peer("attic", 16, 16, func(p *placement.Peer) { p.Trust = "shard-only" }), false},
		"failed":                         {peer("attic", 16, 16, failed), true},
		"fell in the only way":           {peer("attic", 16, 16, falls(ways.CPU, false)), true},
		"parked in the only way":         {peer("attic", 16, 16, falls(ways.CPU, true)), false},
	} {
		if got := placement.WholeSomewhere(placement.Model{Name: "qwen", Shape: layered, Want: 1}, placement.Snapshot{Peers: []placement.Peer{tc.p}}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	// One that holds no file may be told to, or asked to, pull it from another.
	s := placement.Snapshot{Peers: []placement.Peer{peer("attic", 4, 4), peer("barn", 16, 16, empty)}}
	if !placement.WholeSomewhere(placement.Model{Name: "qwen", Shape: layered, Want: 1}, s) {
		t.Error("it could be pulled to where it would fit")
	}
}
