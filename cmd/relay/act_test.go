package main

import (
	"bytes"
	"strings"
	"testing"

	"relay/api"
	"relay/scheduler"
)

// What is used wrongly is refused before anybody is asked; what is not gets as far
// as finding that no peer runs here.
func TestModelCommandsUsedWrongly(t *testing.T) {
	t.Setenv("RELAY_STATE_DIR", t.TempDir())
	for _, c := range []struct {
		args, says string // Of usage; "" is none.
	}{
		{"set qwen", "at least one of --pinned, --only, --min, --max, --idle-unload, --alias and --fallback"},
		{"set", "the name of a model"},
		{"set qwen --min -1", "--min takes 0 to 64"},
		{"set qwen --max 65", "--max takes 0 to 64"},
		{"set qwen --min three", "--min three: it takes a whole number (relay model set --help)"},
		{"set qwen --max=x", "--max x: it takes a whole number"},
		{"set qwen --idle-unload 1d", "--idle-unload 1d: it takes a length of time such as 90s or 10m"},
		{"set qwen --min 3 --max 2", "--min 3 is more than --max 2"},
		{"set qwen --idle-unload -5m", "--idle-unload takes"},
		{"set qwen --idle-unload 1500ms", "--idle-unload takes"},
		{"set qwen --idle-unload 1ns", "--idle-unload takes"},
		{"set qwen --idle-unload 10000h", "up to 8760h"},
		{"set qwen --idle-unload soon", "--idle-unload"},
		{"set qwen --pinned=maybe", "--pinned"},
		{"plan", "the name of a model"},
		{"load", "the name of a model"},
		{"load qwen gemma", "the name of a model"},
		{"unload", "the name of a model"},
		{"unload qwen --no-wait", "unknown flag"},
		{"restart", "the name of a model"},
		{"retry", "the name of a model"},
		{"add qwen q.gguf --engine-env GGML_X", `--engine-env "GGML_X": it is NAME=VALUE`},
		{"add qwen q.gguf --engine-env =1", "it is NAME=VALUE"},
		{"add qwen q.gguf --engine-env A=1 --engine-env A_B=", ""},
		{"set qwen --min 0", ""},
		{"set qwen --min 3 --max 0", ""},
		{"set qwen --min 64 --max 64 --idle-unload 8760h --pinned=false --only=", ""},
		{"set qwen --only=", ""},
		{"set qwen --alias a --alias=", ""},
		{"set qwen --fallback=", ""},
		{"add qwen q.gguf --alias a --alias b", ""},
		{"set qwen --idle-unload 0", ""},
		{"plan qwen", ""},
		{"load qwen --no-wait", ""},
		{"unload qwen", ""},
		{"restart qwen", ""},
		{"retry qwen --json", ""},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields("model "+c.args), &out, &errs)
		switch {
		case c.says == "" && (code != exitFailed || !strings.Contains(errs.String(), "no peer runs on this machine")):
			t.Errorf("%s: %d %s", c.args, code, &errs)
		case c.says != "" && (code != exitUsage || !strings.Contains(errs.String(), c.says)):
			t.Errorf("%s: %d %s", c.args, code, &errs)
		}
	}
}

// Of a command that there is none of that is said first, then which ones there are.
func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{"bogus": "bogus", "model foo": "relay model foo", "peer foo bar": "relay peer foo"} {
		var out bytes.Buffer
		code := run(strings.Fields(args), &out, &out)
		if first, rest, _ := strings.Cut(out.String(), "\n"); code != exitUsage || first != "relay: unknown command \""+want+"\"" ||
			!strings.Contains(rest, "Available Commands") || strings.Contains(rest, "unknown") {
			t.Errorf("%s: %d %s", args, code, &out)
		}
	}
}

// Without a terminal each thing that is waited for is said once, on a line of its own.
func TestSayWhy(t *testing.T) {
	var out bytes.Buffer
	say := sayWhy(&out, "load qwen")
	for _, p := range []api.ProgressLine{{Phase: "plan"}, {Phase: "wait", Why: "no room:\n all in use"}, {Phase: "wait", Why: "no room:\n all in use"},
		{Phase: "fetch", Why: "den fetches its file", Done: 1}, {Phase: "fetch", Why: "den fetches its file", Done: 2}, {Phase: "start", Why: "den starts its engine"}} {
		say(p)
	}
	if got, want := out.String(), "load qwen: no room: all in use\nload qwen: den fetches its file\nload qwen: den starts its engine\n"; got != want {
		t.Errorf("%q", got)
	}
}

// Where a model runs now, in one line.
func TestServesText(t *testing.T) {
	names := map[string]string{"a": "attic", "b": "den", "c": "cellar"}
	m := scheduler.ModelState{Replicas: []scheduler.ReplicaState{{Peer: "a", State: "ready", Way: "cpu", Device: "CPU"}, {Peer: "b", State: "loading"}, {Peer: "c", State: "ready", Device: "GPU (9 of 9 layers)"}}}
	if got := servesText(m, names); got != "serves on attic (cpu), cellar (GPU (9 of 9 layers))" {
		t.Error(got)
	}
	if got := servesText(scheduler.ModelState{Replicas: m.Replicas[1:2]}, names); got != "it does not run now" {
		t.Error(got)
	}
}

// A table cell says no more than what is known.
func TestWorkloadCells(t *testing.T) {
	one, none, seconds := 1, 0, 7.0
	for _, c := range []struct {
		r                       scheduler.ReplicaState
		stage, served, resident string
	}{
		{scheduler.ReplicaState{State: "loading"}, "loading", "?", "?"},
		{scheduler.ReplicaState{State: "loading", Stage: "starting", Waiting: &none}, "starting", "never", "-"},
		{scheduler.ReplicaState{State: "loading", Stage: "fetching", Done: 999, Total: 1000}, "fetching 99%", "?", "?"},
		{scheduler.ReplicaState{State: "loading", Stage: "fetching", Done: 1 << 60, Total: 1 << 60}, "fetching 100%", "?", "?"},
		{scheduler.ReplicaState{State: "loading", Stage: "fetching", Done: -5, Total: -1}, "fetching", "?", "?"},
		{scheduler.ReplicaState{State: "ready", Stage: "starting", Waiting: &one, LastServed: &seconds, Resident: &seconds}, "ready", "7 s ago", "7s"},
	} {
		if stage, served, resident := stageText(c.r), servedText(c.r), residentText(c.r); stage != c.stage || served != c.served || resident != c.resident {
			t.Errorf("%+v: %q %q %q", c.r, stage, served, resident)
		}
	}
}
