package main_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"relay/api"
	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/scheduler"
)

// TestKilledWhileWriting: a peer is killed at any moment, again and again,
// while changes are made on its control socket as fast as it takes them. After
// each start everything that was acknowledged is there; in the end it is on
// another peer as well. KILL_SEED repeats a run, KILL_ROUNDS makes it longer or
// shorter.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	rounds, seed := fromEnv(t, "KILL_ROUNDS", 200), fromEnv(t, "KILL_SEED", rand.IntN(1<<30))
	t.Logf("KILL_ROUNDS=%d KILL_SEED=%d", rounds, seed)
	chance := rand.New(rand.NewPCG(uint64(seed), 0))
	s := newStage(t, stage.Options{Env: withoutEngine})
	k := &killed{T: t, stage: s, invites: map[string]string{}, revoked: map[string]bool{}, models: map[string]bool{}, file: filepath.Join(s.Dir, "model.gguf")}
	if err := os.WriteFile(k.file, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	attic, err := s.Up(t.Context(), "attic")
	if err != nil {
		t.Fatal(err)
	}
	starts := time.Since(began)
	var made api.InviteAnswer
	if err := attic.Ask(t.Context(), "/v0/invite", api.InviteRequest{Uses: 1}, &made); err != nil {
		t.Fatal(err)
	}
	den, err := s.Up(t.Context(), "den", "--join", made.Invite)
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		// From a start that has hardly begun to one that has long been writing.
		moment := time.Duration(chance.Int64N(int64(3 * starts)))
		stop, done := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		writers.Go(func() { k.write(stop, attic, k.invite) })
		writers.Go(func() { k.write(stop, attic, k.revoke) })
		writers.Go(func() { k.write(stop, attic, k.model) })
		<-time.After(moment)
		if err := s.Kill(attic); err != nil {
			t.Fatal(err)
		}
		done()
		writers.Wait()
		if attic, err = s.Start("attic"); err != nil {
			t.Fatal(err)
		}
		if chance.IntN(4) > 0 { // Else the next kill may come while it starts.
			k.check(attic)
		}
	}
	k.check(attic)
	k.check(den)
	t.Logf("%d invites, %d of them revoked, and %d models were acknowledged and are there after %d kills", len(k.invites), len(k.revoked), len(k.models), rounds)
	if len(k.invites) < rounds || len(k.revoked) < rounds/4 || len(k.models) < rounds/8 {
		t.Error("there was hardly anything to lose")
	}
}

func fromEnv(t *testing.T, name string, n int) int {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			t.Fatalf("%s=%s is no number", name, text)
		}
	}
	return n
}

// killed is what was acknowledged so far.
type killed struct {
	*testing.T
	stage *stage.Stage
	file  string

	mu      sync.Mutex
	n       int
	invites map[string]string // Labels by id.
	asked   []string          // Ids of invites that a revocation was not asked for yet.
	revoked map[string]bool
	models  map[string]bool // Uids.
}

// write makes changes until the peer is killed.
func (k *killed) write(ctx context.Context, p *stage.Peer, change func(context.Context, *stage.Peer) error) {
	for ctx.Err() == nil {
		if change(ctx, p) != nil { // It does not answer yet, or is being killed.
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func (k *killed) next() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	return k.n
}

func (k *killed) invite(ctx context.Context, p *stage.Peer) error {
	label := fmt.Sprint("label ", k.next())
	var made api.InviteAnswer
	if err := p.Ask(ctx, "/v0/invite", api.InviteRequest{Label: label}, &made); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.invites[made.ID] = label
	if len(k.asked) < 100 {
		k.asked = append(k.asked, made.ID)
	}
	return nil
}

func (k *killed) revoke(ctx context.Context, p *stage.Peer) error {
	k.mu.Lock()
	if len(k.asked) == 0 {
		k.mu.Unlock()
		return errors.New("nothing to revoke")
	}
	id := k.asked[0]
	k.asked = k.asked[1:]
	k.mu.Unlock()
	if err := p.Ask(ctx, "/v0/invite/revoke", api.NameRequest{Name: id}, nil); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revoked[id] = true
	return nil
}

func (k *killed) model(ctx context.Context, p *stage.Peer) error {
	var m scheduler.ModelState
	if err := p.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: fmt.Sprint("model", k.next()), Paths: []string{k.file}}, &m); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.models[m.UID] = true
	return nil
}

// check waits until a peer answers and, if it has to hear of it from another,
// knows everything; for the one that was killed the first answer must do.
func (k *killed) check(p *stage.Peer) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), 30*time.Second)
	defer cancel()
	for {
		var invites []api.InviteShown
		var models []scheduler.ModelState
		err := errors.Join(p.Ask(ctx, "/v0/invites", nil, &invites), p.Ask(ctx, "/v0/models", nil, &models))
		if err == nil {
			if err = k.missing(invites, models); err == nil {
				return
			}
			if p.Name == "attic" {
				k.Fatalf("after a kill: %v", err)
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.Ended():
			k.Fatalf("%s does not start: %s", p.Name, p.Printed())
		case <-ctx.Done():
			for _, name := range []string{"attic", "den"} {
				log, _ := os.ReadFile(filepath.Join(k.stage.Dir, name, "log", "relay.log"))
				k.Logf("--- %s\n%s", name, tail(string(log), 6000))
			}
			k.Fatalf("%s: %v", p.Name, err)
		}
	}
}

func (k *killed) missing(invites []api.InviteShown, models []scheduler.ModelState) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := map[string]string{}
	for _, i := range invites {
		left[i.ID] = i.Label
		if k.revoked[i.ID] && i.State != "revoked" {
			return fmt.Errorf("invite %s, revoked, is %s", i.ID, i.State)
		}
	}
	for id, label := range k.invites {
		if left[id] != label {
			return fmt.Errorf("invite %s is %q, not %q", id, left[id], label)
		}
	}
	there := map[string]bool{}
	for _, m := range models {
		there[m.UID] = true
	}
	for uid := range k.models {
		if !there[uid] {
			return fmt.Errorf("model %s is lost", uid)
		}
	}
	return nil
}
