package scheduler

import (
	"crypto/rand"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"relay/p2p/record"
)

func TestOnlyWhatNewUIDMakesIsAUID(t *testing.T) {
	for range 100 {
		uid, err := newUID()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkUID(uid); err != nil {
			t.Fatal(err)
		}
	}
	bad := []string{"", ".", "..", "../../../../etc/x", "a/b", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaa", "AAAAAAAAAAAAAAAA", "aaaaaaaaaaaaaaa1",
		"aaaaaaaaaaaaaaa.", `..\..\..\..\aaaa`, "aaaaaaaaaaaaaa/a"}
	peer := newCluster(t, 1, rand.Reader).peers[0]
	defer peer.crash()
	kinds := map[string]record.Kind{}
	for _, k := range Kinds(anything, anything) {
		kinds[k.Name] = k
	}
	good := uidOf("m")
	payloads := map[string]any{
		KindModel:     Model{Name: "m", CID: "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", Bytes: 1, Kind: "chat", Context: 1, Slots: 1},
		KindPlacement: Placement{}, KindReplica: Replica{State: StateReady},
	}
	for kind, payload := range payloads {
		data, err := record.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		id := func(uid string) string {
			if kind == KindReplica {
				return pairID(peer.id.String(), uid)
			}
			return uid
		}
		if err := kinds[kind].Check(record.Record{Kind: kind, ID: id(good), Payload: data}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, uid := range bad {
			if err := kinds[kind].Check(record.Record{Kind: kind, ID: id(uid), Payload: data}); !errors.Is(err, errForm) {
				t.Errorf("%s %q: %v", kind, uid, err)
			}
		}
	}
	for _, uid := range bad {
		if _, err := (&LlamaEngine{RunDir: t.TempDir()}).Start(t.Context(), Launch{UID: uid}); !errors.Is(err, errForm) {
			t.Errorf("started as %q: %v", uid, err)
		}
	}
}

// No sizes are taken whose sums cannot be counted.
func TestSizesAreBounded(t *testing.T) {
	good := Model{Name: "m", CID: "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", Bytes: maxModelBytes, Kind: "chat", Context: 1, Slots: 1}
	good.Projector = Root{good.CID, maxModelBytes}
	if err := good.check(anything, anything); err != nil {
		t.Error(err)
	}
	for _, n := range []int64{-1, 0, maxModelBytes + 1, math.MaxInt64} {
		m := good
		m.Bytes = n
		p := good
		p.Projector.Bytes = n
		for _, err := range []error{m.check(anything, anything), p.check(anything, anything)} {
			if !errors.Is(err, errForm) {
				t.Errorf("%d: %v", n, err)
			}
		}
		if err := (Holding{Bytes: n}).check(); n != 0 && !errors.Is(err, errForm) {
			t.Errorf("held: %d: %v", n, err)
		}
	}
}

// What was added to the record of a model says nothing to a release that does not know it,
// and has its form.
func TestNamesInARecord(t *testing.T) {
	good := Model{Name: "m", CID: "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", Bytes: 1, Kind: "chat", Context: 1, Slots: 1}
	plain, err := record.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	var most []string
	for i := range maxAliases {
		most = append(most, strings.Repeat("x", maxModelName-2)+string(rune('a'+i)))
	}
	full := good
	full.Aliases, full.Fallback, full.Can = most, uidOf("other"), &Can{}
	data, err := record.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var older struct {
		Name string `cbor:"1,keyasint"`
	}
	if err := record.Unmarshal(data, &older); err != nil || older.Name != "m" {
		t.Errorf("%+v: %v", older, err)
	}
	for want, data := range map[*Model][]byte{&good: plain, &full: data} {
		got, err := decode[Model](record.Record{Payload: data})
		if err != nil || !reflect.DeepEqual(got, *want) || got.check(anything, anything) != nil {
			t.Errorf("%+v: %v, %v", got, err, got.check(anything, anything))
		}
	}
	if !good.servedAs(full) || servedKey(good) != servedKey(full) {
		t.Error("a model with other names is served otherwise")
	}
	for name, change := range map[string]func(*Model){
		"too many":    func(m *Model) { m.Aliases = append(slices.Clone(most), "one-more") },
		"no name":     func(m *Model) { m.Aliases = []string{""} },
		"twice":       func(m *Model) { m.Aliases = []string{"a", "b", "a"} },
		"a path":      func(m *Model) { m.Aliases = []string{"../a"} },
		"no fallback": func(m *Model) { m.Fallback = "m" },
	} {
		m := good
		change(&m)
		if m.check(anything, anything) == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func TestBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
		text := strings.Repeat(string(raw), rapid.IntRange(1, 3).Draw(t, "times")) + rapid.String().Draw(t, "text")
		limit := rapid.IntRange(8, 64).Draw(t, "limit")
		got := bounded(text, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%q, %d bytes of %d", got, len(got), limit)
		}
		if utf8.ValidString(text) && len(text) <= limit && got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// What an engine or a file system has to say may be anything; it must not keep
// a peer from starting, nor its state from being told.
func TestAnErrorThatFitsNoRecord(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		a.crash()
		a.without = "it said \xff\xfe" + strings.Repeat("é", 2000)
		a.open()
		a.start()
		c.pass(5 * time.Second)
		for _, p := range b.s.Peers() {
			if p.Name == "a" && (!strings.HasPrefix(p.NoEngine, "it said ") || p.State != "alive") {
				t.Errorf("a is %s: %q", p.State, p.NoEngine)
			}
		}
		b.engine.failWith(Errorf(EngineFailed, "%s", "\xff"+strings.Repeat("é", 2000)))
		c.addModel("m", 1<<30, b)
		c.pass(loadTime + 500*time.Millisecond)
		m, err := a.s.Model("m")
		if err != nil || !strings.HasPrefix(m.Placed, `model "m": runs nowhere: b: `) {
			t.Errorf("%s: %v", m.Placed, err)
		}
		said := b.s.Decisions() // It leads, and so has seen it.
		if !slices.ContainsFunc(said, func(d Decision) bool { return strings.HasPrefix(d.Text, `model "m" on b: `) }) {
			t.Errorf("%+v", said)
		}
	})
}

// What is lent of each device, by what its owner keeps and allows.
func TestLend(t *testing.T) {
	ram := func(free uint64) Device { return Device{ID: "RAM", Kind: "ram", Total: 200, Free: free, Known: true} }
	gpu := Device{ID: "CUDA0", Kind: "gpu", Total: 80, Free: 30, Known: true, Foreign: 20, ForeignKnown: true, own: 25}
	unseen := gpu // What others hold of it is not known.
	unseen.ForeignKnown = false
	unknown, unified, unusable := gpu, gpu, gpu
	unknown.Known, unified.Unified, unusable.Unusable = false, true, "no build"
	ours := owned{private: 50}
	for name, test := range map[string]struct {
		lend    Lend
		devices []Device
		own     owned
		want    []uint64
	}{
		"all of it":                {Lend{}, []Device{ram(100)}, owned{}, []uint64{100}},
		"less a reserve":           {Lend{Reserve: 30}, []Device{ram(100)}, owned{}, []uint64{70}},
		"what runs counts as lent": {Lend{Reserve: 30}, []Device{ram(100)}, ours, []uint64{120}},
		"less than the reserve":    {Lend{Reserve: 300}, []Device{ram(100)}, ours, []uint64{0}},
		"no more than allowed":     {Lend{Bytes: 40}, []Device{ram(100)}, owned{}, []uint64{40}},
		"no more than there is":    {Lend{Bytes: 4000, Reserve: 30}, []Device{ram(100)}, owned{}, []uint64{70}},
		"a GPU, less what others":  {Lend{VRAMReserve: 5}, []Device{gpu, ram(100)}, ours, []uint64{50, 150}},
		"others that are not seen": {Lend{VRAMReserve: 5}, []Device{unseen, ram(100)}, ours, []uint64{50, 150}},
		"given back since then":    {Lend{VRAMReserve: 5}, []Device{gpu, ram(100)}, owned{}, []uint64{50, 100}},
		"allowed of each":          {Lend{Bytes: 25}, []Device{gpu, ram(100)}, owned{}, []uint64{25, 25}},
		"unknown is not lent":      {Lend{}, []Device{unknown, unusable, ram(100)}, owned{}, []uint64{0, 0, 100}},
		"the host's, most of it":   {Lend{}, []Device{unified, ram(80)}, owned{}, []uint64{70, 80}},
	} {
		test.lend.share(test.devices, test.own)
		var got []uint64
		for _, d := range test.devices {
			got = append(got, d.Lent)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	if got := (Lend{None: true}).Of([]Device{ram(100)}); got[0].Lent != 0 {
		t.Errorf("nothing is to be lent: %d", got[0].Lent)
	}
}

// TestTold: another peer's sentence does nothing to a terminal.
func TestTold(t *testing.T) {
	if got := told("\x1b]0;owned\x07no\r\n\u009b" + strings.Repeat("ä", maxSentence)); !strings.HasPrefix(got, "]0;ownednoä") || len(got) > maxSentence {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}
