package placement_test

import (
	"slices"
	"strings"
	"testing"

	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

const gib = 1 << 30

// peer is one that could run the model, changed as told.
func peer(name string, lent, free float64, change ...func(*placement.Peer)) placement.Peer {
	p := placement.Peer{ID: name, Name: name, Alive: true, Trust: "replicas", Engine: true, Holds: true,
		Machine: ways.Machine{Name: name, Host: ways.Device{ID: ways.HostID, Known: true, Lent: uint64(lent * gib), Free: uint64(free * gib)}}}
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
func was(p *placement.Peer)     { p.Was = true }
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
		want   int
		peers  peers
		on     string // peers
		reason string
		text   string
		others []string // rejections: reason, then sentence
	}{
		{"most memory", 8, 1, peers{peer("attic", 16, 9), peer("den", 32, 20)}, "den", "",
			`model "qwen": goes to den (holds the file, 20.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, nil},
		{"equal memory", 8, 1, peers{peer("den", 16, 9), peer("attic", 16, 9)}, "attic", "",
			`model "qwen": goes to attic (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`, nil},
		{"exactly enough", 8, 1, peers{peer("attic", 8, 8)}, "attic", "",
			`model "qwen": goes to attic (holds the file, 8.0 GiB free of 8.0 GiB lent); 8.0 GiB needed`, nil},
		{"what is ready stays", 8, 1, peers{peer("attic", 16, 1, ready), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"what loads stays", 8, 1, peers{peer("attic", 16, 1, runs), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"ready before loading", 8, 1, peers{peer("attic", 16, 9, runs), peer("den", 8, 0, ready)}, "den", "",
			`model "qwen": stays on den`, nil},
		{"what drains moves", 8, 1, peers{peer("attic", 16, 9, ready, drains), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`,
			[]string{"draining", "attic is draining"}},
		{"drained, it serves until another is ready", 8, 1, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 32, runs)}, "den attic", "",
			`model "qwen": stays on den; attic is drained and serves until then`, nil},
		{"drained, another is ready", 8, 1, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 32, ready)}, "den", "",
			`model "qwen": stays on den`, []string{"draining", "attic is drained"}},
		{"drained for too long", 8, 1, peers{peer("attic", 16, 9, ready, drained), peer("den", 32, 32, runs)}, "den", "",
			`model "qwen": stays on den`, []string{"draining", "attic is drained"}},
		{"drained while it loads", 8, 1, peers{peer("attic", 16, 9, runs, leaves), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, []string{"draining", "attic is drained"}},
		{"drained, nobody else", 8, 1, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 2)}, "attic", "draining",
			`model "qwen": attic is drained and nobody else can take it, so that it soon stops there`,
			[]string{"no_capacity", "8.0 GiB needed, den has 2.0 GiB free now of the 32.0 GiB it lends"}},
		{"drained for too long, nobody else", 8, 1, peers{peer("attic", 16, 9, ready, drained), peer("den", 32, 32, empty)}, "", "draining",
			`model "qwen": attic is drained and nobody else that answers holds the file (relay model pull qwen on den, where it would fit)`,
			[]string{"draining", "attic is drained", "no_holder", "den does not hold the file (relay model pull qwen there)"}},
		{"drained, and it may not see models", 8, 1, peers{peer("attic", 16, 9, ready, leaves, client)}, "", "not_allowed",
			`model "qwen": runs nowhere: attic may not run whole models (its trust is client)`,
			[]string{"not_allowed", "attic may not run whole models (its trust is client)"}},
		{"two replicas, both drained", 8, 2, peers{peer("attic", 16, 9, ready, leaves), peer("den", 32, 32, ready, leaves), peer("lab", 16, 16, runs)},
			"lab attic den", "", `model "qwen": stays on lab; no more than 1 of 2 replicas find a place; attic and den are drained and serve until then`, nil},
		{"cordoned", 8, 1, peers{peer("attic", 64, 64, cordons), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, []string{"cordoned", "attic is cordoned"}},
		{"cordoned, what runs stays", 8, 1, peers{peer("attic", 16, 9, ready, cordons), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"cordoned, what is placed there is started again", 8, 1, peers{peer("attic", 16, 9, placed, cordons), peer("den", 32, 4)}, "attic", "",
			`model "qwen": goes to attic (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`,
			[]string{"no_capacity", "8.0 GiB needed, den has 4.0 GiB free now of the 32.0 GiB it lends"}},
		{"cordoned, what ran there last is not", 8, 1, peers{peer("attic", 16, 9, was, cordons), peer("den", 32, 32)}, "den", "",
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, []string{"cordoned", "attic is cordoned"}},
		{"all cordoned", 8, 1, peers{peer("attic", 16, 9, cordons)}, "", "cordoned",
			`model "qwen": runs nowhere: attic is cordoned`, []string{"cordoned", "attic is cordoned"}},
		{"two replicas", 8, 2, peers{peer("attic", 16, 1, ready), peer("den", 32, 32), peer("lab", 16, 16)}, "attic den", "",
			`model "qwen": stays on attic, and goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed`, nil},
		{"not as many as wanted", 8, 3, peers{peer("attic", 16, 1, ready), peer("den", 32, 32)}, "attic den", "",
			`model "qwen": stays on attic, and goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 8.0 GiB needed; ` +
				`no more than 2 of 3 replicas find a place`, nil},

		{"nobody", 8, 1, nil, "", "no_holder", `model "qwen": no peer holds it whole`, nil},
		{"nobody holds it", 8, 1, peers{peer("attic", 16, 9, empty), peer("den", 4, 4, empty)}, "", "no_holder",
			`model "qwen": no peer holds it whole`,
			[]string{"no_holder", "attic does not hold the file",
				"no_holder", "den does not hold the file, and has no room for it: 8.0 GiB needed, den lends 4.0 GiB in all"}},
		{"its file vanished", 8, 1, peers{peer("attic", 16, 9, vanished), peer("den", 4, 4, empty)}, "", "no_holder",
			`model "qwen": no peer holds it whole; on attic /models/qwen.gguf vanished`,
			[]string{"no_holder", "attic does not hold the file any more: /models/qwen.gguf vanished",
				"no_holder", "den does not hold the file, and has no room for it: 8.0 GiB needed, den lends 4.0 GiB in all"}},
		{"what runs needs its file no more", 8, 1, peers{peer("attic", 16, 1, vanished, ready), peer("den", 32, 32)}, "attic", "",
			`model "qwen": stays on attic`, nil},
		{"holders away", 8, 1, peers{peer("attic", 16, 9, gone), peer("den", 4, 4, gone), peer("lab", 16, 9, empty)}, "", "no_holder",
			`model "qwen": the peers that hold it whole do not answer: attic and den`,
			[]string{"peer_gone", "attic does not answer", "peer_gone", "den does not answer", "no_holder", "lab does not hold the file"}},
		{"busy now", 18.2, 1, peers{peer("attic", 24, 11.4), peer("den", 20, 3)}, "", "no_capacity",
			`model "qwen": need 18.2 GiB, most free is 11.4 GiB on attic; it would fit on attic if nothing else ran there`,
			[]string{"no_capacity", "18.2 GiB needed, attic has 11.4 GiB free now of the 24.0 GiB it lends",
				"no_capacity", "18.2 GiB needed, den has 3.0 GiB free now of the 20.0 GiB it lends"}},
		{"does not fit", 18.2, 1, peers{peer("attic", 11.5, 11.5), peer("den", 12, 3)}, "", "no_capacity",
			`model "qwen": need 18.2 GiB, most free is 11.5 GiB on attic; no holder lends more than 12.0 GiB`,
			[]string{"no_capacity", "18.2 GiB needed, attic lends 11.5 GiB in all", "no_capacity", "18.2 GiB needed, den lends 12.0 GiB in all"}},
		{"lends nothing", 1, 1, peers{peer("attic", 0, 0)}, "", "no_capacity",
			`model "qwen": need 1.0 GiB, most free is 0 MiB on attic; no holder lends more than 0 MiB`,
			[]string{"no_capacity", "attic lends no memory"}},
		{"another could pull it", 8, 1, peers{peer("attic", 16, 3), peer("den", 16, 9, empty), peer("lab", 16, 9, empty), peer("phone", 16, 9, empty, client)},
			"", "no_capacity",
			`model "qwen": need 8.0 GiB, most free is 3.0 GiB on attic; it would fit on attic if nothing else ran there ` +
				`(relay model pull qwen on den and lab, where it would fit)`,
			[]string{"no_capacity", "8.0 GiB needed, attic has 3.0 GiB free now of the 16.0 GiB it lends",
				"no_holder", "den does not hold the file (relay model pull qwen there)",
				"no_holder", "lab does not hold the file (relay model pull qwen there)",
				"not_allowed", "phone may not run whole models (its trust is client)"}},
		{"no engine", 8, 1, peers{peer("attic", 16, 9, bare)}, "", "no_engine",
			`model "qwen": runs nowhere: attic has no engine: no llama-server in PATH`,
			[]string{"no_engine", "attic has no engine: no llama-server in PATH"}},
		{"failed there", 8, 1, peers{peer("attic", 16, 9, failed), peer("den", 16, 9, bare)}, "", "engine_failed",
			`model "qwen": runs nowhere: attic: the engine ended at once; den has no engine: no llama-server in PATH`,
			[]string{"engine_failed", "attic: the engine ended at once", "no_engine", "den has no engine: no llama-server in PATH"}},
		{"failed there, another can", 8, 1, peers{peer("attic", 32, 32, failed), peer("den", 16, 9)}, "den", "",
			`model "qwen": goes to den (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`,
			[]string{"engine_failed", "attic: the engine ended at once"}},
		{"refused there", 8, 1, peers{peer("attic", 16, 9, refused)}, "", "no_capacity",
			`model "qwen": runs nowhere: attic: memory went elsewhere`, []string{"no_capacity", "attic: memory went elsewhere"}},
		{"trust", 8, 1, peers{peer("phone", 16, 9, client)}, "", "not_allowed",
			`model "qwen": runs nowhere: phone may not run whole models (its trust is client)`,
			[]string{"not_allowed", "phone may not run whole models (its trust is client)"}},
		{"a small model", 0.002, 1, peers{peer("attic", 16, 0.001)}, "", "no_capacity",
			`model "qwen": need 3 MiB, most free is 1 MiB on attic; it would fit on attic if nothing else ran there`,
			[]string{"no_capacity", "3 MiB needed, attic has 1 MiB free now of the 16.0 GiB it lends"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := placement.Model{UID: "u", Name: "qwen", CID: "bafy", Shape: takes(tc.need), Want: tc.want}
			plan, rejections := placement.Place(m, placement.Snapshot{Peers: tc.peers}), placement.Reject(m, placement.Snapshot{Peers: tc.peers})
			if got := on(plan); got != tc.on || plan.Reason != tc.reason {
				t.Errorf("placed on %q, reason %q, want %q, %q", got, plan.Reason, tc.on, tc.reason)
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

// takes is a model that takes so many GiB in RAM and has no layers that could lie
// elsewhere.
func takes(need float64) ways.Shape { return ways.Shape{Host: uint64(need * gib)} }

// on are the peers of a plan.
func on(plan placement.Plan) string {
	var ids []string
	for _, o := range plan.Orders {
		ids = append(ids, o.Peer)
	}
	return strings.Join(ids, " ")
}

func TestOneByteDecides(t *testing.T) {
	for need, want := range map[uint64]int{4*gib - 1: 1, 4 * gib: 1, 4*gib + 1: 0} {
		plan := placement.Place(placement.Model{Name: "m", Shape: ways.Shape{Host: need}, Want: 1}, placement.Snapshot{Peers: []placement.Peer{peer("attic", 8, 4)}})
		if len(plan.Orders) != want {
			t.Errorf("%d bytes in 4 GiB: %s", need, plan.Text)
		}
	}
}
