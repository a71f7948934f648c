package content

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"
	"pgregory.net/rapid"

	"relay/store/content/leases"
)

func someLinks(t *rapid.T) []link {
	links := make([]link, rapid.IntRange(1, 6).Draw(t, "links"))
	for i := range links {
		links[i] = link{
			digest: digest(randomBytes(uint64(rapid.IntRange(0, 9).Draw(t, "digest")), 32)),
			leaf:   rapid.Bool().Draw(t, "leaf"),
			size:   rapid.Int64Range(0, 1<<30).Draw(t, "size"),
			total:  rapid.Int64Range(0, 1<<31).Draw(t, "total"),
		}
	}
	return links
}

func TestNodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links := someLinks(t)
		block := encodeNode(links)
		got, err := decodeNode(block, len(links))
		if err != nil {
			t.Fatal(err)
		}
		for i := range links {
			if got[i] != links[i] {
				t.Fatalf("link %d: %+v, was %+v", i, got[i], links[i])
			}
		}
		if _, err := decodeNode(block, len(links)-1); err == nil {
			t.Fatal("one link too many was taken")
		}
		// One changed byte is another node or none, never the same.
		at := rapid.IntRange(0, len(block)-1).Draw(t, "at")
		block[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if again, err := decodeNode(block, 1024); err == nil && !bytes.Equal(encodeNode(again), block) {
			t.Fatal("two blocks for one node")
		}
	})
}

func FuzzDecodeNode(f *testing.F) {
	f.Add(encodeNode([]link{{leaf: true, size: 3, total: 3}}))
	f.Add(encodeNode([]link{{digest: digest{7}, size: 1 << 30, total: 1 << 31}, {leaf: true, size: 5, total: 5}}))
	f.Add([]byte{0x0a, 0x04, 0x08, 0x02, 0x18, 0x00})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, block []byte) {
		links, err := decodeNode(block, linkCount)
		if err != nil {
			return
		}
		if !bytes.Equal(encodeNode(links), block) {
			t.Fatal("not the one spelling of it")
		}
		// boxo must read the same out of it.
		node, err := merkledag.DecodeProtobuf(block)
		if err != nil {
			t.Fatalf("boxo does not take it: %v", err)
		}
		fs, err := unixfs.FSNodeFromBytes(node.Data())
		if err != nil || fs.Type() != unixfs.TFile || fs.NumChildren() != len(links) || len(node.Links()) != len(links) {
			t.Fatalf("boxo reads something else: %v", err)
		}
		var sum int64
		for i, l := range links {
			other := node.Links()[i]
			if other.Cid != l.cid() || int64(other.Size) != l.total || other.Name != "" || int64(fs.BlockSize(i)) != l.size {
				t.Fatalf("link %d: boxo reads %v", i, other)
			}
			sum += l.size
		}
		if int64(fs.FileSize()) != sum {
			t.Fatalf("boxo reads a size of %d, not %d", fs.FileSize(), sum)
		}
	})
}

func FuzzParseMaps(f *testing.F) {
	f.Add(marks{done: leases.NewSet(70), tried: []uint32{1, 5, 69}}.encode(70), 70)
	f.Add([]byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 1)
	f.Fuzz(func(t *testing.T, value []byte, leaves int) {
		if leaves < 1 || leaves > 1000 {
			return
		}
		m, err := parseMaps(value, leaves)
		if err != nil {
			return
		}
		if m.done.Count() > leaves {
			t.Fatalf("%d of %d leaves are there", m.done.Count(), leaves)
		}
		for _, i := range m.tried {
			if int(i) >= leaves {
				t.Fatalf("leaf %d of %d was tried", i, leaves)
			}
		}
		again, err := parseMaps(m.encode(leaves), leaves)
		if err != nil || len(again.tried) != len(m.tried) || again.done.Count() != m.done.Count() {
			t.Fatalf("it does not survive: %v", err)
		}
	})
}

func TestParseMapsRefuses(t *testing.T) {
	good := marks{done: leases.NewSet(70), tried: []uint32{3, 69}}.encode(70)
	if _, err := parseMaps(good, 70); err != nil {
		t.Fatal(err)
	}
	beyond := leases.NewSet(128)
	beyond.Add(70)
	for name, bad := range map[string][]byte{
		"nothing":             {},
		"another version":     append([]byte{9}, good[1:]...),
		"cut":                 good[:10],
		"a cut number":        append(bytes.Clone(good), 0x80),
		"tried beyond":        marks{done: leases.NewSet(70), tried: []uint32{70}}.encode(70),
		"tried far beyond":    append(bytes.Clone(good), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"of another file":     marks{done: leases.NewSet(71)}.encode(71),
		"done beyond the end": marks{done: beyond}.encode(70),
	} {
		if _, err := parseMaps(bad, 70); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzParsePlaces(f *testing.F) {
	f.Add(places{length: 16, offsets: []int64{0, 1 << 30}}.encode())
	f.Fuzz(func(t *testing.T, value []byte) {
		p, ok := parsePlaces(value)
		if !ok {
			return
		}
		if p.length < 0 || p.length > chunkSize {
			t.Fatalf("a leaf of %d bytes", p.length)
		}
		for _, o := range p.offsets {
			if o < 0 || o > MaxBytes {
				t.Fatalf("at %d", o)
			}
		}
	})
}

func TestMapsFitOneTransaction(t *testing.T) {
	leaves := MaxBytes / chunkSize
	m := marks{done: leases.NewSet(leaves)}
	for i := range maxTried {
		m.tried = append(m.tried, uint32(i*(leaves/maxTried)))
	}
	value := m.encode(leaves)
	if err := newMemSpace().Apply(batchOf(t, value)); err != nil {
		t.Errorf("the bitmaps of the largest content: %v", err)
	}
	got, err := parseMaps(value, leaves)
	if err != nil || len(got.tried) != maxTried {
		t.Errorf("%d tried leaves, %v", len(got.tried), err)
	}
}

func TestFileNames(t *testing.T) {
	root := makeCID(digest{1}, false)
	tail := root.String()[len(root.String())-10:]
	for name, want := range map[string]string{
		"qwen3-8b":                 "qwen3-8b-" + tail,
		"a/b\\c:d":                 "a-b-c-d-" + tail,
		"../../etc/passwd":         "etc-passwd-" + tail,
		".hidden":                  "hidden-" + tail,
		"":                         "model-" + tail,
		"...":                      "model-" + tail,
		"x.gguf":                   "x-" + tail,
		"Größe\x00\n":              "Gr--e-" + tail,
		"nul":                      "nul-" + tail,
		"name with spaces (final)": "name-with-spaces--final-" + tail,
	} {
		if got := fileName(name, root); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := fileName(rapid.String().Draw(t, "name"), root)
		if len(name) > 91 || name[0] == '.' || name[0] == '-' {
			t.Fatalf("%q", name)
		}
		for _, r := range name {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_') {
				t.Fatalf("%q has %q", name, r)
			}
		}
	})
}

// Who asks for a block by another codec than its own gets nothing: a leaf is no tree.
func TestACodecIsPartOfWhatIsAskedFor(t *testing.T) {
	s := realStore(t)
	data := randomBytes(1, 3*chunkSize)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := s.Add(t.Context(), []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := multihash.Sum(data[chunkSize:2*chunkSize], multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []cid.Cid{cid.NewCidV1(cid.DagProtobuf, sum), cid.NewCidV1(cid.DagCBOR, sum), cid.NewCidV1(cid.Raw, c.CID.Hash())} {
		_, err := s.Blocks().Get(t.Context(), ask)
		has, hasErr := s.Blocks().Has(t.Context(), ask)
		if !ipld.IsNotFound(err) || has || hasErr != nil {
			t.Errorf("%s: %v, has %v, %v", ask, err, has, hasErr)
		}
	}
	for _, ask := range []cid.Cid{cid.NewCidV1(cid.Raw, sum), c.CID} {
		if _, err := s.Blocks().Get(t.Context(), ask); err != nil {
			t.Errorf("%s: %v", ask, err)
		}
	}
}
