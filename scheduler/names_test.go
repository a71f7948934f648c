package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/p2p/record"
)

// Whatever is written on whichever side of a cut: every peer takes every name for the same
// model, whatever the order in which it hears of them; names come before aliases, and an
// alias is the oldest record's.
func TestEveryPeerResolvesEveryNameAlike(t *testing.T) {
	words := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom(words)
		var models []modelView
		for i := range rapid.IntRange(0, 6).Draw(t, "models") {
			m := modelView{uid: uidOf(fmt.Sprint("m", i)), version: record.Version{uint64(rapid.IntRange(1, 3).Draw(t, "version"))}}
			m.Name, m.CID = word.Draw(t, "name"), "cid"+m.uid
			m.Kind = rapid.SampledFrom([]string{"chat", "embed"}).Draw(t, "kind")
			m.Aliases = rapid.SliceOfNDistinct(rapid.OneOf(word, rapid.SampledFrom([]string{uidOf("m0"), "cid" + uidOf("m1")})), 0, 4, rapid.ID[string]).Draw(t, "aliases")
			models = append(models, m)
		}
		resolved := func(order []modelView) map[string]string {
			v := viewOf(order...)
			is := map[string]string{}
			for _, name := range append(slices.Clone(words), uidOf("m0"), uidOf("m1"), "cid"+uidOf("m1")) {
				if m := v.resolve(name); m != nil {
					is[name] = m.uid
				}
			}
			for _, m := range v.models {
				own, lost := v.aliasesOf(m)
				if len(own)+len(lost) != len(m.Aliases) {
					t.Fatalf("%s: %v are its own and %v lost, of %v", m.uid, own, lost, m.Aliases)
				}
				for _, alias := range own {
					is["of "+alias+" "+m.uid] = m.uid
				}
			}
			return is
		}
		first := resolved(models)
		for range 3 {
			if other := resolved(rapid.Permutation(models).Draw(t, "order")); fmt.Sprint(first) != fmt.Sprint(other) {
				t.Fatalf("%v\n%v", first, other)
			}
		}
		older := func(a, b modelView) bool {
			c := a.version.Compare(b.version)
			return c < 0 || c == 0 && a.uid < b.uid
		}
		for _, name := range words {
			var want *modelView
			for _, by := range []func(modelView) bool{
				func(m modelView) bool { return m.Name == name },
				func(m modelView) bool { return slices.Contains(m.Aliases, name) },
			} {
				for i, m := range models {
					if want == nil && by(m) || want != nil && by(*want) && by(m) && older(m, *want) {
						want = &models[i]
					}
				}
				if want != nil {
					break
				}
			}
			if got := first[name]; (want == nil) != (got == "") || want != nil && got != want.uid {
				t.Fatalf("%s is %q, want %+v, of %+v", name, got, want, models)
			}
		}
	})
}

// viewOf is a view of models alone.
func viewOf(models ...modelView) *view {
	v := &view{model: map[string]*modelView{}, alias: map[string]*modelView{}}
	for _, m := range models {
		v.models = append(v.models, &m)
	}
	v.nameModels()
	v.nameAliases()
	return v
}

// An alias means its model for all who ask for something of it, and is given to one model
// at a time.
func TestAliases(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		uid := c.addModel("m", 1<<30, a)
		c.addModel("other", 1<<30, a)
		c.pass(10 * time.Second)
		starts := a.engine.starts() + b.engine.starts()
		set := func(name string, aliases ...string) []string {
			t.Helper()
			_, changed, err := a.s.Set(name, SetOptions{Aliases: &aliases})
			if err != nil {
				t.Fatal(err)
			}
			c.pass(time.Second)
			return changed
		}
		c.want("changed", set("m", "gpt", "best"), []string{"also called gpt, best"})
		c.want("changed", set("m", "best"), []string{})
		c.want("changed", set("m", "third"), []string{"also called third"})
		c.want("changed", set("m", "", "gpt", "fast"), []string{"no longer called best, third", "also called fast"})
		c.want("starts", a.engine.starts()+b.engine.starts(), starts)
		for _, p := range c.peers {
			m, ok := p.s.Resolve("gpt")
			c.want("resolved", []any{ok, m.UID, m.Name, m.Aliases}, []any{true, uid, "m", []string{"gpt", "fast"}})
			route, err := p.s.Route(t.Context(), Want{UID: "gpt"})
			if err != nil {
				t.Fatal(err)
			}
			route.Done(nil)
			c.want("route", route.Model.Name, "m")
			if _, ok := p.s.Resolve("best"); ok {
				t.Error("an alias that was taken away means something")
			}
			for _, show := range []func() error{
				func() error { _, err := p.s.Model("gpt"); return err },
				func() error { _, err := p.s.Plan("gpt"); return err },
				func() error { _, err := p.s.Act(t.Context(), "gpt", ActLoad); return err },
			} {
				if err := show(); err != nil {
					t.Error(err)
				}
			}
		}

		path := written(t, t.TempDir(), "x.gguf", "chat llama")
		seventeen := []string{}
		for i := range maxAliases + 1 {
			seventeen = append(seventeen, fmt.Sprint("x", i))
		}
		for name, x := range map[string]struct {
			do   func() error
			why  Reason
			want string
		}{
			"another's name":  {func() error { _, _, err := a.s.Set("other", SetOptions{Aliases: &[]string{"m"}}); return err }, NameTaken, `"m" cannot be an alias: it means model "m"`},
			"another's uid":   {func() error { _, _, err := a.s.Set("other", SetOptions{Aliases: &[]string{uid}}); return err }, NameTaken, "it means model"},
			"another's alias": {func() error { _, _, err := a.s.Set("other", SetOptions{Aliases: &[]string{"gpt"}}); return err }, NameTaken, `it means model "m"`},
			"its own name":    {func() error { _, _, err := a.s.Set("m", SetOptions{Aliases: &[]string{"m"}}); return err }, InvalidRequest, "its name already"},
			"no name":         {func() error { _, _, err := a.s.Set("m", SetOptions{Aliases: &[]string{"two words"}}); return err }, InvalidRequest, `alias "two words"`},
			"too many":        {func() error { _, _, err := a.s.Set("m", SetOptions{Aliases: &seventeen}); return err }, InvalidRequest, "16 are the most"},
			"set by alias":    {func() error { _, _, err := a.s.Set("gpt", SetOptions{Pinned: ptr(true)}); return err }, ModelNotFound, `"gpt" is an alias of model "m"`},
			"rm by alias":     {func() error { _, err := a.s.Remove(t.Context(), "gpt", false, false); return err }, ModelNotFound, `"gpt" is an alias of model "m"`},
			"added as one": {func() error {
				_, err := a.s.Add(t.Context(), AddOptions{Name: "gpt", Paths: []string{path}}, nil)
				return err
			}, NameTaken, `"gpt" is an alias of model "m"`},
			"added with one": {func() error {
				_, err := a.s.Add(t.Context(), AddOptions{Name: "new", Paths: []string{path}, Aliases: []string{"fast"}}, nil)
				return err
			}, NameTaken, `it means model "m"`},
			"added with none": {func() error {
				_, err := a.s.Add(t.Context(), AddOptions{Name: "new", Paths: []string{path}, Aliases: []string{""}}, nil)
				return err
			}, InvalidRequest, `alias ""`},
		} {
			if err := x.do(); err == nil || ReasonOf(err) != x.why || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: %s: %v", name, ReasonOf(err), err)
			}
		}

		added, err := a.s.Add(t.Context(), AddOptions{Name: "new", Paths: []string{path}, Aliases: []string{"best"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.want("aliases", added.Aliases, []string{"best"})
		added, err = a.s.Add(t.Context(), AddOptions{Name: "new", Paths: []string{path}, Aliases: []string{"newest", "best"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.want("aliases", added.Aliases, []string{"best", "newest"})
	})
}

// What both sides of a cut gave one alias: it is the older record's, both models say so, and
// neither is changed before it is taken away from one of them.
func TestAnAliasOfTwoModels(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		first, second := c.addModel("first", 1<<30, a), c.addModel("second", 1<<30, a)
		c.pass(10 * time.Second)
		for i, uid := range []string{first, second} { // The second one's record gets to be the older.
			r, _ := a.table.Get(KindModel, uid)
			m, err := decode[Model](r.Record)
			if err != nil {
				t.Fatal(err)
			}
			m.Aliases = []string{"best", "own" + m.Name}
			for range 2 - i {
				if err := a.PutShared(KindModel, uid, m); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.pass(time.Second)
		state := func(name string) ModelState {
			m, err := b.s.Model(name)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		owner, loser := state("second"), state("first")
		c.want("aliases", owner.Aliases, []string{"best", "own" + owner.Name})
		c.want("aliases", loser.Aliases, []string{"own" + loser.Name})
		c.want("lost", loser.LostAliases, map[string]string{"best": owner.Name})
		for _, name := range []string{"first", "second"} {
			if _, _, err := a.s.Set(name, SetOptions{Pinned: ptr(true)}); ReasonOf(err) != NameTaken || !strings.Contains(err.Error(), `both have the alias "best"`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		a.set(owner.Name, SetOptions{Aliases: &[]string{""}})
		c.pass(time.Second)
		c.want("aliases", state(loser.Name).Aliases, []string{"best", "own" + loser.Name})
		a.set(loser.Name, SetOptions{Pinned: ptr(true)})
	})
}

// A fallback is another model of the same kind; who takes it out is told.
func TestFallbacks(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		uid := c.addModel("m", 1<<30, a)
		c.addModel("small", 1<<30, a)
		path := written(t, t.TempDir(), "x.gguf", "embed bert")
		if _, err := a.s.Add(t.Context(), AddOptions{Name: "embedder", Paths: []string{path}}, nil); err != nil {
			t.Fatal(err)
		}
		c.pass(10 * time.Second)
		starts := a.engine.starts()
		for other, want := range map[string]string{"nosuch": `no model "nosuch"`, "m": "in its own stead", uid: "in its own stead", "embedder": `is for embed and "m" for chat`} {
			if _, _, err := a.s.Set("m", SetOptions{Fallback: &other}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", other, err)
			}
		}
		m, changed, err := a.s.Set("m", SetOptions{Fallback: ptr("small")})
		if err != nil {
			t.Fatal(err)
		}
		c.want("changed", changed, []string{"small may answer in its stead"})
		c.want("fallback", []any{m.Fallback, m.FallbackGone}, []any{"small", false})
		served, _ := a.s.Resolve("m")
		c.want("fallback", served.Fallback, "small")
		a.set("small", SetOptions{Fallback: ptr("m")}) // One step is followed.
		a.set("small", SetOptions{Fallback: ptr("")})
		c.pass(10 * time.Second)
		c.want("starts", a.engine.starts(), starts)

		gone, err := a.s.Remove(t.Context(), "small", false, false)
		if err != nil {
			t.Fatal(err)
		}
		c.want("warnings", gone.Warnings, []string{`model "m" had it for its fallback, and has none now`})
		c.pass(time.Second)
		m, _ = a.s.Model("m")
		c.want("fallback", []any{m.Fallback, m.FallbackGone}, []any{gone.UID, true})
		served, _ = a.s.Resolve("m")
		c.want("fallback", served.Fallback, "")
	})
}
