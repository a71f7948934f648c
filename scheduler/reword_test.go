package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay/scheduler/residency"
)

// Why a model runs nowhere is told with the figures that are so now, within a minute,
// and at once where somebody asks. That is no new decision.
func TestWhyItRunsNowhereKeepsUp(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("m", 5<<30, a)
		c.pass(10 * time.Second)
		placed := func() string { m, _ := a.s.Model("m"); return m.Placed }
		if text := placed(); !strings.Contains(text, "no holder lends more than 4.0 GiB") {
			t.Fatal(text)
		}
		decisions := len(a.s.Decisions())
		c.lends(a, 3<<30)
		c.pass(rewordEvery)
		if text := placed(); !strings.Contains(text, "no holder lends more than 3.0 GiB") {
			t.Errorf("after a minute: %s", text)
		}
		c.lends(a, 2<<30)
		<-a.ask("m")
		c.pass(time.Second)
		if text := placed(); !strings.Contains(text, "no holder lends more than 2.0 GiB") {
			t.Errorf("after it was asked for: %s", text)
		}
		c.want("decisions", len(a.s.Decisions()), decisions+1) // That somebody waits for it.
	})
}

// A model that is idle is not said to be in use where its memory would not do.
func TestWhyAnIdleModelStays(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		a.register("kept", 2<<30, func(m *Model) { m.Pinned = true })
		c.hold("kept", a)
		c.addModel("idle", 1<<30, a)
		c.pass(10 * time.Second)
		a.insist("idle", 0)
		c.pass(residency.MinLife)
		c.addModel("new", 3<<30, a)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := a.s.Route(ctx, Want{UID: "new"})
		for _, text := range []string{`"kept" stays on a: it is pinned`, `"idle" stays on a: it is in use, was loaded only just now, or would not make room enough`} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v", err)
			}
		}
	})
}
