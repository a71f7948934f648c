package scheduler

import (
	"strings"
	"testing"
	"time"

	"relay/store/content"
)

// The last copy that can be reached is not deleted unasked, nor a file that
// another model needs.
func TestRemoveKeepsWhatIsNeeded(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		order := c.ofContent("m")
		a, b := order[0], order[1] // Of two copies the one of a may go.
		c.addModel("m", 1<<30, a, b)
		c.pass(10 * time.Second)
		b.crash()
		c.pass(10 * time.Second)
		if _, err := a.s.Remove(t.Context(), "m", true, false); ReasonOf(err) != NotAllowed || !strings.Contains(err.Error(), "--last-copy") {
			t.Errorf("%v", err)
		}
		if _, err := a.s.Model("m"); err != nil || len(a.List()) != 1 {
			t.Errorf("%d files: %v", len(a.List()), err)
		}

		same, _ := a.s.Model("m")
		twin := Model{Name: "twin", CID: same.CID, Bytes: 1 << 20, Kind: "chat", Context: 8, Slots: 1, Need: 1}
		if err := a.PutShared(KindModel, uidOf("twin"), twin); err != nil {
			t.Fatal(err)
		}
		removed, err := a.s.Remove(t.Context(), "m", true, false)
		if err != nil || !strings.Contains(removed.FileKept, `"twin"`) || len(a.List()) != 1 {
			t.Errorf("%q, %d files: %v", removed.FileKept, len(a.List()), err)
		}

		b.open()
		b.start()
		c.pass(5 * time.Second)
		removed, err = a.s.Remove(t.Context(), "twin", true, false)
		if err != nil || removed.FileKept != "" || len(a.List()) > 0 {
			t.Errorf("%q, %d files: %v", removed.FileKept, len(a.List()), err)
		}
		c.pass(time.Second)
		c.want("b has it", len(b.List()), 1)
	})
}

// Records are not enough for a whole copy to be deleted, and of all copies the one
// that stays for prune stays here too; so that however many admins delete at once,
// one is left. Who says so deletes the last one.
func TestRemoveWantsAnotherCopyConfirmed(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		order := c.ofContent("m")
		a, b := order[0], order[1]
		c.hold("m", a, b)
		c.peers[0].register("m", 100<<30)
		c.pass(time.Second)
		if _, err := b.s.Remove(t.Context(), "m", true, false); ReasonOf(err) != NotAllowed || !strings.Contains(err.Error(), "this is the one that stays (there is one on "+a.name) {
			t.Errorf("the one that stays: %v", err)
		}
		if _, err := b.Remove(c.rootOf("m"), true); err != nil { // Its record says otherwise still.
			t.Fatal(err)
		}
		if _, err := a.s.Remove(t.Context(), "m", true, false); ReasonOf(err) != NotAllowed || !strings.Contains(err.Error(), "could not be confirmed by "+b.name) {
			t.Errorf("a copy that is there by its record only: %v", err)
		}
		if _, err := a.s.Model("m"); err != nil || len(a.List()) != 1 {
			t.Errorf("%d files: %v", len(a.List()), err)
		}
		if _, err := a.s.Remove(t.Context(), "m", true, true); err != nil || len(a.List()) != 0 {
			t.Errorf("%d files: %v", len(a.List()), err)
		}
	})
}

// What was registered in place for a model is nobody's when the model is gone: it
// counts no more, and is not offered.
func TestRemoveForgetsWhatItsOwnerRegistered(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, dir := c.peers[0], t.TempDir()
		path, clip := written(t, dir, "m.gguf", "chat llama"), written(t, dir, "clip.gguf", "part clip")
		for _, o := range []AddOptions{{Name: "m", Paths: []string{path}, Projector: clip}, {Name: "n", Paths: []string{written(t, dir, "n.gguf", "chat llama")}, Projector: clip}} {
			if _, err := a.s.Add(t.Context(), o, nil); err != nil {
				t.Fatal(err)
			}
		}
		removed, err := a.s.Remove(t.Context(), "m", true, false)
		if err != nil || !strings.Contains(removed.FileKept, "registered where it lies") {
			t.Errorf("%+v: %v", removed, err)
		}
		c.want("registered: n and the projector", len(a.List()), 2)
		if _, err := a.Get(c.rootOf(clip)); err != nil {
			t.Errorf("what n needs too: %v", err)
		}
		if _, err := a.s.Remove(t.Context(), "n", false, false); err != nil {
			t.Error(err)
		}
		c.want("registered", len(a.List()), 0)
		c.want("counted", a.s.DiskUse().Models.Used, 0)
		c.pass(time.Second)
		c.want("offered", len(c.peers[1].table.List(KindHolding)), 0)
	})
}

func TestAddTakesFilesOnly(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		_, err := c.peers[0].s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{t.TempDir()}}, nil)
		if ReasonOf(err) != FileInvalid {
			t.Errorf("a folder: %v", err)
		}
	})
}

// The last copies of a peer are those that it pulled and that nobody else who is
// up has: not its owner's own files.
func TestLastCopies(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.addModel("shared", 1<<30, a, b)
		c.addModel("pulled", 1<<30, a)
		c.addModel("owned", 1<<30, a)
		own := content.Content{CID: c.rootOf("owned"), Bytes: 1 << 20, Path: "/mine", InPlace: true, Complete: true}
		a.put(own)
		if err := a.s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		c.want("of a", c.peers[2].s.LastCopies(a.id.String()), []string{"pulled"})
		c.want("of b", c.peers[2].s.LastCopies(b.id.String()), []string{})
		b.crash()
		c.pass(10 * time.Second)
		c.want("of a, b away", c.peers[2].s.LastCopies(a.id.String()), []string{"pulled", "shared"})
		c.want("of b, away", c.peers[2].s.LastCopies(b.id.String()), []string{})
	})
}
