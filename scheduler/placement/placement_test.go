package placement_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/placement"
)

const gib = 1 << 30

// peer is one that could run the model, changed as told.
func peer(name string, lent, free float64, change ...func(*placement.Peer)) placement.Peer {
	p := placement.Peer{ID: name, Name: name, Alive: true, Trust: "replicas", Engine: true, Holds: true,
		Lent: uint64(lent * gib), Free: uint64(free * gib)}
	for _, c := range change {
		c(&p)
	}
	return p
}

func gone(p *placement.Peer)  { p.Alive = false }
func empty(p *placement.Peer) { p.Holds = false }
func vanished(p *placement.Peer) {
	p.Holds, p.Gone = false, "/models/qwen.gguf vanished"
}
func drains(p *placement.Peer)  { p.Draining = true }
func drained(p *placement.Peer) { p.Drained = true }
func leaves(p *placement.Peer)  { p.Drained, p.Grace = true, true }
func cordons(p *placement.Peer) { p.Cordoned = true }
func placed(p *placement.Peer)  { p.Placed = true }
func client(p *placement.Peer)  { p.Trust = "client" }
func bare(p *placement.Peer)    { p.Engine, p.NoEngine = false, "no llama-server in PATH" }
func runs(p *placement.Peer)    { p.Runs = true }
func ready(p *placement.Peer)   { p.Runs, p.Ready = true, true }
func failed(p *placement.Peer)  { p.Failed, p.FailedText = "engine_failed", "the engine ended at once" }
func refused(p *placement.Peer) { p.Failed, p.FailedText = "no_capacity", "memory went elsewhere" }

func TestPlace(t *testing.T) {
	type peers = []placement.Peer
	for _, tc := range []struct {
		name   string
		need   float64
		min    int
		peers  peers
		want   string // peers
		reason string
		text   string
		others []string // rejections: reason, then sentence
	}{
		{"most memory", 8, 0, peers{peer("attic", 16, 9), peer("den", 32, 20)}, "den", "",
			`model "qwen": goes to den (holds the file, 20.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, nil},
		{"equal memory", 8, 0, peers{peer("den", 16, 9), peer("attic", 16, 9)}, "attic", "",
			`model "qwen": goes to attic (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`, nil},
		{"exactly enough", 8, 0, peers{peer("attic", 8, 8)}, "attic", "",
			`model "qwen": goes to attic (holds the file, 8.0 GiB free of 8.0 GiB lent); 8.0 GiB needed`, nil},
		{"what is ready stays", 8, 0, peers{peer("attic", 16, 1, ready), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"what loads stays", 8, 0, peers{peer("attic", 16, 1, runs), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"ready before loading", 8, 0, peers{peer("attic", 16, 9, runs), peer("den", 8, 0, ready)}, "den", "",
			`model "qwen": stays on den`, nil},
		{"what drains moves", 8, 0, peers{peer("attic", 16, 9, ready, drains), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`,
			[]string{"draining", "attic is draining"}},
		{"drained, it serves until another is ready", 8, 0, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 32, runs)}, "den attic", "",
			`model "qwen": stays on den; attic is drained and serves until then`, nil},
		{"drained, another is ready", 8, 0, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 32, ready)}, "den", "",
			`model "qwen": stays on den`, []string{"draining", "attic is drained"}},
		{"drained for too long", 8, 0, peers{peer("attic", 16, 9, ready, drained), peer("den", 32, 32, runs)}, "den", "",
			`model "qwen": stays on den`, []string{"draining", "attic is drained"}},
		{"drained while it loads", 8, 0, peers{peer("attic", 16, 9, runs, leaves), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, []string{"draining", "attic is drained"}},
		{"drained, nobody else", 8, 0, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 2)}, "attic", "draining",
			`model "qwen": attic is drained and nobody else can take it, so that it soon stops there`,
			[]string{"no_capacity", "8.0 GiB needed, den has 2.0 GiB free now of the 32.0 GiB it lends"}},
		{"drained for too long, nobody else", 8, 0, peers{peer("attic", 16, 9, ready, drained), peer("den", 32, 32, empty)}, "", "draining",
			`model "qwen": attic is drained and nobody else that answers holds the file (relay model pull qwen on den, where it would fit)`,
			[]string{"draining", "attic is drained", "no_holder", "den does not hold the file (relay model pull qwen there)"}},
		{"drained, and it may not see models", 8, 0, peers{peer("attic", 16, 9, ready, leaves, client)}, "", "not_allowed",
			`model "qwen": runs nowhere: attic may not run whole models (its trust is client)`,
			[]string{"not_allowed", "attic may not run whole models (its trust is client)"}},
		{"two replicas, both drained", 8, 2, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 32, ready, leaves), peer("lab", 16, 16, runs)},
			"lab attic den", "", `model "qwen": stays on lab; no more than 1 of 2 replicas find a place; attic and den are drained and serve until then`, nil},
		{"cordoned", 8, 0, peers{peer("attic", 64, 64, cordons), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, []string{"cordoned", "attic is cordoned"}},
		{"cordoned, what runs stays", 8, 0, peers{peer("attic", 16, 9, ready, cordons), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"cordoned, what is placed there is started again", 8, 0, peers{peer("attic", 16, 9, placed, cordons), peer("den", 32, 4)}, "attic", "",
			`model "qwen": goes to attic (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`,
			[]string{"no_capacity", "8.0 GiB needed, den has 4.0 GiB free now of the 32.0 GiB it lends"}},
		{"all cordoned", 8, 0, peers{peer("attic", 16, 9, cordons)}, "", "cordoned",
			`model "qwen": runs nowhere: attic is cordoned`, []string{"cordoned", "attic is cordoned"}},
		{"two replicas", 8, 2, peers{peer("attic", 16, 1, ready), peer("den", 32, 32), peer("lab", 16, 16)}, "attic den", "",
			`model "qwen": stays on attic, and goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, nil},
		{"not as many as wanted", 8, 3, peers{peer("attic", 16, 1, ready), peer("den", 32, 32)}, "attic den", "",
			`model "qwen": stays on attic, and goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed; ` +
				`no more than 2 of 3 replicas find a place`, nil},

		{"nobody", 8, 0, nil, "", "no_holder", `model "qwen": no peer holds it whole`, nil},
		{"nobody holds it", 8, 0, peers{peer("attic", 16, 9, empty), peer("den", 4, 4, empty)}, "", "no_holder",
			`model "qwen": no peer holds it whole`,
			[]string{"no_holder", "attic does not hold the file",
				"no_holder", "den does not hold the file, and has no room for it: 8.0 GiB needed, den lends 4.0 GiB in all"}},
		{"its file vanished", 8, 0, peers{peer("attic", 16, 9, vanished), peer("den", 4, 4, empty)}, "", "no_holder",
			`model "qwen": no peer holds it whole; on attic /models/qwen.gguf vanished`,
			[]string{"no_holder", "attic does not hold the file any more: /models/qwen.gguf vanished",
				"no_holder", "den does not hold the file, and has no room for it: 8.0 GiB needed, den lends 4.0 GiB in all"}},
		{"what runs needs its file no more", 8, 0, peers{peer("attic", 16, 1, vanished, ready), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"holders away", 8, 0, peers{peer("attic", 16, 9, gone), peer("den", 4, 4, gone), peer("lab", 16, 9, empty)}, "", "no_holder",
			`model "qwen": the peers that hold it whole do not answer: attic and den`,
			[]string{"peer_gone", "attic does not answer", "peer_gone", "den does not answer", "no_holder", "lab does not hold the file"}},
		{"busy now", 18.2, 0, peers{peer("attic", 24, 11.4), peer("den", 20, 3)}, "", "no_capacity",
			`model "qwen": need 18.2 GiB, most free is 11.4 GiB on attic; it would fit on attic if nothing else ran there`,
			[]string{"no_capacity", "18.2 GiB needed, attic has 11.4 GiB free now of the 24.0 GiB it lends",
				"no_capacity", "18.2 GiB needed, den has 3.0 GiB free now of the 20.0 GiB it lends"}},
		{"does not fit", 18.2, 0, peers{peer("attic", 11.5, 11.5), peer("den", 12, 3)}, "", "no_capacity",
			`model "qwen": need 18.2 GiB, most free is 11.5 GiB on attic; no holder lends more than 12.0 GiB`,
			[]string{"no_capacity", "18.2 GiB needed, attic lends 11.5 GiB in all", "no_capacity", "18.2 GiB needed, den lends 12.0 GiB in all"}},
		{"lends nothing", 1, 0, peers{peer("attic", 0, 0)}, "", "no_capacity",
			`model "qwen": need 1.0 GiB, most free is 0 MiB on attic; no holder lends more than 0 MiB`,
			[]string{"no_capacity", "attic lends no memory"}},
		{"another could pull it", 8, 0, peers{peer("attic", 16, 3), peer("den", 16, 9, empty), peer("lab", 16, 9, empty), peer("phone", 16, 9, empty, client)},
			"", "no_capacity",
			`model "qwen": need 8.0 GiB, most free is 3.0 GiB on attic; it would fit on attic if nothing else ran there ` +
				`(relay model pull qwen on den and lab, where it would fit)`,
			[]string{"no_capacity", "8.0 GiB needed, attic has 3.0 GiB free now of the 16.0 GiB it lends",
				"no_holder", "den does not hold the file (relay model pull qwen there)",
				"no_holder", "lab does not hold the file (relay model pull qwen there)",
				"not_allowed", "phone may not run whole models (its trust is client)"}},
		{"no engine", 8, 0, peers{peer("attic", 16, 9, bare)}, "", "no_engine",
			`model "qwen": runs nowhere: attic has no engine: no llama-server in PATH`,
			[]string{"no_engine", "attic has no engine: no llama-server in PATH"}},
		{"failed there", 8, 0, peers{peer("attic", 16, 9, failed), peer("den", 16, 9, bare)}, "", "engine_failed",
			`model "qwen": runs nowhere: attic: the engine ended at once; den has no engine: no llama-server in PATH`,
			[]string{"engine_failed", "attic: the engine ended at once", "no_engine", "den has no engine: no llama-server in PATH"}},
		{"failed there, another can", 8, 0, peers{peer("attic", 32, 32, failed), peer("den", 16, 9)}, "den", "",
			`model "qwen": goes to den (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`,
			[]string{"engine_failed", "attic: the engine ended at once"}},
		{"refused there", 8, 0, peers{peer("attic", 16, 9, refused)}, "", "no_capacity",
			`model "qwen": runs nowhere: attic: memory went elsewhere`, []string{"no_capacity", "attic: memory went elsewhere"}},
		{"trust", 8, 0, peers{peer("phone", 16, 9, client)}, "", "not_allowed",
			`model "qwen": runs nowhere: phone may not run whole models (its trust is client)`,
			[]string{"not_allowed", "phone may not run whole models (its trust is client)"}},
		{"a small model", 0.002, 0, peers{peer("attic", 16, 0.001)}, "", "no_capacity",
			`model "qwen": need 3 MiB, most free is 1 MiB on attic; it would fit on attic if nothing else ran there`,
			[]string{"no_capacity", "3 MiB needed, attic has 1 MiB free now of the 16.0 GiB it lends"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := placement.Model{UID: "u", Name: "qwen", CID: "bafy", Need: uint64(tc.need * gib), Min: tc.min}
			plan, rejections := placement.Place(m, placement.Snapshot{Peers: tc.peers})
			if got := strings.Join(plan.Peers, " "); got != tc.want || plan.Reason != tc.reason {
				t.Errorf("placed on %q, reason %q, want %q, %q", got, plan.Reason, tc.want, tc.reason)
			}
			if plan.Text != tc.text {
				t.Errorf("says\n%s\nwant\n%s", plan.Text, tc.text)
			}
			var others []string
			for _, r := range rejections {
				others = append(others, r.Reason, r.Text)
			}
			if !slices.Equal(others, tc.others) {
				t.Errorf("rejections\n%s\nwant\n%s", strings.Join(others, "\n"), strings.Join(tc.others, "\n"))
			}
		})
	}
}

func TestOneByteDecides(t *testing.T) {
	for need, want := range map[uint64]int{4*gib - 1: 1, 4 * gib: 1, 4*gib + 1: 0} {
		plan, _ := placement.Place(placement.Model{Name: "m", Need: need}, placement.Snapshot{Peers: []placement.Peer{peer("attic", 8, 4)}})
		if len(plan.Peers) != want {
			t.Errorf("%d bytes in 4 GiB: %s", need, plan.Text)
		}
	}
}

func anyPeer(t *rapid.T, i int) placement.Peer {
	size := rapid.Uint64Range(0, 6)
	p := placement.Peer{
		ID: fmt.Sprint("id", i), Name: fmt.Sprint("peer", i),
		Alive: rapid.Float64().Draw(t, "alive") < 0.8, Draining: rapid.Float64().Draw(t, "draining") < 0.2,
		Trust:  rapid.SampledFrom([]string{"replicas", "replicas", "replicas", "shard-only", "client"}).Draw(t, "trust"),
		Engine: rapid.Float64().Draw(t, "engine") < 0.8, Lent: size.Draw(t, "lent") * gib, Holds: rapid.Bool().Draw(t, "holds"),
	}
	p.Free = min(p.Lent, size.Draw(t, "free")*gib)
	if rapid.Float64().Draw(t, "failed") < 0.1 {
		p.Failed, p.FailedText = "engine_failed", "it fell"
	}
	if !p.Holds && rapid.Bool().Draw(t, "gone") {
		p.Gone = "/models/m.gguf vanished"
	}
	p.Runs = rapid.Float64().Draw(t, "runs") < 0.2
	p.Ready = p.Runs && rapid.Bool().Draw(t, "ready")
	p.Placed = rapid.Float64().Draw(t, "placed") < 0.2
	p.Cordoned = rapid.Float64().Draw(t, "cordoned") < 0.2
	p.Drained = rapid.Float64().Draw(t, "drained") < 0.2
	p.Grace = rapid.Bool().Draw(t, "grace")
	return p
}

func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s placement.Snapshot
		byID := make(map[string]placement.Peer)
		for i := range rapid.IntRange(0, 6).Draw(t, "peers") {
			p := anyPeer(t, i)
			s.Peers = append(s.Peers, p)
			byID[p.ID] = p
		}
		m := placement.Model{UID: "u", Name: "m", CID: "c", Need: rapid.Uint64Range(0, 6).Draw(t, "need") * gib, Min: rapid.IntRange(0, 3).Draw(t, "min")}
		given := slices.Clone(s.Peers)
		plan, rejections := placement.Place(m, s)
		if !reflect.DeepEqual(given, s.Peers) {
			t.Fatal("the snapshot was changed")
		}

		other := placement.Snapshot{Peers: rapid.Permutation(s.Peers).Draw(t, "order")}
		if again, r := placement.Place(m, other); !reflect.DeepEqual(plan, again) || !reflect.DeepEqual(rejections, r) {
			t.Fatalf("the order of the peers matters:\n%+v %+v\n%+v %+v", plan, rejections, again, r)
		}
		if len(plan.Peers) == 0 && plan.Reason == "" || plan.Text == "" {
			t.Fatalf("%+v", plan)
		}
		// Drained peers serve on only while others are not ready in their stead.
		lasting := slices.DeleteFunc(slices.Clone(plan.Peers), func(id string) bool { return byID[id].Drained })
		standing, ready := len(plan.Peers)-len(lasting), 0
		for _, id := range lasting {
			if byID[id].Ready {
				ready++
			}
		}
		if len(lasting) > max(1, m.Min) || standing > 0 && standing+ready > max(1, m.Min) || len(lasting) > 0 && plan.Reason != "" {
			t.Fatalf("%+v", plan)
		}
		rejected := make(map[string]bool)
		for _, r := range rejections {
			if r.Reason == "" || r.Text == "" || rejected[r.Peer] {
				t.Fatalf("%+v", r)
			}
			rejected[r.Peer] = true
		}
		chosen := make(map[string]bool)
		for _, id := range plan.Peers {
			p := byID[id]
			if chosen[id] || rejected[id] {
				t.Fatalf("%s is there twice", id)
			}
			chosen[id] = true
			if !p.Alive || p.Draining || p.Trust != "replicas" || !p.Engine || !p.Holds && !p.Runs || p.Failed != "" || !p.Runs && m.Need > p.Free ||
				p.Drained && (!p.Grace || !p.Ready) || p.Cordoned && !p.Runs && !p.Placed {
				t.Fatalf("chosen: %+v for %d", p, m.Need)
			}
		}
		for id, p := range byID {
			if chosen[id] || rejected[id] {
				continue
			}
			// Could run it and is not needed: those chosen come before it.
			if len(lasting) < max(1, m.Min) {
				t.Fatalf("%s was passed over", id)
			}
			for _, c := range lasting {
				q := byID[c]
				alike := p.Runs == q.Runs && p.Ready == q.Ready
				if p.Ready && !q.Ready || alike && p.Placed && !q.Placed || alike && p.Placed == q.Placed && p.Free > q.Free {
					t.Fatalf("%s was taken before %s", c, id)
				}
			}
		}
	})
}

// Models placed one after the other, each seen by the next, never ask a peer for
// more than it lends, and what runs is not moved by others that come.
func TestNeverOverMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var peers []placement.Peer
		for i := range rapid.IntRange(1, 4).Draw(t, "peers") {
			lent := rapid.Uint64Range(0, 20).Draw(t, "lent")
			peers = append(peers, peer(fmt.Sprint("peer", i), float64(lent), float64(lent)))
		}
		used := make([]uint64, len(peers))
		type placed struct {
			m  placement.Model
			on []string
		}
		var all []placed
		snapshot := func(runs []string) (s placement.Snapshot) {
			for i, p := range peers {
				p.Free = p.Lent - used[i]
				p.Runs = slices.Contains(runs, p.ID)
				s.Peers = append(s.Peers, p)
			}
			return s
		}
		for n := range rapid.IntRange(1, 12).Draw(t, "models") {
			m := placement.Model{UID: fmt.Sprint(n), Name: fmt.Sprint("m", n), Need: rapid.Uint64Range(1, 10*gib).Draw(t, "need"), Min: rapid.IntRange(1, 3).Draw(t, "min")}
			plan, _ := placement.Place(m, snapshot(nil))
			for i, p := range peers {
				if slices.Contains(plan.Peers, p.ID) {
					if used[i] += m.Need; used[i] > p.Lent {
						t.Fatalf("%s lends %d and is asked for %d", p.ID, p.Lent, used[i])
					}
				} else if len(plan.Peers) < m.Min && p.Lent-used[i] >= m.Need {
					t.Fatalf("%s has room and was not used", p.ID)
				}
			}
			all = append(all, placed{m, plan.Peers})
			for _, old := range all {
				if len(old.on) == 0 {
					continue
				}
				old.m.Min = len(old.on)
				again, _ := placement.Place(old.m, snapshot(old.on))
				slices.Sort(again.Peers)
				was := slices.Sorted(slices.Values(old.on))
				if !slices.Equal(again.Peers, was) {
					t.Fatalf("model %s ran on %v and was moved to %v", old.m.Name, was, again.Peers)
				}
			}
		}
	})
}
