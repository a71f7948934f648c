package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/boxo/blockservice"
	"github.com/ipfs/boxo/exchange/offline"
	"github.com/ipfs/boxo/ipld/merkledag"
	unixfsio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/go-cid"

	"relay/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("CONTENT_TEST_PULL"); dir != "" {
		pullUntilKilled(dir)
		return
	}
	os.Exit(m.Run())
}

// small is a layout in which a few hundred bytes make a deep DAG.
var small = layout{chunk: 16, links: 3}

const roomy = 1 << 50

func testOptions(t testing.TB, space Space) Options {
	return Options{
		Space: space, Dir: filepath.Join(t.TempDir(), "models"), layout: small,
		Stall: 5 * time.Second,
		free:  func(string) (uint64, uint64, error) { return roomy, roomy, nil },
	}
}

func newStore(t testing.TB, opt Options) *Store {
	t.Helper()
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testStore is a store over a database in memory.
func testStore(t testing.TB) (*Store, *memSpace) {
	space := newMemSpace()
	return newStore(t, testOptions(t, space)), space
}

// realStore is a store over badger with the layout that people get.
func realStore(t testing.TB) *Store {
	t.Helper()
	d, err := store.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	opt := testOptions(t, d.Space("content"))
	opt.layout = layout{}
	return newStore(t, opt)
}

// randomBytes are the same for the same seed.
func randomBytes(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	data := make([]byte, n)
	rand.NewChaCha8(key).Read(data)
	return data
}

func writeFile(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newFile(t testing.TB, data []byte) string {
	return writeFile(t, filepath.Join(t.TempDir(), "model.gguf"), data)
}

func mustAdd(t testing.TB, s *Store, path string) Content {
	t.Helper()
	c, err := s.Add(t.Context(), []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readAll reads content through its blocks as any tool of the field would: with
// boxo's own reader of UnixFS DAGs.
func readAll(s *Store, root cid.Cid) ([]byte, error) {
	bs := s.Blocks()
	dag := merkledag.NewDAGService(blockservice.New(bs, offline.Exchange(bs)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	node, err := dag.Get(ctx, root)
	if err != nil {
		return nil, err
	}
	r, err := unixfsio.NewDagReader(ctx, node, dag)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// holds checks that a store has content whole: as blocks and as a file.
func holds(t testing.TB, s *Store, root cid.Cid, want []byte) {
	t.Helper()
	got, err := readAll(s, root)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("as blocks: %d bytes instead of %d, %v", len(got), len(want), err)
	}
	path, err := s.Path(root)
	if err != nil {
		t.Error(err)
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("as a file: %d bytes instead of %d, %v", len(got), len(want), err)
	}
}

// sentence checks what every refusal owes to people.
func sentence(t testing.TB, err error, want error, reason string, mentions ...string) {
	t.Helper()
	var r interface{ Reason() string }
	if !errors.Is(err, want) || !errors.As(err, &r) || r.Reason() != reason {
		t.Errorf("got %v, want %v with reason %q", err, want, reason)
		return
	}
	text := err.Error()
	if strings.Contains(text, "\n") || strings.Contains(text, "%!") {
		t.Errorf("not one plain sentence: %q", text)
	}
	for _, m := range mentions {
		if !strings.Contains(text, m) {
			t.Errorf("%q does not mention %q", text, m)
		}
	}
}

// files lists what is in a folder.
func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func sumOf(block []byte) digest { return sha256.Sum256(block) }

// same compares what was registered, but for when it was last used.
func same(a, b Content) bool {
	a.Used, b.Used = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}
