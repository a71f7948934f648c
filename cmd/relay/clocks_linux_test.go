package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/cmd/stage"
	"relay/llama"
)

// ahead is the environment variable by which the clock of a peer that
// buildSkewed built is ahead, in seconds.
const ahead = "CLOCK_AHEAD_S"

// TestNetClocksApart: the clocks of three peers are two days apart either way,
// and the mesh does all that it does: it joins, elects, serves, and heals.
func TestNetClocksApart(t *testing.T) {
	if testing.Short() {
		t.Skip("the program is built anew with a clock that can be set, standard library and all, which takes a minute the first time: leave out -short")
	}
	found, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil {
		t.Skipf("no engine: run `make engine` first (%v)", err)
	}
	n := newNetwork(t)
	program := buildSkewed(t)
	n.stage = newStage(t, stage.Options{On: n.On, Dial: n.Dial, Program: func(string) string { return program },
		Env: func(peer string) []string {
			days := map[string]int{"early": -2, "late": 2}[peer]
			return []string{fmt.Sprintf("%s=%d", ahead, days*24*60*60), "RELAY_LLAMA_BIN=" + found.Server, "RELAY_API_KEY=rk-clocks"}
		}})
	n.stage.Key = "rk-clocks"
	n.machines("early", "now", "late", "later", "earlier")
	// Joins: from the past into the future and the other way round.
	n.up("now")
	for _, name := range []string{"early", "late"} {
		n.up(name, "--join", n.invite("now", "--admin"))
	}
	names := []string{"now", "early", "late"}
	n.allAlive(20*time.Second, names...)
	n.clock("early", -48*time.Hour)
	n.clock("late", 48*time.Hour)
	n.up("later", "--join", n.invite("early"))
	n.up("earlier", "--join", n.invite("late"))
	names = append(names, "later", "earlier")
	n.allAlive(20*time.Second, names...)

	// Elects and serves, and goes on when the one that serves dies.
	n.relay("early", "model", "add", "demo")
	for _, name := range names {
		n.answers(name)
	}
	for _, name := range []string{"late", "now"} {
		n.relay(name, "model", "pull", "demo")
	}
	serving, err := n.stage.Serving(t.Context(), n.peers["now"], "demo")
	n.must(err)
	n.must(n.stage.Kill(serving))
	for _, name := range names {
		if name != serving.Name {
			n.answers(name)
		}
	}
	n.up(serving.Name)
	n.allAlive(20*time.Second, names...)

	// Heals: what was done on both sides of a cut is on both.
	west, east := []string{"early", "later"}, []string{"now", "late", "earlier"}
	n.must(n.Cut(west, east))
	n.eventually(10*time.Second, "the cut is seen", func() error {
		if s := n.states("early"); s["late"] != "gone" {
			return fmt.Errorf("early sees %v", s)
		}
		return nil
	})
	n.invite("early", "--label", "of-early")
	n.invite("late", "--label", "of-late")
	n.must(n.Mend(west, east))
	n.allAlive(30*time.Second, names...)
	n.eventually(10*time.Second, "both invites are everywhere", func() error {
		for _, name := range names {
			s, err := n.state(name)
			if text := fmt.Sprint(s.Invites); err != nil || !strings.Contains(text, "of-early") || !strings.Contains(text, "of-late") {
				return fmt.Errorf("%s has %s: %v", name, text, err)
			}
		}
		return nil
	})
}

// clock wants the log of a peer to be dated that much ahead.
func (n *network) clock(name string, ahead time.Duration) {
	n.Helper()
	log, err := os.ReadFile(filepath.Join(n.stage.Dir, name, "log", "relay.log"))
	n.must(err)
	text, _, _ := strings.Cut(strings.TrimPrefix(string(log), "time="), " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	n.must(err)
	if off := time.Until(at) - ahead; off < -time.Minute || off > time.Minute {
		n.Fatalf("the clock of %s says %s: it is not %s ahead", name, at, ahead)
	}
}

// answers wants a peer's door to answer.
func (n *network) answers(name string) {
	n.Helper()
	n.eventually(30*time.Second, name+" answers", func() error {
		return n.stage.Chat(n.Context(), n.peers[name], "demo", "What is relay?", 8, func(string) {})
	})
}

// buildSkewed builds the program with a time.Now that is ahead by what the
// environment says: a clock cannot be set for one process, and Go reads it
// without asking the system. Nothing of Go's is kept but in its build cache.
func buildSkewed(t *testing.T) string {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	patched := string(text)
	for from, to := range map[string]string{
		"import (\n": "import (\n\t\"syscall\"\n",
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n": `var nowAhead = func() (seconds int64) {
	text, _ := syscall.Getenv("` + ahead + `")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			seconds = 10*seconds + int64(c-'0')
		}
	}
	return sign * seconds
}()

func Now() Time {
	sec, nsec, mono := runtimeNow()
	sec += nowAhead
`} {
		if strings.Count(patched, from) != 1 {
			t.Fatalf("%s of this Go is not as this test knows it: %q is not there once", source, from)
		}
		patched = strings.Replace(patched, from, to, 1)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	if err == nil {
		err = os.WriteFile(changed, []byte(patched), 0o600)
	}
	if err == nil {
		err = os.WriteFile(overlay, replace, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "relay")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-overlay", overlay, "-o", program, "relay/cmd/relay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	began := time.Now()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("built in %.0f s", time.Since(began).Seconds())
	return program
}
