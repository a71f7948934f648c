package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	unixfsio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"pgregory.net/rapid"
)

// sink takes boxo's nodes and keeps the inner ones.
type sink struct {
	ipld.DAGService
	nodes map[string][]byte
}

func (s sink) Add(_ context.Context, n ipld.Node) error {
	if n.Cid().Type() == cid.DagProtobuf {
		s.nodes[n.Cid().KeyString()] = n.RawData()
	}
	return nil
}

// boxoImport is the importer that other tools of the field use.
func boxoImport(t interface{ Fatal(...any) }, r io.Reader, l layout) (cid.Cid, map[string][]byte) {
	into := sink{nodes: map[string][]byte{}}
	params := helpers.DagBuilderParams{
		Maxlinks: l.links, RawLeaves: true, Dagserv: into,
		CidBuilder: unixfsio.UnixFS_v1_2025.CidBuilder(),
	}
	builder, err := params.New(chunk.NewSizeSplitter(r, l.chunk))
	if err != nil {
		t.Fatal(err)
	}
	root, err := balanced.Layout(builder)
	if err != nil {
		t.Fatal(err)
	}
	return root.Cid(), into.nodes
}

// ourImport is Add's, down to the inner nodes.
func ourImport(t interface{ Fatal(...any) }, r io.ReaderAt, bytes int64, l layout) (cid.Cid, map[string][]byte) {
	leaves, err := l.hashLeaves(context.Background(), r, bytes, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string][]byte{}
	root, err := l.buildTree(bytes, leaves, func(d digest, block []byte) error {
		nodes[makeCID(d, false).KeyString()] = block
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return root.cid(), nodes
}

func sameNodes(a, b map[string][]byte) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d inner nodes, boxo has %d", len(a), len(b))
	}
	for k, block := range a {
		if !bytes.Equal(b[k], block) {
			return fmt.Errorf("a node of %d bytes is none of boxo's", len(block))
		}
	}
	return nil
}

func TestProfileIsTheFieldsOwn(t *testing.T) {
	p := unixfsio.UnixFS_v1_2025
	if p.ChunkSize != chunkSize || p.FileDAGWidth != linkCount || !p.RawLeaves || p.CIDVersion != 1 || p.PBNodeFieldOrder != merkledag.PBNodeLinksFirst {
		t.Errorf("boxo's profile is another one: %+v", p)
	}
}

func TestImportIsBoxos(t *testing.T) {
	standard := layout{chunk: chunkSize, links: linkCount}
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 7} {
		data := randomBytes(uint64(size), size)
		want, wantNodes := boxoImport(t, bytes.NewReader(data), standard)
		got, gotNodes := ourImport(t, bytes.NewReader(data), int64(size), standard)
		if got != want {
			t.Errorf("%d bytes: %s, boxo says %s", size, got, want)
		}
		if err := sameNodes(gotNodes, wantNodes); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestImportIsBoxosAbove1GiB crosses the first full node of the real layout,
// where the DAG gets its second level.
func TestImportIsBoxosAbove1GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("hashes 2 GiB; run without -short")
	}
	standard := layout{chunk: chunkSize, links: linkCount}
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = linkCount*chunkSize + 1
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 5*chunkSize + 17, size - 1} {
		if _, err := f.WriteAt([]byte("x"), at); err != nil {
			t.Fatal(err)
		}
	}
	want, wantNodes := boxoImport(t, f, standard)
	got, gotNodes := ourImport(t, f, size, standard)
	if got != want {
		t.Errorf("%s, boxo says %s", got, want)
	}
	if len(gotNodes) != 3 {
		t.Errorf("%d inner nodes, want a root over a full one and one of a single leaf", len(gotNodes))
	}
	if err := sameNodes(gotNodes, wantNodes); err != nil {
		t.Error(err)
	}
}

func TestImportIsBoxosInAnyLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layout{chunk: int64(rapid.IntRange(1, 9).Draw(t, "chunk")), links: rapid.IntRange(2, 5).Draw(t, "links")}
		// Sizes at and around where a level is full are the interesting ones.
		full := l.span(rapid.IntRange(0, 4).Draw(t, "level"))
		size := full*int64(rapid.IntRange(0, 3).Draw(t, "times")) + int64(rapid.IntRange(-2, 2).Draw(t, "off"))
		size = min(max(size, 0), 3000)
		data := randomBytes(uint64(rapid.IntRange(0, 3).Draw(t, "seed")), int(size))
		want, wantNodes := boxoImport(t, bytes.NewReader(data), l)
		got, gotNodes := ourImport(t, bytes.NewReader(data), size, l)
		if got != want {
			t.Fatalf("%d bytes in %+v: %s, boxo says %s", size, l, got, want)
		}
		if err := sameNodes(gotNodes, wantNodes); err != nil {
			t.Fatal(err)
		}
		// What was built must be what is expected of it, node by node.
		s := &Store{layout: l}
		p, err := s.newPlan(got, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.walk(context.Background(), fromMap(gotNodes)); err != nil {
			t.Fatal(err)
		}
		for i, d := range p.leaves {
			at := int64(i) * l.chunk
			if sha256.Sum256(data[at:at+l.leafSize(size, i)]) != d {
				t.Fatalf("leaf %d of %d is another", i, len(p.leaves))
			}
		}
	})
}

func fromMap(nodes map[string][]byte) func(context.Context, []nodeAt, func(digest, []byte) error) error {
	return func(_ context.Context, level []nodeAt, found func(digest, []byte) error) error {
		for _, at := range level {
			block, ok := nodes[at.cid().KeyString()]
			if !ok {
				return errIncomplete
			}
			if err := found(at.digest, block); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestBounds(t *testing.T) {
	standard := layout{chunk: chunkSize, links: linkCount}
	if d := standard.depth(MaxBytes); d > 4 {
		t.Errorf("the largest content is %d deep", d)
	}
	links := make([]link, linkCount)
	for i := range links {
		links[i] = link{leaf: true, size: MaxBytes / linkCount, total: MaxBytes * 2}
	}
	if n := len(encodeNode(links)); n > maxNode {
		t.Errorf("the largest node has %d bytes", n)
	}
	s := &Store{layout: standard}
	leaf, node := makeCID(digest{1}, true), makeCID(digest{1}, false)
	for _, bad := range []struct {
		root  cid.Cid
		bytes int64
	}{
		{node, MaxBytes + 1}, {node, 1<<63 - 1}, {node, -5}, {node, 1}, {node, chunkSize},
		{leaf, chunkSize + 1}, {leaf, 0}, {node, 0}, {cid.Undef, 1},
		{cid.NewCidV0(node.Hash()), chunkSize + 1}, {cid.NewCidV1(cid.DagCBOR, node.Hash()), chunkSize + 1},
	} {
		if _, err := s.newPlan(bad.root, bad.bytes); err == nil {
			t.Errorf("%v with %d bytes was taken", bad.root, bad.bytes)
		}
	}
}
