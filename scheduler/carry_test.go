package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay/store/content"
)

// carried has a peer hold a file that no model of the mesh names, and lists the
// model that would be brought along.
func (c *cluster) carried(holder *fakePeer, name string) Carried {
	c.t.Helper()
	uid := c.addModel(name, 1<<30, holder)
	r, ok := c.peers[0].table.Get(KindModel, uid)
	m, err := decode[Model](r.Record)
	if !ok || err != nil {
		c.t.Fatal(ok, err)
	}
	return Carried{uid, m}
}

func TestWhatAMemberBringsAlong(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		admin, member := c.peers[0], c.peers[1]
		held := c.carried(member, "held")
		held.UID = uidOf("other")
		admin.s.CheckArgs = func(args []string) error {
			if len(args) > 0 {
				return Errorf(InvalidRequest, "not allowed: %s", args)
			}
			return nil
		}
		with := func(change func(*Carried)) Carried {
			l := held
			change(&l)
			return l
		}
		count := func() int { return len(admin.table.List(KindModel)) }
		before := count()

		// Nothing comes of what has not the form of a model, and it is no reason to ask again.
		err := admin.s.TakeIn(member.id, []Carried{
			with(func(l *Carried) { l.UID = "../../../../../x" }),
			with(func(l *Carried) { l.Model.Name = "two words" }),
			with(func(l *Carried) { l.Model.Args = []string{"--model", "/etc/passwd"} }),
			with(func(l *Carried) { l.Model.CID = "none" }),
		})
		if err != nil || count() != before {
			t.Errorf("%d models, %d before: %v", count(), before, err)
		}

		// What the member does not hold is not believed.
		empty := c.carried(admin, "empty")
		empty.UID = uidOf("mine")
		before = count()
		if err := admin.s.TakeIn(member.id, []Carried{empty, held}); ReasonOf(err) != NoHolder || !strings.Contains(err.Error(), "empty") {
			t.Errorf("%v", err)
		}
		c.want("models", count(), before+1) // The other one is in.
		if err := admin.s.TakeIn(member.id, []Carried{held}); err != nil || count() != before+1 {
			t.Errorf("%d models: %v", count(), err)
		}
		m, err := admin.s.Model("held-" + member.id.String()[len(member.id.String())-6:])
		if err != nil || m.UID != held.UID {
			t.Errorf("%s: %v", m.UID, err)
		}

		// What it is called and can comes along, but for aliases that mean another model here; a
		// name that is an alias here is taken.
		admin.set("held", SetOptions{Aliases: &[]string{"best"}})
		called := with(func(l *Carried) {
			l.UID, l.Model.Name, l.Model.Aliases = uidOf("called"), "best", []string{"held", "gpt", "best"}
			l.Model.Fallback, l.Model.Can = held.UID, &Can{Tools: true}
		})
		if err := admin.s.TakeIn(member.id, []Carried{called}); err != nil {
			t.Error(err)
		}
		if m, err := admin.s.Model(called.UID); err != nil || !strings.HasPrefix(m.Name, "best-") || fmt.Sprint(m.Aliases) != "[gpt]" || !m.Can.Tools || m.FallbackGone || m.Fallback == "" {
			t.Errorf("%+v: %v", m, err)
		}
		if m, ok := admin.s.Resolve("best"); !ok || m.Name != "held" {
			t.Errorf("best is %q", m.Name)
		}

		// A long name that is taken is cut.
		long := with(func(l *Carried) { l.Model.Name = strings.Repeat("x", maxModelName) })
		for _, uid := range []string{"long", "longer"} {
			long.UID = uidOf(uid)
			if err := admin.s.TakeIn(member.id, []Carried{long}); err != nil {
				t.Errorf("%s: %v", uid, err)
			}
		}

		// There is an end to it, also where models are removed in between.
		for i := range 2 * maxCarried {
			l := with(func(l *Carried) { l.UID = uidOf(fmt.Sprint("n", string(rune('a'+i/26)), string(rune('a'+i%26)))) })
			if err = admin.s.TakeIn(member.id, []Carried{l}); err != nil {
				break
			}
			if _, err := admin.table.DeleteShared(KindModel, l.UID); err != nil {
				t.Fatal(err)
			}
		}
		if ReasonOf(err) != QuotaExceeded {
			t.Errorf("there is no end to it: %v", err)
		}
		c.want("models brought along", admin.s.broughtBy(member.id), maxCarried)
	})
}

// A machine tells first what it holds, and gives up where nobody believes it.
func TestCarryEnds(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		l := c.carried(p, "m")
		l.UID, l.Model.Name = uidOf("new"), "new"
		for _, r := range p.table.List(KindHolding) {
			if _, err := p.table.DeleteOwned(KindHolding, r.ID); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := p.s.Carry(t.Context(), []Carried{l}); err != nil || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if _, err := p.s.Model("new"); err != nil {
			t.Error(err)
		}
		list := CarriedFrom(p.table)
		c.want("brought along", len(list), 2)
		p.put(content.Content{CID: c.rootOf("m"), Path: "/models/m"})
		if err := p.s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.want("brought along without its file", len(CarriedFrom(p.table)), 0)
		l.UID = uidOf("lost")
		if err := p.s.Carry(t.Context(), []Carried{l}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Minute || took > 10*time.Minute {
			t.Errorf("it gave up after %s", took)
		}
	})
}
