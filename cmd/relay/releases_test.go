package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/api"
	"relay/cmd/stage"
	"relay/llama/demo"
)

// TestAdjacentReleases: a peer of this release and one of the release before,
// which is the commit before, share a mesh, whichever of the two founded it; and
// the older one's state is good for the newer.
func TestAdjacentReleases(t *testing.T) {
	older := buildOlder(t)
	file := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(file, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"old", "new"}, {"new", "old"}} {
		t.Run(names[0]+" founds", func(t *testing.T) {
			program := older
			s := newStage(t, stage.Options{Env: withoutEngine, Program: func(peer string) string {
				if peer == "old" {
					return program
				}
				return ""
			}})
			r := &releases{T: t, stage: s}
			first, err := s.Up(t.Context(), names[0])
			r.must(err)
			invite, err := s.Invite(t.Context(), first, "--admin")
			r.must(err)
			second, err := s.Up(t.Context(), names[1], "--join", invite)
			r.must(err)
			for _, p := range []*stage.Peer{first, second} {
				_, err := s.Relay(t.Context(), p, "model", "add", p.Name+"-model", file)
				r.must(err)
				_, err = s.Invite(t.Context(), p, "--label", p.Name+"-invite")
				r.must(err)
			}
			r.agree(first, second)

			// The older release gives way to this one, and has what it had.
			old := s.Peer("old")
			_, err = s.Relay(t.Context(), old, "down")
			r.must(err)
			<-old.Ended()
			program = ""
			old, err = s.Up(t.Context(), "old")
			r.must(err)
			r.agree(old, s.Peer("new"))
		})
	}
}

type releases struct {
	*testing.T
	stage *stage.Stage
}

func (r *releases) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// agree waits until both peers show the same, and that it is all of it.
func (r *releases) agree(peers ...*stage.Peer) {
	r.Helper()
	if err := stage.Until(r.Context(), "both peers show the same", func() bool {
		var shown []string
		for _, p := range peers {
			text, whole := r.shows(p)
			if !whole {
				return false
			}
			shown = append(shown, text)
		}
		return shown[0] == shown[1]
	}); err != nil {
		for _, p := range peers {
			text, _ := r.shows(p)
			r.Logf("%s shows %s\n%s", p.Name, text, p.Printed())
		}
		r.Fatal(err)
	}
}

// shows is what the commands of a peer's own release show, and whether that is
// everything that was done here, with both peers alive and answering.
func (r *releases) shows(p *stage.Peer) (text string, whole bool) {
	var status api.Status
	var invites []api.InviteShown
	r.read(p, &status, "status", "--json")
	r.read(p, &invites, "peer", "invites", "--json")
	var list []string
	alive := 0
	for _, seen := range status.Peers {
		list = append(list, fmt.Sprint(seen.ID, " ", seen.Name, " ", seen.Role))
		if seen.State == "alive" {
			alive++
		}
	}
	for _, m := range status.Models {
		list = append(list, fmt.Sprint(m.UID, " ", m.Name, " ", m.CID, " ", len(m.Holders)))
	}
	for _, i := range invites {
		list = append(list, fmt.Sprint(i.ID, " ", i.Label, " ", i.Used, " ", i.State))
	}
	slices.Sort(list)
	return strings.Join(list, "\n"), alive == 2 && len(status.Models) == 2 && len(invites) == 3 && len(status.Unanswered) == 0
}

func (r *releases) read(p *stage.Peer, answer any, args ...string) {
	r.Helper()
	// `relay status` fails while a model is served nowhere, which is the case here.
	out, err := r.stage.Quietly(r.Context(), p, args...)
	if json.Unmarshal([]byte(out), answer) != nil {
		r.Fatalf("relay %v of %s: %v: %s", args, p.Name, err, out)
	}
}

// buildOlder builds the release before: the commit before, or the last one while
// there are changes that are not committed.
func buildOlder(t *testing.T) string {
	t.Helper()
	const root = "../.."
	changes, err := exec.Command("git", "-C", root, "status", "--porcelain").Output()
	if err != nil {
		t.Skipf("there is no history here: clone the repository with git (%v)", err)
	}
	older := "HEAD~1"
	if len(changes) > 0 {
		older = "HEAD"
	}
	if exec.Command("git", "-C", root, "rev-parse", "--verify", "--quiet", older+"^{commit}").Run() != nil {
		t.Skipf("%s is not in this clone: git fetch --unshallow", older)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "git", "-C", root, "archive", "-o", filepath.Join(dir, "older.tar"), older),
		exec.CommandContext(ctx, "tar", "-x", "-C", dir, "-f", filepath.Join(dir, "older.tar")),
		exec.CommandContext(ctx, "go", "build", "-C", dir, "-trimpath", "-ldflags", "-X main.version=older", "-o", "relay", "./cmd/relay"),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c.Args, err, out)
		}
	}
	return filepath.Join(dir, "relay")
}
