package scheduler

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/store/content"
)

// written writes a file with a header in words; see readFake.
func written(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What makes no model is refused in a sentence, and leaves nothing registered.
func TestWhatCannotBeAdded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a, dir := c.peers[0], t.TempDir()
		parts := " p-1.gguf p-2.gguf"
		first, second := written(t, dir, "p-1.gguf", "chat llama"+parts), written(t, dir, "p-2.gguf", "chat llama"+parts)
		alone := written(t, dir, "alone.gguf", "chat llama")
		lacking := written(t, dir, "q-1.gguf", "chat llama q-1.gguf q-2.gguf")
		clip, part := written(t, dir, "clip.gguf", "part clip"), written(t, dir, "vocabulary.gguf", "part llama")
		embed := written(t, dir, "embed.gguf", "embed bert")
		for _, x := range []struct {
			o    AddOptions
			why  Reason
			want string
		}{
			{AddOptions{}, InvalidRequest, "where the file"},
			{AddOptions{Paths: []string{filepath.Join(dir, "none.gguf")}}, Internal, "none.gguf"},
			{AddOptions{Paths: []string{dir}}, FileInvalid, "not a file that a model could be in"},
			{AddOptions{Paths: []string{alone}, Projector: dir}, FileInvalid, "not a file that a model could be in"},
			{AddOptions{Paths: []string{first, alone}}, FileInvalid, "alone.gguf is not one of the 2 parts that"},
			{AddOptions{Paths: []string{alone, first}}, FileInvalid, "alone.gguf is a whole model by itself"},
			{AddOptions{Paths: []string{first, second, first}}, InvalidRequest, "named twice"},
			{AddOptions{Paths: []string{lacking}}, NotFound, "q-2.gguf is missing"},
			{AddOptions{Paths: []string{clip}}, FileInvalid, "clip.gguf is a projector: name it with --mmproj"},
			{AddOptions{Paths: []string{clip}, Kind: "chat"}, FileInvalid, "clip.gguf is a projector"},
			{AddOptions{Paths: []string{part}}, FileInvalid, "vocabulary.gguf is no model by itself"},
			{AddOptions{Paths: []string{alone}, Projector: alone}, FileInvalid, "alone.gguf is no projector"},
			{AddOptions{Paths: []string{alone}, Projector: part}, FileInvalid, "vocabulary.gguf is no projector"},
			{AddOptions{Paths: []string{alone}, Projector: first}, FileInvalid, "p-1.gguf is no projector"},
			{AddOptions{Paths: []string{embed}, Projector: clip}, InvalidRequest, "a projector is for a model that chats"},
		} {
			x.o.Name = "m"
			_, err := a.s.Add(t.Context(), x.o, nil)
			if err == nil || ReasonOf(err) != x.why || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v: %s: %v", x.o, ReasonOf(err), err)
			}
		}
		c.want("registered", len(a.List()), 0)
	})
}

// A set and a projector are two contents of one model: who serves it needs both,
// and finds all files.
func TestModelsOfSeveralFiles(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b, dir := c.peers[0], c.peers[1], t.TempDir()
		first := written(t, dir, "p-1.gguf", "chat llama p-1.gguf p-2.gguf")
		second := written(t, dir, "p-2.gguf", "chat llama p-1.gguf p-2.gguf")
		clip := written(t, dir, "clip.gguf", "part clip")
		var told []content.Progress
		added, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{second}, Projector: clip}, func(p content.Progress) { told = append(told, p) })
		if err != nil {
			t.Fatal(err)
		}
		whole := int64(len("chat llama p-1.gguf p-2.gguf")*2 + len("part clip"))
		c.want("bytes in all", added.Size(), whole)
		c.want("cid", added.CID, c.rootOf(first+"|"+second))
		c.want("projector", added.Projector.CID, c.rootOf(clip))
		c.want("done in the end", told[len(told)-1].Done, whole)
		c.want("total from the beginning", told[0].Total, whole)
		c.pass(10 * time.Second)
		c.want("ready", a.ready("m"), []string{"a"})
		c.want("launched", a.engine.last, Launch{UID: added.UID, Model: a.engine.last.Model, Way: a.engine.last.Way, Threads: 2, Started: a.engine.last.Started, Path: first, Files: []string{second}, Projector: clip})

		// Half of it is not the model.
		set := content.Content{CID: c.rootOf(first + "|" + second), Bytes: added.Bytes, Path: "/pulled/p-1.gguf", Complete: true}
		b.put(set)
		if err := b.s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		m, _ := b.s.Model("m")
		c.want("holders", m.Holders, []string{a.id.String()})
		c.want("partly", m.Partly, []string{b.id.String()})
		c.want("brought along", len(CarriedFrom(b.table)), 0)
		c.want("brought along by who has all", len(CarriedFrom(a.table)), 1)
		clipHere := set
		clipHere.CID, clipHere.Path, clipHere.Bytes = c.rootOf(clip), "/pulled/clip.gguf", 9
		b.put(clipHere)
		if err := b.s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		m, _ = a.s.Model("m")
		c.want("holders", len(m.Holders), 2)
		c.want("partly", len(m.Partly), 0)

		// The projector alone is a last copy where nobody else has it.
		a.put(content.Content{CID: c.rootOf(clip), Path: clip, InPlace: true})
		if err := a.s.publishHoldings(); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		c.want("last copies of b", a.s.LastCopies(b.id.String()), []string{"m"})
		if _, err := b.s.Remove(t.Context(), "m", true, false); ReasonOf(err) != NotAllowed {
			t.Errorf("the last copy of a projector: %v", err)
		}

		// Added again, where nothing but that file was missing; another does not do.
		if _, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{first}, Projector: written(t, dir, "other.gguf", "part clip and more")}, nil); ReasonOf(err) != NameTaken {
			t.Errorf("another projector: %v", err)
		}
		again, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{first}, Projector: clip}, nil)
		if err != nil || again.UID != added.UID || len(again.Holders) != 2 {
			t.Errorf("%+v: %v", again, err)
		}
		removed, err := b.s.Remove(t.Context(), "m", true, true)
		if err != nil || len(b.List()) > 0 {
			t.Errorf("%d files left: %v", len(b.List()), err)
		}
		c.want("kept", removed.FileKept, "")
		c.pass(time.Second)
		c.want("a has it", len(a.List()), 2)
	})
}

// A name that is taken is no obstacle to the very files of that model, also on a
// second machine; it is to other ones, and to being served otherwise.
func TestAddAgain(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b, dir := c.peers[0], c.peers[1], t.TempDir()
		path, other := written(t, dir, "m.gguf", "chat llama"), written(t, dir, "n.gguf", "chat llama")
		clip := written(t, dir, "clip.gguf", "part clip")
		added, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{path}, Projector: clip}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		for _, o := range []AddOptions{{Paths: []string{other}}, {Paths: []string{path}, Projector: path}, {Paths: []string{path}, Slots: 7}, {Paths: []string{path}, Kind: "embed"}} {
			o.Name = "m"
			if _, err := b.s.Add(t.Context(), o, nil); ReasonOf(err) != NameTaken {
				t.Errorf("%v: %v", o, err)
			}
		}
		c.want("registered", len(b.List()), 0)
		again, err := b.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{path}, Projector: clip, Slots: added.Slots}, nil)
		if err != nil || again.UID != added.UID || len(again.Holders) != 2 || len(b.s.ModelStates()) != 1 {
			t.Errorf("%+v: %v", again, err)
		}

		// Lost a moment ago; with other files of that size first, and in two steps.
		a.put(content.Content{CID: c.rootOf(path), Path: path, InPlace: true})
		a.put(content.Content{CID: c.rootOf(clip), Path: clip, InPlace: true})
		if _, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{other}}, nil); ReasonOf(err) != NameTaken || !strings.Contains(err.Error(), "which is lost here") {
			t.Errorf("another file: %v", err)
		}
		if _, err := a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{path}}, nil); ReasonOf(err) != FileChanged || !strings.Contains(err.Error(), "--mmproj") {
			t.Errorf("without its projector: %v", err)
		}
		again, err = a.s.Add(t.Context(), AddOptions{Name: "m", Paths: []string{path}, Projector: clip}, nil)
		if err != nil || again.UID != added.UID || len(again.Holders) != 2 {
			t.Errorf("%+v: %v", again, err)
		}
		c.want("registered", len(a.List()), 2)
	})
}

// Of several who add under one name at once one is right, and whoever is not takes
// back nothing that the others have registered.
func TestAddsAtOnce(t *testing.T) {
	for range 10 {
		bubble(t, 1, func(t *testing.T, c *cluster) {
			a, dir := c.peers[0], t.TempDir()
			one, other := written(t, dir, "one.gguf", "chat llama"), written(t, dir, "other.gguf", "chat llama2")
			a.hashing = make(chan struct{})
			var all sync.WaitGroup
			var mu sync.Mutex
			var done []Outcome
			for _, o := range []AddOptions{{Paths: []string{one}, Context: 5}, {Paths: []string{one}, Context: 6}, {Paths: []string{other}, Slots: 4}, {Paths: []string{other}, Slots: 3}} {
				o.Name = "m"
				all.Go(func() {
					out, err := a.s.Add(t.Context(), o, nil)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						done = append(done, out)
					} else if ReasonOf(err) != NameTaken {
						t.Errorf("%v", err)
					}
				})
			}
			c.pass(time.Second)
			close(a.hashing)
			all.Wait()
			if len(done) != 1 || len(a.s.ModelStates()) != 1 {
				t.Fatalf("%d were told that it is added; there are %d models", len(done), len(a.s.ModelStates()))
			}
			if list := a.List(); len(list) != 1 || list[0].CID.String() != done[0].CID {
				t.Errorf("registered: %v, added: %s", list, done[0].CID)
			}
		})
	}
}

// A pin says nothing of how a model is served.
func TestPinnedModels(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		starts := a.engine.starts()
		yes, no := true, false
		m, changed, err := a.s.Set("m", SetOptions{Pinned: &yes})
		if err != nil || !m.Pinned || len(changed) != 1 {
			t.Errorf("%+v %v: %v", m, changed, err)
		}
		_, changed, err = a.s.Set("m", SetOptions{Pinned: &yes})
		if err != nil || len(changed) != 0 {
			t.Errorf("%v: %v", changed, err)
		}
		c.pass(10 * time.Second)
		m, _ = c.peers[1].s.Model("m")
		c.want("pinned for others", m.Pinned, true)
		c.want("ready", a.ready("m"), []string{"a"})
		c.want("starts", a.engine.starts(), starts)
		if _, _, err := a.s.Set("nosuch", SetOptions{Pinned: &no}); ReasonOf(err) != ModelNotFound {
			t.Errorf("%v", err)
		}
		if _, _, err := a.s.Set("m", SetOptions{}); ReasonOf(err) != InvalidRequest {
			t.Errorf("%v", err)
		}
		twin := Model{Name: "m", CID: c.rootOf("other").String(), Bytes: 1 << 20, Kind: "chat", Context: 8, Slots: 1, Need: 1}
		if err := a.PutShared(KindModel, uidOf("twin"), twin); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.s.Set("m", SetOptions{Pinned: &no}); ReasonOf(err) != NameTaken {
			t.Errorf("one of two of a name: %v", err)
		}
	})
}
