package membership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

// seat is one peer's table with the real kinds and rights.
type seat struct {
	w       world
	p       person
	storage *recordtest.Memory
	table   *record.Table
	judge   *Judge
}

func (s *seat) roster() *Roster {
	if s.table == nil {
		return s.judge.Roster(nil)
	}
	var all []record.Record
	for _, r := range s.table.All() {
		all = append(all, r.Record)
	}
	return s.judge.Roster(all)
}

type seatRights struct{ s *seat }

func (r seatRights) May(a peer.ID, rule record.Rule, k, id string) record.Verdict {
	return r.s.roster().May(a, rule, k, id)
}

func (s *seat) open(t testing.TB) {
	s.table = nil
	table, err := record.NewTable(record.Options{Storage: s.storage, Key: s.p.key, Rights: seatRights{s},
		Kinds: append(Kinds(s.w.mesh, func(r record.Record) record.Verdict { return s.roster().Admit(r) }),
			record.Kind{Name: "contact", Rule: record.Owned, Owner: record.OwnerIsID})})
	if err != nil {
		t.Fatal(err)
	}
	s.table = table
}

var ruleOf = map[string]record.Rule{KindInvite: record.Shared, KindMesh: record.Shared}

func (s *seat) void() {
	roster := s.roster()
	_ = s.table.Void(func(r record.Record) bool {
		rule, ok := ruleOf[r.Kind]
		if !ok {
			rule = record.Owned
		}
		return !roster.Stands(r, rule)
	})
}

// TestTablesConverge: three peers that get parts of the same records, in orders of
// their own, with restarts and what is void dropped in between, have one table
// and one roster once they have exchanged what they have.
func TestTablesConverge(t *testing.T) {
	w := newWorld(t)
	people := []person{newPerson(t)}
	var grants []record.Signed
	seal := func(p person, g Grant, v uint64, del bool) record.Signed {
		id, _ := GrantID(p.id, g)
		return w.seal(p, KindMember, id, del, v, g)
	}
	grants = append(grants, seal(people[0], w.root.GrantAdmin(people[0].id, "f"), 1, false))
	var gs []Grant
	gs = append(gs, w.root.GrantAdmin(people[0].id, "f"))
	for i := range 7 {
		p := newPerson(t)
		role := RoleAdmin
		if i%3 == 2 {
			role = RoleMember
		}
		by := i / 2
		iv, issued := w.invite(people[by], role, TrustReplicas)
		g := w.grant(p, people[i], iv, issued)
		grants = append(grants, seal(p, g, 1, false), issued)
		gs = append(gs, g)
		people = append(people, p)
	}
	full := NewRoster(w.mesh, func() (o []record.Record) {
		for _, g := range grants {
			o = append(o, g.Record)
		}
		return
	}())
	observers := []person{newPerson(t), newPerson(t), newPerson(t)}
	rapid.Check(t, func(rt *rapid.T) {
		seats := []*seat{}
		for _, o := range observers {
			s := &seat{w: w, p: o, storage: recordtest.NewMemory(), judge: NewJudge(w.mesh)}
			s.open(t)
			seats = append(seats, s)
		}
		pool := slices.Clone(grants)
		version := map[string]uint64{}
		for n := range rapid.IntRange(3, 25).Draw(rt, "extra") {
			by := people[rapid.IntRange(0, len(people)-1).Draw(rt, "by")]
			ti := rapid.IntRange(0, len(people)-1).Draw(rt, "target")
			target := people[ti]
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				if by.id == target.id {
					continue
				}
				v := full.Standing(target.id)
				if rapid.Bool().Draw(rt, "nobody") {
					v = Revocation{}
				}
				id := JudgementID(by.id, target.id)
				version[id]++
				pool = append(pool, w.seal(by, KindRevocation, id, false, version[id], v))
			case 1, 2:
				p := full.NextPolicy(by.id, target.id, "")
				p.Role = rapid.SampledFrom([]Role{RoleAdmin, RoleMember}).Draw(rt, "role")
				if by.id == target.id {
					p.Role = RoleAdmin
				}
				p.Round = uint64(rapid.IntRange(1, 4).Draw(rt, "round"))
				p.Raised = rapid.Bool().Draw(rt, "raised")
				if rapid.Bool().Draw(rt, "nobody") {
					p.Adopted = nil
				}
				id := "p" + JudgementID(by.id, target.id)
				version[id]++
				pool = append(pool, w.seal(by, KindPolicy, id[1:], false, version[id], p))
			case 3:
				pool = append(pool, w.seal(by, KindMesh, SettingsID, rapid.Bool().Draw(rt, "del"), uint64(rapid.IntRange(1, 4).Draw(rt, "v")), Settings{Name: fmt.Sprint(n)}))
			case 4:
				pool = append(pool, seal(target, gs[ti], uint64(rapid.IntRange(2, 4).Draw(rt, "v")), rapid.Bool().Draw(rt, "left")))
			case 5:
				pool = append(pool, w.seal(by, "contact", by.id.String(), false, uint64(rapid.IntRange(1, 3).Draw(rt, "v")), n))
			}
		}
		// Each seat gets a part, in an order of its own, with drops and restarts.
		for _, s := range seats {
			some := rapid.Permutation(pool).Draw(rt, "order")
			some = some[:rapid.IntRange(0, len(some)).Draw(rt, "known")]
			for _, r := range some {
				_, _ = s.table.Offer(r)
				switch rapid.IntRange(0, 6).Draw(rt, "then") {
				case 0:
					s.void()
				case 1:
					s.table.Recheck(time.Unix(0, 0))
				case 2:
					s.open(t)
				}
			}
		}
		for range 12 {
			for _, a := range seats {
				for _, b := range seats {
					if a == b {
						continue
					}
					for _, r := range a.table.All() {
						_, _ = b.table.Offer(r)
					}
					b.table.Recheck(time.Unix(0, 0))
					b.void()
				}
			}
		}
		for _, s := range seats { // Those are an admin's to take over, and nobody writes here.
			roster := s.roster()
			_ = s.table.Void(func(r record.Record) bool { return ruleOf[r.Kind] == record.Shared && roster.Stranded(r.Author) })
		}
		for _, s := range seats[1:] {
			if s.table.Root() != seats[0].table.Root() || !slices.Equal(s.roster().Members(), seats[0].roster().Members()) {
				for _, x := range seats {
					for _, r := range x.table.All() {
						rt.Logf("%p %s v%v del %v by %s", x, r.Key(), r.Version, r.Deleted, r.Author)
					}
				}
				rt.Fatalf("they differ")
			}
		}
	})
}
