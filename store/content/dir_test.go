package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/boxo/ipld/merkledag"
	dagtest "github.com/ipfs/boxo/ipld/merkledag/test"
	"github.com/ipfs/boxo/ipld/unixfs"
	unixfsio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"pgregory.net/rapid"
)

// sized is a node of which only CID and size are known.
type sized struct {
	ipld.Node
	root cid.Cid
	size int64
}

func (n sized) Cid() cid.Cid          { return n.root }
func (n sized) Size() (uint64, error) { return uint64(n.size), nil }

// boxoDir is the directory that other tools of the field make.
func boxoDir(t interface{ Fatal(...any) }, entries []dirEntry) ipld.Node {
	profile := unixfsio.UnixFS_v1_2025
	dir, err := unixfsio.NewDirectory(dagtest.Mock(), unixfsio.WithCidBuilder(profile.CidBuilder()),
		unixfsio.WithSizeEstimationMode(unixfsio.SizeEstimationBlock))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := dir.AddChild(context.Background(), e.Name, sized{root: e.Root, size: e.Total}); err != nil {
			t.Fatal(err)
		}
	}
	node, err := dir.GetNode()
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func someEntries(t *rapid.T) []dirEntry {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z0-9é \-_.]{0,30}[a-z0-9]`), 2, 12, strings.ToLower).Draw(t, "names")
	entries := make([]dirEntry, len(names))
	for i, name := range names {
		leaf := rapid.Bool().Draw(t, "leaf")
		most := int64(1 << 41)
		if leaf {
			most = chunkSize
		}
		entries[i] = dirEntry{
			Name: name, Root: makeCID(digest(randomBytes(uint64(rapid.IntRange(0, 5).Draw(t, "root")), 32)), leaf),
			Total: rapid.Int64Range(0, most).Draw(t, "total"),
		}
	}
	slices.SortFunc(entries, compareEntries)
	return entries
}

func TestDirIsBoxos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := someEntries(t)
		shuffled := rapid.Permutation(entries).Draw(t, "order")
		want := boxoDir(t, shuffled)
		block := encodeDir(entries)
		if !bytes.Equal(block, want.RawData()) || makeCID(sha256.Sum256(block), false) != want.Cid() {
			t.Fatalf("%d entries: %x, boxo says %x", len(entries), block, want.RawData())
		}
		got, err := decodeDir(block)
		if err != nil || !slices.Equal(got, entries) {
			t.Fatalf("%+v became %+v: %v", entries, got, err)
		}
	})
}

// The largest directory that is taken is one that other tools keep in one block.
func TestLargestDirIsBoxos(t *testing.T) {
	entries := make([]dirEntry, maxSet)
	for i := range entries {
		entries[i] = dirEntry{Name: fmt.Sprintf("%0200d", i), Root: makeCID(digest{byte(i)}, false), Total: MaxBytes * 2}
	}
	// Grown until it is full: a byte more in a name is one in the block, as long
	// as no length grows by a digit.
	for i := range entries {
		if left := maxDir - len(encodeDir(entries)); left < maxName-200 {
			entries[i].Name += strings.Repeat("y", left)
			break
		}
		entries[i].Name += strings.Repeat("y", maxName-200)
	}
	block := encodeDir(entries)
	if len(block) != maxDir {
		t.Fatalf("%d bytes", len(block))
	}
	if _, err := decodeDir(block); err != nil {
		t.Error(err)
	}
	if want := boxoDir(t, entries); !bytes.Equal(block, want.RawData()) {
		t.Errorf("boxo makes a block of %d bytes out of %d", len(want.RawData()), len(block))
	}
	entries[maxSet-2].Name += "z"
	if _, err := decodeDir(encodeDir(entries)); err == nil {
		t.Error("a block above the largest was taken")
	}
}

func TestDecodeDirRefuses(t *testing.T) {
	root := makeCID(digest{1}, true)
	dir := func(names ...string) []byte {
		var entries []dirEntry
		for _, name := range names {
			entries = append(entries, dirEntry{Name: name, Root: root, Total: 7})
		}
		return encodeDir(entries)
	}
	if _, err := decodeDir(dir("a", "b")); err != nil {
		t.Fatal(err)
	}
	many := make([]string, maxSet+1)
	for i := range many {
		many[i] = fmt.Sprintf("%05d", i)
	}
	v0, err := cid.Decode("QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn")
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"nothing":            {},
		"no files":           dir(),
		"one file":           dir("a"),
		"too many":           dir(many...),
		"twice one name":     dir("a", "a"),
		"not sorted":         dir("b", "a"),
		"one but for case":   dir("A", "a"),
		"no name":            dir("", "a"),
		"a long name":        dir("a", strings.Repeat("b", maxName+1)),
		"a folder":           dir("a", "b/c"),
		"the folder above":   dir("..", "a"),
		"the folder itself":  dir(".", "a"),
		"a folder above it":  dir("../../etc/passwd", "a"),
		"of Windows":         dir("a", `b\c`),
		"a drive":            dir("a", "c:x"),
		"a NUL":              dir("a", "b\x00"),
		"a line end":         dir("a", "b\nc"),
		"an escape":          dir("a", "b\x1b[2J"),
		"not UTF-8":          dir("a", "b\xff"),
		"a dot at the end":   dir("a", "b."),
		"a blank at the end": dir("a", "b "),
		"cut":                dir("a", "b")[:60],
		"more after it":      append(dir("a", "b"), 0),
		"another CID":        encodeDir([]dirEntry{{Name: "a", Root: v0, Total: 7}, {Name: "b", Root: root, Total: 7}}),
		"a large leaf":       encodeDir([]dirEntry{{Name: "a", Root: root, Total: chunkSize + 1}, {Name: "b", Root: root, Total: 7}}),
		"a large file":       encodeDir([]dirEntry{{Name: "a", Root: makeCID(digest{1}, false), Total: MaxBytes*2 + 1}, {Name: "b", Root: root, Total: 7}}),
		"a file's node":      encodeNode([]link{{leaf: true, size: 3, total: 3}}),
		"with a mode":        append(dir("a", "b")[:len(dir("a", "b"))-4], 0x0a, 5, 0x08, 0x01, 0x38, 0xa4, 0x03),
	} {
		if got, err := decodeDir(bad); err == nil {
			t.Errorf("%s was taken: %+v", name, got)
		}
	}
}

func FuzzDecodeDir(f *testing.F) {
	two := []dirEntry{{Name: "a", Root: makeCID(digest{1}, true), Total: 3}, {Name: "b.gguf", Root: makeCID(digest{2}, false), Total: 1 << 40}}
	f.Add(encodeDir(two))
	f.Add(encodeDir(two[:1]))
	f.Add(encodeNode([]link{{leaf: true, size: 3, total: 3}}))
	f.Fuzz(func(t *testing.T, block []byte) {
		entries, err := decodeDir(block)
		if err != nil {
			return
		}
		if !bytes.Equal(encodeDir(entries), block) {
			t.Fatal("not the one spelling of it")
		}
		// boxo must read the same out of it, and write it again as it is.
		node, err := merkledag.DecodeProtobuf(block)
		if err != nil {
			t.Fatalf("boxo does not take it: %v", err)
		}
		fs, err := unixfs.FSNodeFromBytes(node.Data())
		if err != nil || fs.Type() != unixfs.TDirectory || len(node.Links()) != len(entries) {
			t.Fatalf("boxo reads something else: %v", err)
		}
		for i, e := range entries {
			if l := node.Links()[i]; l.Name != e.Name || l.Cid != e.Root || int64(l.Size) != e.Total {
				t.Fatalf("entry %d: boxo reads %v", i, l)
			}
		}
		if again := boxoDir(t, entries); !bytes.Equal(again.RawData(), block) {
			t.Fatal("boxo writes another block")
		}
	})
}
