package scheduler

import (
	"strings"
	"testing"
	"time"

	"relay/scheduler/ways"
)

// A model that is to make vectors of texts is told how where its file does not say.
func TestPoolingIsAdded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a, dir := c.peers[0], t.TempDir()
		add := func(name, content, kind string, args ...string) Outcome {
			t.Helper()
			out, err := a.s.Add(t.Context(), AddOptions{Name: name, Paths: []string{written(t, dir, name, content)}, Kind: kind, Args: args}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		for _, again := range []bool{false, true} { // The same once more is the same.
			out := add("bare", "chat llama", "embed", "--temp", "0")
			c.want("arguments", out.Args, []string{"--temp", "0", "--pooling", "mean"})
			if warned := len(out.Warnings) == 1 && strings.Contains(out.Warnings[0], "--pooling mean"); warned == again {
				t.Errorf("warned: %q", out.Warnings)
			}
		}
		for name, args := range map[string][]string{"said": {"--pooling=last"}, "said-so": {"--pooling", "cls"}} {
			out := add(name, "chat llama "+name, "embed", args...)
			c.want(name, out.Args, args)
			c.want(name+", warnings", out.Warnings, []string(nil))
		}
		c.want("its file says it", len(add("file", "embed bert", "").Args), 0)
		c.want("it chats", len(add("chat", "chat mistral", "").Args), 0)
	})
}

// What a model can is read from its files, and filled in where a model that nobody had
// looked at is added again.
func TestWhatAModelCan(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b, dir := c.peers[0], c.peers[1], t.TempDir()
		read := a.s.ReadHeader
		a.s.ReadHeader = func(path string) (Header, error) {
			h, err := read(path)
			h.Can = Can{Tools: h.Kind == "chat", Images: h.Projector, Audio: h.Projector}
			return h, err
		}
		file, clip, embed := written(t, dir, "m.gguf", "chat llama"), written(t, dir, "clip.gguf", "part clip"), written(t, dir, "e.gguf", "embed bert")
		add := func(name, path, projector string) ModelState {
			t.Helper()
			out, err := a.s.Add(t.Context(), AddOptions{Name: name, Paths: []string{path}, Projector: projector}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.pass(time.Second)
			return out.ModelState
		}
		served := func(name string) [3]bool {
			t.Helper()
			m, ok := b.s.Resolve(name)
			if !ok {
				t.Fatal(name)
			}
			return [3]bool{m.Tools, m.Images, m.Unknown}
		}
		c.want("can", *add("m", file, "").Can, Can{Tools: true})
		c.want("m", served("m"), [3]bool{true, false, false})
		sees := add("sees", file, clip)
		c.want("can", *sees.Can, Can{Tools: true, Images: true, Audio: true})
		c.want("sees", served("sees"), [3]bool{true, true, false})
		add("embeds", embed, "")
		c.want("embeds", served("embeds"), [3]bool{false, false, false})

		c.pass(20 * time.Second)
		starts := a.engine.starts() + b.engine.starts()
		r, _ := a.table.Get(KindModel, sees.UID)
		m, err := decode[Model](r.Record)
		if err != nil {
			t.Fatal(err)
		}
		m.Can = nil
		if err := a.PutShared(KindModel, sees.UID, m); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		c.want("sees", served("sees"), [3]bool{false, false, true})
		if out := add("sees", file, ""); out.Can != nil { // Its projector was not looked at.
			t.Errorf("%+v", out.Can)
		}
		c.want("can", *add("sees", file, clip).Can, Can{Tools: true, Images: true, Audio: true})
		c.pass(20 * time.Second)
		c.want("starts", a.engine.starts()+b.engine.starts(), starts)
	})
}

// A model that certainly cannot answer is not listed, and is found all the same.
func TestOnlyWhatCanBeServedIsListed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a, holder := c.peers[0], c.peers[2]
		c.addModel("runs", 1<<30, a)
		c.addModel("away", 1<<30, holder)
		c.addModel("huge", 1<<40, a)
		c.addModel("nowhere", 1<<30)
		c.pass(20 * time.Second)
		listed := func() (names []string) {
			for _, m := range a.s.Models() {
				names = append(names, m.Name)
			}
			return names
		}
		c.want("listed", listed(), []string{"away", "runs"})
		holder.crash()
		c.pass(time.Minute)
		c.want("listed", listed(), []string{"runs"})
		for _, name := range []string{"away", "huge", "nowhere", "runs"} {
			if m, ok := a.s.Resolve(name); !ok || m.Name != name {
				t.Errorf("%s is not found", name)
			}
		}
		if _, err := a.s.Route(t.Context(), Want{UID: "huge"}); ReasonOf(err) != NoCapacity || !strings.Contains(err.Error(), "huge") {
			t.Errorf("%v", err)
		}
	})
}

// What a route says of the way to its replica, and of what computes there, fits in a
// header.
func TestRoutesSayWhere(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.addModel("m", 1<<30, a)
		c.pass(20 * time.Second)
		for p, want := range map[*fakePeer]string{a: "local", b: "direct"} {
			route, err := p.s.Route(t.Context(), Want{UID: "m"})
			if err != nil {
				t.Fatal(err)
			}
			route.Done(nil)
			c.want(p.name, []any{route.Path, route.Peer, route.Hardware}, []any{want, a.id.String(), "CPU"})
		}
	})
	v := &view{peer: map[string]*peerView{}, model: map[string]*modelView{}, placements: map[string]placementView{}}
	for _, name := range []string{"attic", "den", "shed"} {
		p := &peerView{id: name}
		p.Name = name
		p.advert.Devices = []Device{{ID: "CUDA0", Name: "NVIDIA GeForce RTX 3090"}, {ID: "CUDA1", Name: "a “card”\r\nX-Evil: 1"}, {ID: ways.HostID, Name: "a processor"}}
		v.peer[name] = p
	}
	m := &modelView{uid: "m"}
	v.model["m"] = m
	v.placements["m"] = placementView{Placement: Placement{Peers: []string{"attic"}, Ways: []ways.Way{{Kind: ways.Shards, Group: &ways.Group{ID: "g", Shares: []ways.Share{{Peer: "den"}, {Peer: "shed"}}}}}}}
	parts := func(ids ...string) (list []ways.Part) {
		for _, id := range ids {
			list = append(list, ways.Part{Device: id})
		}
		return list
	}
	for want, r := range map[string]Replica{
		"CPU":                          {Device: "CPU", Parts: parts(ways.HostID)},
		"GPU: NVIDIA GeForce RTX 3090": {Device: "GPU", Parts: parts("CUDA0", ways.HostID)},
		"NVIDIA GeForce RTX 3090, a ?card???X-Evil: 1": {Parts: parts("CUDA0", "CUDA1")},
		"":                         {},
		"shards: attic, den, shed": {Device: "GPU", Group: "g"},
		"shards: attic":            {Device: "GPU", Group: "another"},
		strings.Repeat("?", 100):   {Device: strings.Repeat("\x00", 120)},
		"GPU (20 of 29 layers)":    {Device: " GPU (20 of 29 layers) ", Parts: parts("CUDA7")},
	} {
		if got := v.hardware(m, replicaView{Replica: r, peer: "attic"}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
