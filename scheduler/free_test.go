package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cid "github.com/ipfs/go-cid"

	"relay/scheduler/eviction"
	"relay/scheduler/leadership"
	"relay/store/content"
)

// ofContent lists peers by their rank for a content, the one whose copy stays last.
func (c *cluster) ofContent(name string) []*fakePeer {
	root := c.rootOf(name).String()
	return slices.SortedFunc(slices.Values(c.peers), func(a, b *fakePeer) int {
		return cmp.Compare(leadership.Rank(root, a.id.String()), leadership.Rank(root, b.id.String()))
	})
}

// reasons lists why pieces were kept, by name.
func reasons(p Pruned) string {
	var list []string
	for _, k := range p.Kept {
		list = append(list, k.Name+" "+k.Reason)
	}
	return strings.Join(list, ", ")
}

func freed(p Pruned) string {
	var list []string
	for _, f := range p.Freed {
		list = append(list, f.Name)
	}
	return strings.Join(list, ", ")
}

// What may go goes, and the rest says why it stays.
func TestPrune(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.ofContent("spare")
		it, last := order[0], order[2]
		spare := c.rootOf("spare")
		c.hold("spare", it, last)
		c.peers[0].register("spare", 100<<30) // Fits nowhere, so it runs nowhere.
		c.hold("only", it)
		c.peers[0].register("only", 100<<30)
		c.hold("orphan", it)
		c.hold("mine", it)
		it.put(content.Content{CID: c.rootOf("mine"), Bytes: 1 << 20, Path: "/mine", InPlace: true, Complete: true})
		it.put(content.Content{CID: c.rootOf("changed"), Bytes: 1 << 20, Path: "/pulled/changed.gguf"})
		it.partials[c.rootOf("half")] = content.Partial{CID: c.rootOf("half"), Name: "half", Bytes: 1 << 20, Done: 9}
		it.partials[c.rootOf("going")] = content.Partial{CID: c.rootOf("going"), Name: "going", Bytes: 1 << 20, Done: 9, Running: true}
		if err := it.s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.pass(10 * time.Second)

		dry, err := it.s.Prune(t.Context(), PruneOptions{DryRun: true})
		if err != nil || !dry.DryRun {
			t.Fatalf("%+v: %v", dry, err)
		}
		c.want("would go", freed(dry), "half, orphan, spare")
		c.want("would stay", reasons(dry), "changed.gguf changed, going running, only last_copy")
		c.want("bytes", dry.FreedBytes, 3<<20)
		c.want("still there", len(it.List()), 5)

		size := uint64(1 << 20)
		some, err := it.s.Prune(t.Context(), PruneOptions{DryRun: true, MaxSize: &size})
		c.want("would go, but for one MiB", freed(some), "half, orphan")
		c.want("would stay", reasons(some), "changed.gguf changed, going running, only last_copy, spare spared")
		if err != nil {
			t.Error(err)
		}

		yes := true
		if _, _, err := c.peers[0].s.Set("spare", SetOptions{Pinned: &yes}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		done, err := it.s.Prune(t.Context(), PruneOptions{})
		c.want("went", freed(done), "half, orphan")
		c.want("stayed", reasons(done), "changed.gguf changed, going running, only last_copy, spare pinned")
		if err != nil {
			t.Error(err)
		}
		yes = false
		if _, _, err := c.peers[0].s.Set("spare", SetOptions{Pinned: &yes}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)

		// Records are not enough: who is said to have it says so itself, or not.
		if _, err := last.Remove(spare, true); err != nil {
			t.Fatal(err)
		}
		done, err = it.s.Prune(t.Context(), PruneOptions{})
		c.want("went", freed(done), "")
		c.want("stayed", reasons(done), "changed.gguf changed, going running, only last_copy, spare last_copy")
		if err != nil || !strings.Contains(done.Kept[3].Why, "could not be confirmed by "+last.name) {
			t.Errorf("%+v: %v", done, err)
		}
		c.hold("spare", last)
		done, err = it.s.Prune(t.Context(), PruneOptions{})
		c.want("went", freed(done), "spare")
		if err != nil {
			t.Error(err)
		}
		c.pass(time.Second)
		m, _ := c.peers[0].s.Model("spare")
		c.want("holders", m.Holders, []string{last.id.String()})
		_, err = it.Get(c.rootOf("mine"))
		c.want("what is somebody's own", err, nil)

		// The one whose copy stays keeps it, although another has one too.
		c.hold("spare", it)
		c.pass(time.Second)
		done, _ = last.s.Prune(t.Context(), PruneOptions{})
		if freed(done) != "" || len(done.Kept) != 1 || !strings.Contains(done.Kept[0].Why, "this is the one that stays (there is one on "+it.name) {
			t.Errorf("%+v", done)
		}
	})
}

// Its owner's copy stays where what was pulled goes, and is as good as another
// machine's.
func TestPruneLeavesTheOwnersCopy(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		a.put(content.Content{CID: c.rootOf("m"), Bytes: 1 << 20, Path: "/mine/m.gguf", InPlace: true, Complete: true, Pulled: "/pulled/m.gguf"})
		a.put(content.Content{CID: c.rootOf("linked"), Bytes: 1 << 20, Path: "/pulled/linked.gguf", Complete: true})
		a.foreign = map[string]bool{"/pulled/linked.gguf": true}
		broken := []string{"/pulled/set/p-1.gguf", "/pulled/set/p-2.gguf"} // No model needs it.
		a.put(content.Content{CID: c.rootOf("set"), Bytes: 1 << 20, Path: broken[0], Files: broken})
		a.put(content.Content{CID: c.rootOf("used"), Bytes: 1 << 20, Path: "/pulled/used/p-1.gguf", Files: broken})
		a.register("used", 100<<30)
		a.register("m", 100<<30)
		c.pass(time.Second)
		c.want("in the cache", a.s.DiskUse().Cache.Used, 2<<20)
		done, err := a.s.Prune(t.Context(), PruneOptions{})
		if err != nil || len(done.Freed) != 2 || freed(done) != "p-1.gguf, m" && freed(done) != "m, p-1.gguf" {
			t.Errorf("%+v: %v", done, err)
		}
		c.want("where nothing was deleted", reasons(done), "linked.gguf changed, used changed")
		here, err := a.Get(c.rootOf("m"))
		if err != nil || !here.InPlace || here.Pulled != "" {
			t.Errorf("%+v: %v", here, err)
		}
		m, _ := a.s.Model("m")
		c.want("holders", len(m.Holders), 1)
		if done, err = a.s.Prune(t.Context(), PruneOptions{}); err != nil || len(done.Freed) > 0 {
			t.Errorf("%+v: %v", done, err)
		}
	})
}

// What runs stays.
func TestPruneLeavesWhatRuns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.ofContent("m")
		c.addModel("m", 1<<30, order...)
		c.pass(10 * time.Second)
		runs := order[0].ready("m")
		for _, p := range order {
			done, err := p.s.Prune(t.Context(), PruneOptions{})
			here := len(p.List()) == 1
			if err != nil || here != (p == order[2] || p.name == runs[0]) {
				t.Errorf("%s of %v, %v runs: %+v %v", p.name, order[2].name, runs, done, err)
			}
			if p.name == runs[0] && reasons(done) != "m running" {
				t.Errorf("%+v", done)
			}
		}
	})
}

// However many free at the same time, and whatever they know of one another, of
// every content that a model needs a whole copy stays with somebody who is up.
func TestPruneNeverTakesTheLastCopy(t *testing.T) {
	for round := range 8 {
		bubble(t, 4, func(t *testing.T, c *cluster) {
			names := []string{"u", "v", "w", "x"}
			for i, name := range names {
				c.hold(name, c.peers[:1+(i+round)%4]...)
				c.peers[0].register(name, 100<<30)
			}
			c.pass(2 * time.Second)
			if round%2 == 1 {
				c.split(2)
				c.pass(10 * time.Second)
			}
			var all sync.WaitGroup
			for _, p := range c.peers {
				all.Go(func() {
					if _, err := p.s.Prune(t.Context(), PruneOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, name := range names {
				left := 0
				for _, p := range c.peers {
					if _, err := p.Get(c.rootOf(name)); err == nil {
						left++
					}
				}
				sides := 1
				if round%2 == 1 {
					sides = 2
				}
				if left < 1 || left > sides {
					t.Errorf("round %d: %d copies of %s are left", round, left, name)
				}
			}
		})
	}
}

// A disk that is nearly full is made room on, by what was unused for longest, and
// that is told; where nothing may go, that is said.
func TestRoomIsMade(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		var roots []cid.Cid
		a.s.ModelsDir = "/pulled"
		aside := content.Content{CID: c.rootOf("aside"), Bytes: 1 << 40, Path: "/other/aside.gguf", Complete: true} // On another disk.
		a.put(aside)
		for i := range 4 {
			root := c.rootOf(fmt.Sprint("old", i))
			roots = append(roots, root)
			a.put(content.Content{CID: root, Bytes: 600 << 20, Path: fmt.Sprintf("/pulled/old%d.gguf", i), Complete: true, Used: time.Now().Add(time.Duration(i) * time.Hour)})
		}
		a.put(content.Content{CID: c.rootOf("kept"), Bytes: 1 << 20, Path: "/pulled/set/kept-1.gguf", Complete: true})
		a.register("kept", 100<<30)
		c.pass(time.Second)
		var taken int64 = 500 << 20 // What is free while all of that is there.
		a.filesMu.Lock()
		all := int64(0)
		for _, f := range a.files {
			all += f.Bytes
		}
		a.diskFree = func() uint64 {
			here := int64(0)
			for _, f := range a.files {
				here += f.Bytes
			}
			return uint64(max(0, taken+all-here))
		}
		a.filesMu.Unlock()
		c.pass(3 * measureEvery)
		for i, root := range roots { // 500 MiB, and three times 600: 2 GiB.
			if _, err := a.Get(root); (err == nil) != (i == 3) {
				t.Errorf("old%d: %v", i, err)
			}
		}
		told := 0
		for _, d := range a.s.Decisions() {
			if strings.Contains(d.Text, "nearly full") && strings.Contains(d.Text, "was deleted") {
				told++
			}
		}
		c.want("decisions told", told, 3)
		c.want("stuck", a.s.DiskUse().Stuck, "")

		a.filesMu.Lock()
		taken -= 3 << 30
		a.filesMu.Unlock()
		c.pass(3 * measureEvery)
		if _, err := a.Get(roots[3]); err == nil {
			t.Error("the last one that may go is there still")
		}
		if text := a.s.DiskUse().Stuck; !strings.Contains(text, "nearly full") || !strings.Contains(text, "kept: it is the last whole copy") {
			t.Errorf("stuck: %q", text)
		}
		_, err := a.Get(aside.CID)
		c.want("what is on another disk", err, nil)
		c.want("warnings", len(a.s.DiskUse().Warnings()), 1)
		a.filesMu.Lock()
		taken = 100 << 30
		a.filesMu.Unlock()
		c.pass(3 * measureEvery)
		c.want("stuck no more", a.s.DiskUse().Stuck, "")
	})
}

// Only what is measured counts as free: what was deleted may have another name.
func TestRoomIsMeasured(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		for i := range 3 {
			a.put(content.Content{CID: c.rootOf(fmt.Sprint("linked", i)), Bytes: 10 << 30, Path: fmt.Sprintf("/pulled/linked%d.gguf", i), Complete: true})
		}
		a.filesMu.Lock()
		a.diskFree = func() uint64 { return 500 << 20 }
		a.filesMu.Unlock()
		c.pass(3 * measureEvery)
		c.want("files left", len(a.List()), 0)
		if text := a.s.DiskUse().Stuck; !strings.Contains(text, "nearly full") {
			t.Errorf("stuck: %q", text)
		}
	})
}

func TestWhatIsWanted(t *testing.T) {
	for total, want := range map[uint64]uint64{0: 0, 20 << 20: 1 << 20, 1 << 40: 1 << 30, 20 << 30: 1 << 30, 10 << 30: 1 << 29} {
		if got := WantsFree(total); got != want {
			t.Errorf("%d of %d, want %d", got, total, want)
		}
	}
	if tooFull(0, 0) {
		t.Error("a disk that was not measured is full")
	}
}

// Caps count, warn, and delete nothing.
func TestCaps(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		a.s.ModelsMax, a.s.CacheMax = 3<<20, 2<<20
		a.put(content.Content{CID: c.rootOf("mine"), Bytes: 1 << 20, Path: "/mine", InPlace: true, Complete: true})
		a.put(content.Content{CID: c.rootOf("pulled"), Bytes: 1 << 20, Path: "/pulled", Complete: true})
		a.put(content.Content{CID: c.rootOf("gone"), Bytes: 1 << 40, Path: "/gone"})
		a.partials[c.rootOf("half")] = content.Partial{CID: c.rootOf("half"), Name: "half", Bytes: 1 << 20, Done: 9}
		a.partials[c.rootOf("who knows")] = content.Partial{CID: c.rootOf("who knows"), Name: "who knows", Bytes: -1}
		u := a.s.DiskUse()
		c.want("models", u.Models, CapUse{2 << 20, 3 << 20})
		c.want("cache", u.Cache, CapUse{2 << 20, 2 << 20})
		c.want("warnings", len(u.Warnings()), 0)
		dir := t.TempDir()
		out, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{written(t, dir, "m.gguf", "chat llama"+strings.Repeat(" ", 1<<20))}}, nil)
		if err != nil || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "RELAY_MODELS_MAX (3.0 MiB)") {
			t.Errorf("%v: %v", out.Warnings, err)
		}
		a.put(content.Content{CID: c.rootOf("pulled too"), Bytes: 1, Path: "/pulled2", Complete: true})
		if list := a.s.DiskUse().Warnings(); len(list) != 2 || !strings.Contains(list[1], "RELAY_CACHE_MAX (2.0 MiB)") {
			t.Errorf("%v", list)
		}
		c.pass(time.Minute)
		c.want("files", len(a.List()), 5)
	})
}

// Where no peer runs, whole copies that a model needs stay.
func TestPruneOffline(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("m", 100<<30, a, c.peers[1])
		c.hold("orphan", a)
		c.hold("coming", a)
		a.partials[c.rootOf("m2")] = content.Partial{CID: c.rootOf("m2"), Name: "m2", Bytes: 5, Done: 1}
		coming := []Carried{{uidOf("coming"), Model{Name: "coming", CID: c.rootOf("coming").String(), Bytes: 1 << 20}}}
		c.pass(time.Second)
		a.crash()
		p, err := PruneOffline(a, nil, a.table, coming, PruneOptions{})
		if err != nil || !p.Offline {
			t.Errorf("%+v: %v", p, err)
		}
		c.want("went", freed(p), "m2, orphan")
		c.want("stayed", reasons(p), "coming "+eviction.Last+", m "+eviction.Last)
		p, err = PruneOffline(a, nil, nil, nil, PruneOptions{}) // In no mesh any more.
		c.want("went", len(p.Freed), 2)
		if err != nil {
			t.Error(err)
		}
	})
}
