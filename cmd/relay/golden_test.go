package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/api"
	"relay/llama"
	"relay/scheduler"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden holds what people and programs read to what it was.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what it was (-update if it should not be):\n%s", path, got)
	}
}

// sample is a mesh in which something of everything is the case.
func sample() (s api.Status, now time.Time) {
	now = time.Date(2026, 5, 4, 15, 30, 0, 0, time.Local)
	ago := func(d time.Duration) *float64 { seconds := d.Seconds(); return &seconds }
	n := func(i int) *int { return &i }
	rtt := 1.25
	attic, den, cellar, shed := "12D3KooWattic00000", "12D3KooWden0000000", "12D3KooWcellar0000", "12D3KooWshed000000"
	build := scheduler.Build{Version: "b7000", Commit: "80fb11a", RPC: "3.6.0"}
	cpu := scheduler.Device{ID: "CPU", Name: "a processor", Kind: "cpu", Total: 32 << 30, Free: 20 << 30, Known: true}
	s = api.Status{
		Schema: 1, Mesh: api.MeshStatus{ID: "b3k7aaaaaaaaaaaa", Name: "attic's mesh", Admins: []string{attic}}, Self: attic, Version: "relay 1",
		Door: "http://127.0.0.1:8420/v1", Keys: "1 key",
		Peers: []scheduler.PeerState{
			{ID: attic, Name: "attic", Role: "admin", Trust: "replicas", State: "alive", Self: true, Labels: map[string]string{"room": "top"},
				Memory: scheduler.MemoryState{Total: 32 << 30, Free: 8 << 30, Lent: 16 << 30}, Disk: scheduler.DiskState{Total: 1 << 40, Free: 200 << 30},
				Cores: 8, CoresLent: 4, Devices: []scheduler.Device{cpu}, Engine: build, Link: scheduler.LinkState{Path: "self"}, LastSeen: ago(0), Behind: n(0)},
			{ID: cellar, Name: "cellar", Role: "member", Trust: "replicas", State: "draining", Draining: true, Cordoned: true, Labels: map[string]string{},
				Memory: scheduler.MemoryState{Total: 64 << 30, Free: 30 << 30, Lent: 48 << 30}, Disk: scheduler.DiskState{Total: 1 << 40, Free: 500 << 30},
				Cores: 16, Paused: "its owner took it back", Devices: []scheduler.Device{{ID: "CUDA0", Name: "a graphics card", Kind: "gpu", Total: 24 << 30, Free: 10 << 30, Known: true,
					Lent: 22 << 30, Room: 9 << 30, Busy: "another program holds 1.5 GiB of it"}, {ID: "CUDA1", Name: "an older card", Kind: "gpu"}, cpu},
				Engine: build, Link: scheduler.LinkState{Path: "direct", Transport: "tcp", RTTMS: &rtt}, LastSeen: ago(time.Second), Behind: n(12)},
			{ID: den, Name: "den", Role: "member", Trust: "client", State: "gone", Labels: map[string]string{"room": "ground", "gpu": "none"},
				Devices: []scheduler.Device{}, NoEngine: "no llama-server in PATH", Link: scheduler.LinkState{Path: "none"}, LastSeen: ago(88 * time.Minute)},
			{ID: shed, Name: "shed", Role: "member", Trust: "replicas", State: "gone", Labels: map[string]string{}, Devices: []scheduler.Device{},
				Link: scheduler.LinkState{Path: "none"}},
		},
		Models: []scheduler.ModelState{{
			UID: "uidofqwenaaaaaaa", Name: "qwen", CID: "bafy", Bytes: 5 << 30, Kind: "chat", Context: 8192, Slots: 2, Need: 6 << 30, Args: []string{},
			Leader: &scheduler.LeaderState{Peer: attic, Epoch: 3}, Holders: []string{attic, cellar}, Partly: []string{den}, Pinned: true,
			Projector: &scheduler.RootState{CID: "bafyprojector", Bytes: 600 << 20},
			Placed:    `model "qwen": goes to attic (holds the file, 8.0 GiB free of 16.0 GiB lent); 6.0 GiB needed; cellar is drained and serves until then`,
			Min:       2, Max: 3, IdleUnload: 600, Aliases: []string{"gpt", "best"}, LostAliases: map[string]string{"fast": "gemma"}, Fallback: "gemma",
			Can: &scheduler.Can{Tools: true, Images: true},
			Replicas: []scheduler.ReplicaState{{Peer: attic, State: "loading", Way: "cpu", Stage: "fetching", Done: 2 << 30, Total: 5 << 30, InFlight: n(0), Waiting: n(0),
				Memory: []scheduler.DeviceMemory{{Device: "RAM", Layers: 29, Bytes: 6 << 30}}},
				{Peer: cellar, State: "ready", Way: "gpu+ram", Device: "GPU (20 of 29 layers)", InFlight: n(2), Waiting: n(1), LastServed: ago(3 * time.Second), Resident: ago(3*time.Hour + 12*time.Minute),
					Memory: []scheduler.DeviceMemory{{Device: "CUDA0", Layers: 20, Bytes: 4 << 30}, {Device: "RAM", Layers: 9, Bytes: 2 << 30}}, LoadMS: 900}},
		}, {
			UID: "uidofgemmaaaaaaa", Name: "gemma", CID: "bafygemma", Bytes: 4 << 30, Kind: "chat", Context: 4096, Slots: 1, Args: []string{}, Holders: []string{attic},
			Aliases: []string{"fast"}, Fallback: "uidofremovedaaaa", FallbackGone: true, Can: &scheduler.Can{},
			Only: attic, Asleep: true, Replicas: []scheduler.ReplicaState{}, Placed: `model "gemma": unloaded for model "qwen"`,
		}, {
			UID: "uidofbrokenaaaaa", Name: "broken", CID: "bafybroken", Bytes: 1 << 30, Kind: "chat", Context: 4096, Slots: 1, Args: []string{}, Aliases: []string{}, Holders: []string{attic, cellar},
			Replicas: []scheduler.ReplicaState{{Peer: attic, State: "failed", Way: "cpu", Message: "the engine ended"}, {Peer: cellar, State: "ready", Device: "CPU"}},
			Parked:   []scheduler.ParkedState{{Peer: attic, Text: "its engine failed five times in a row: the engine ended"}},
		}, {
			UID: "uidoflargeaaaaaa", Name: "large", CID: "bafylarge", Bytes: 40 << 30, Kind: "chat", Context: 4096, Slots: 1, Args: []string{}, Aliases: []string{}, Holders: []string{attic},
			Placed: `model "large": runs on attic, cellar and shed together, since no peer could hold all of it: layers 0-19 on RAM of attic, layers 20-59 on CUDA0 of cellar, layers 60-63 on RAM of shed and the output on RAM of attic; 4.1 tokens/s are predicted`,
			Replicas: []scheduler.ReplicaState{{Peer: attic, State: "loading", Way: "shards", Stage: "gathering", InFlight: n(0), Waiting: n(1), Message: "it waits for its workers: cellar fetching, shed has not heard of it yet",
				Memory: []scheduler.DeviceMemory{{Device: "RAM", Layers: 21, Bytes: 12 << 30}},
				Shares: []scheduler.ShareState{
					{Peer: cellar, From: 20, Layers: 40, State: "loading", Stage: "fetching", Done: 6 << 30, Total: 20 << 30,
						Memory: []scheduler.DeviceMemory{{Device: "CUDA0", Layers: 40, Bytes: 21 << 30}, {Device: "RAM", Bytes: 300 << 20}}},
					{Peer: shed, From: 60, Layers: 4, Memory: []scheduler.DeviceMemory{{Device: "RAM", Layers: 4, Bytes: 3 << 30}}}}}},
		}},
		Lend: &api.LendStatus{Most: 16 << 30, Reserve: 3 << 30, VRAMReserve: 512 << 20},
		Disk: scheduler.DiskUse{Free: 200 << 30, Total: 1 << 40, Models: scheduler.CapUse{Used: 12 << 30, Cap: 10 << 30}, Cache: scheduler.CapUse{Used: 7 << 30},
			Unfinished: []scheduler.PullState{
				{Name: "gemma", CID: "bafygemma", Path: "/models/gemma.part", Model: "gemma", Done: 1 << 30, Bytes: 4 << 30, Running: true},
				{Name: "old", CID: "bafyold", Path: "/models/old.part", Model: "old", Done: 300 << 20, Bytes: 3 << 30},
				{Name: "unknown", CID: "bafyunknown", Path: "/models/unknown.part", Bytes: -1},
			}},
		Decisions: []scheduler.Decision{{At: now.Add(-time.Minute), Model: "qwen", Text: `model "qwen": cellar is drained and serves until then`},
			{At: now.Add(-2 * time.Minute), Model: "broken", Text: `model "broken": goes to cellar (holds the file, 30.0 GiB free of 48.0 GiB lent); 1.2 GiB needed; runs on cpu although CUDA0 on cellar is free in part: 15.2 tokens/s are predicted there, 84.7 on cpu`}},
		Unanswered: []string{den, shed}, Wiping: []api.PeerName{{ID: "12D3KooWlab0000000", Name: "lab"}},
		Warnings: []string{"there is one admin: if that machine is lost, only the recovery code makes a new one (relay peer invite --admin)"}, Serving: true,
	}
	return s, now
}

// TestParkedOnceByPeer: a model that is parked in several ways on a peer names it once.
func TestParkedOnceByPeer(t *testing.T) {
	m := scheduler.ModelState{Parked: []scheduler.ParkedState{{Peer: "a", Text: "x"}, {Peer: "a", Text: "y"}, {Peer: "b"}}}
	if got := runsText(m, map[string]string{"a": "attic", "b": "den"}); got != "parked on attic and den" {
		t.Error(got)
	}
}

// TestHelpOfAdd lists every argument that an engine may be given.
func TestHelpOfAdd(t *testing.T) {
	lines := strings.Split(newModelAdd().Long, "\n")
	listed := strings.Fields(newModelAdd().Long)
	for _, name := range llama.ArgNames() {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not in the help", name)
		}
	}
	for _, line := range lines {
		if len(line) > 100 {
			t.Errorf("%q is a long line", line)
		}
	}
}

// What the tables and the JSON look like.
func TestTables(t *testing.T) {
	s, now := sample()
	for name, print := range map[string]func(*bytes.Buffer){
		"status.golden": func(b *bytes.Buffer) { printStatus(b, s, now) },
		"status_json.golden": func(b *bytes.Buffer) {
			anywhere := s
			anywhere.Decisions = []scheduler.Decision{{At: time.Date(2026, 5, 4, 15, 29, 0, 0, time.UTC), Model: "qwen", Text: "as above"}}
			_ = printJSON(b, anywhere)
		},
		"peers_none_labelled.golden": func(b *bytes.Buffer) {
			plain := s.Peers[1:2]
			printPeers(b, plain)
		},
		"peer.golden": func(b *bytes.Buffer) { printPeer(b, shownSample(s, 1)) },
		"peer_away.golden": func(b *bytes.Buffer) {
			p := shownSample(s, 2)
			p.Holds, p.Leads, p.Runs, p.Addresses = nil, nil, nil, nil
			printPeer(b, p)
		},
		"model.golden": func(b *bytes.Buffer) {
			m := s.Models[0]
			m.Arch, m.Layers, m.Parameters, m.TrainContext, m.Args = "qwen2", 28, 7_000_000_000, 32768, []string{"--jinja"}
			m.Pulls = s.Disk.Unfinished[1:2]
			printModel(b, api.ModelShown{ModelState: m}, peerNames(s.Peers))
		},
		"models.golden":       func(b *bytes.Buffer) { printModels(b, s.Models, peerNames(s.Peers), true) },
		"model_asleep.golden": func(b *bytes.Buffer) { printModel(b, api.ModelShown{ModelState: s.Models[1]}, peerNames(s.Peers)) },
		"model_parked.golden": func(b *bytes.Buffer) {
			printModel(b, api.ModelShown{ModelState: s.Models[2], Unanswered: []string{s.Peers[1].ID}}, peerNames(s.Peers))
		},
		"model_spread.golden": func(b *bytes.Buffer) { printModel(b, api.ModelShown{ModelState: s.Models[3]}, peerNames(s.Peers)) },
		"plan.golden":         func(b *bytes.Buffer) { printPlan(b, planSample(s)) },
		"plan_json.golden":    func(b *bytes.Buffer) { _ = printJSON(b, planSample(s)) },
		"plan_none.golden": func(b *bytes.Buffer) {
			p := planSample(s)
			p.Ways, p.Text = nil, `model "qwen": no peer that is up holds its file`
			printPlan(b, p)
		},
		"pruned.golden":      func(b *bytes.Buffer) { printPruned(b, prunedSample()) },
		"pruned_json.golden": func(b *bytes.Buffer) { _ = printJSON(b, prunedSample()) },
		"pruned_dry.golden": func(b *bytes.Buffer) {
			p := prunedSample()
			p.DryRun, p.Offline, p.Kept = true, true, nil
			printPruned(b, p)
		},
		"peer_json.golden": func(b *bytes.Buffer) { _ = printJSON(b, shownSample(s, 1)) },
	} {
		var b bytes.Buffer
		print(&b)
		golden(t, name, b.String())
	}
}

func planSample(s api.Status) scheduler.PlanState {
	seconds := func(n float64) *float64 { return &n }
	attic, cellar, den := s.Peers[0].ID, s.Peers[1].ID, s.Peers[2].ID
	return scheduler.PlanState{
		Model: scheduler.ModelState{UID: "uidofqwenaaaaaaa", Name: "qwen", Args: []string{}, Aliases: []string{}, Replicas: []scheduler.ReplicaState{}, Holders: []string{cellar}, Partly: []string{}},
		Text:  `model "qwen": goes to cellar (gpu+ram; fastest of 2 ways)`,
		Ways: []scheduler.PlannedWay{
			{Peer: cellar, Name: "cellar", Way: "gpu+ram", Verdict: "fits", Text: "runs", Chosen: true, Runs: true, Holds: true, Prefill: 412.4, Decode: 23.04,
				Memory: []scheduler.DeviceMemory{{Device: "CUDA0", Layers: 20, Bytes: 4 << 30}, {Device: "RAM", Layers: 9, Bytes: 2 << 30}},
				Measured: &scheduler.MeasuredWay{Memory: []scheduler.DeviceMemory{{Device: "CUDA0", Layers: 20, Bytes: 4<<30 + 100<<20}, {Device: "RAM", Layers: 9, Bytes: 19 << 27}},
					Prefill: 399.6, Decode: 21.96, LoadMS: 5200}},
			{Peer: attic, Name: "attic", Way: "cpu", Verdict: "evicts", Text: "needs 6.0 GiB, RAM has 2.0 GiB free; unloading gemma adds 4.2 GiB", Prefill: 60, Decode: 7.5, Guessed: true,
				Memory: []scheduler.DeviceMemory{{Device: "RAM", Layers: 29, Bytes: 6 << 30}}, Fetch: seconds(192.4)},
			{Peer: cellar, Name: "cellar", Way: "gpu", Verdict: "later", Reason: "device_busy", Text: "another program holds 1.5 GiB of CUDA0", Prefill: 900, Decode: 41.2, Holds: true,
				Memory: []scheduler.DeviceMemory{{Device: "CUDA0", Layers: 29, Bytes: 6 << 30}, {Device: "RAM", Bytes: 500 << 20}}},
			{Peer: attic, Name: "attic", Way: "gpu", Verdict: "never", Reason: "no_capacity", Text: "it has no GPU", Memory: []scheduler.DeviceMemory{}},
			{Peer: attic, Name: "attic", Way: "shards", Verdict: "fits", Prefill: 120, Decode: 9.4, Guessed: true, Fetch: seconds(192.4),
				Text:   "layers 0-9 on RAM of attic, layers 10-27 on CUDA0 of cellar and the output on RAM of attic; 9.4 tokens/s are predicted",
				Memory: []scheduler.DeviceMemory{{Device: "RAM", Layers: 11, Bytes: 2 << 30}}},
		},
		Refused: []scheduler.RefusedPeer{{Peer: den, Name: "den", Reason: "not_allowed", Text: "its trust is client: it runs no models"}},
	}
}

func prunedSample() scheduler.Pruned {
	used := time.Date(2026, 5, 3, 9, 0, 0, 0, time.UTC)
	return scheduler.Pruned{
		Freed: []scheduler.Piece{{Name: "old", CID: "bafyold", Path: "/models/old.part", Bytes: 3 << 30, Unfinished: true},
			{Name: "qwen", CID: "bafy", Path: "/models/qwen.gguf", Bytes: 5 << 30, Used: &used}},
		Kept: []scheduler.Piece{{Name: "gemma", CID: "bafygemma", Path: "/models/gemma.gguf", Bytes: 4 << 30, Used: &used, Reason: "last_copy",
			Why: "it is the last whole copy: no other peer that is up has one"}},
		FreedBytes: 8 << 30, KeptBytes: 4 << 30,
	}
}

// Ways of a peer that can never be for one reason share a row; others do not.
func TestPlanRows(t *testing.T) {
	way := func(peer, way, verdict, text string) scheduler.PlannedWay {
		return scheduler.PlannedWay{Peer: peer, Name: "name of " + peer, Way: way, Verdict: verdict, Text: text, Holds: true}
	}
	large := way("a", "gpu+ram", "never", "it has no GPU")
	large.Memory = []scheduler.DeviceMemory{{Device: "RAM", Bytes: 1 << 30}}
	var got []string
	for _, row := range planRows([]scheduler.PlannedWay{way("a", "cpu", "fits", ""), way("a", "gpu", "never", "it has no GPU"), way("b", "gpu", "never", "it has no GPU"),
		way("a", "gpus", "never", "it has no GPU"), way("a", "shards", "never", "not yet"), large,
		way("b", "cpu", "later", "it is busy"), way("b", "gpus", "later", "it is busy")}) {
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{"|name of a|cpu|-|-|-|has it|fits", "|name of a|gpu, gpus, gpu+ram|-|-|-|has it|never: it has no GPU", "|name of b|gpu|-|-|-|has it|never: it has no GPU",
		"|name of a|shards|-|-|-|has it|never: not yet", "|name of b|cpu|-|-|-|has it|later: it is busy", "|name of b|gpus|-|-|-|has it|later: it is busy"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// What stands beside a bar.
func TestProgressText(t *testing.T) {
	left := func(seconds float64) *float64 { return &seconds }
	for _, c := range []struct {
		p    api.ProgressLine
		want string
	}{
		{api.ProgressLine{Total: -1}, ""},
		{api.ProgressLine{Phase: "plan", Total: -1}, "plan"},
		{api.ProgressLine{Phase: "hash", Done: 1 << 20, Total: 4 << 20}, "hash  1.0 MiB / 4.0 MiB"},
		{api.ProgressLine{Phase: "fetch", Done: 1 << 30, Total: 4 << 30, Rate: 90 << 20, Left: left(125), From: []api.SourceLine{{Name: "attic", Bytes: 9}, {Name: "den", Bytes: 3}, {Bytes: 1}}},
			"fetch  1.0 GiB / 4.0 GiB  90.0 MiB/s  2m05s left  from attic, den"},
		{api.ProgressLine{Phase: "fetch", Done: 0, Total: 400 << 30, Rate: 1, Left: left(4e11), From: []api.SourceLine{{Name: "a", Bytes: 4}, {Name: "b", Bytes: 3}, {Name: "c", Bytes: 2}, {Name: "d", Bytes: 1}, {Name: "e"}}},
			"fetch  0 B / 400 GiB  1 B/s  months left  from a, b, 2 more"},
		{api.ProgressLine{Phase: "wait", Why: "the disk is full", Total: 9}, "waiting: the disk is full"},
		{api.ProgressLine{Phase: "start", Why: "attic starts its engine", Total: -1}, "attic starts its engine"},
		{api.ProgressLine{Phase: "wait", Why: strings.Repeat("é", 200), Total: 9}, "waiting: " + strings.Repeat("é", shownWhy-1) + "…"},
		{api.ProgressLine{Phase: "fetch", Total: 9, Rate: 1, Left: left(4000)}, "fetch  0 B / 9 B  1 B/s  1h06m left"},
	} {
		if got := progressText(c.p); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func shownSample(s api.Status, i int) api.PeerShown {
	return api.PeerShown{PeerState: s.Peers[i], Addresses: []string{"/ip4/192.0.2.7/tcp/8421", "/ip4/192.0.2.7/udp/8421/quic-v1"},
		Holds: []string{"qwen"}, Leads: []string{}, Takes: []api.PeerTake{}, Runs: []api.PeerRun{{Model: "qwen", ReplicaState: s.Models[0].Replicas[1]}}}
}

// A moment is told with its date where it was not today.
func TestClock(t *testing.T) {
	now := time.Date(2026, 5, 4, 1, 0, 0, 0, time.Local)
	for ago, want := range map[time.Duration]string{
		time.Minute: "00:59", 2 * time.Hour: "23:00", 30 * time.Hour: "2026-05-02 19:00", 13 * time.Hour: "2026-05-03 12:00",
	} {
		if got := clock(now.Add(-ago), now); got != want {
			t.Errorf("%s ago: %s, want %s", ago, got, want)
		}
	}
}
