package record_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"

	"relay/p2p/record"
)

func TestSealedOpens(t *testing.T) {
	for _, r := range []record.Record{
		{Kind: "note", ID: "a"},
		{Kind: "n-0", ID: "A.b_c~d:e=f+g@h-i/j", Version: record.Version{1, 1 << 63, 3}, Deleted: true, Payload: []byte{0}},
		{Kind: strings.Repeat("k", record.MaxKind), ID: strings.Repeat("i", record.MaxID), Payload: make([]byte, 65000)},
	} {
		s := seal(t, "ann", r)
		got, err := record.Open(s.Raw)
		if err != nil {
			t.Fatalf("%s: %v", r.Key(), err)
		}
		if got.Key() != r.Key() || got.Version != r.Version || got.Deleted != r.Deleted || !bytes.Equal(got.Payload, r.Payload) {
			t.Errorf("sealed %+v, opened %+v", r, got.Record)
		}
		if got.Author != idOf("ann") || s.Author != got.Author {
			t.Errorf("author %s, want %s", got.Author, idOf("ann"))
		}
		if got.Hash != sha256.Sum256(s.Raw) || s.Hash != got.Hash {
			t.Errorf("the hash is not that of the bytes")
		}
	}
}

// The bytes of a record are a promise to other releases.
func TestSealedBytes(t *testing.T) {
	s := seal(t, "ann", record.Record{Kind: "note", ID: "a", Version: record.Version{7, 0, 0}, Payload: []byte("hi")})
	const want = "0a2408011220174254f7fd26df1dbba15f145a458ad44afd90a842a4aa3067ac1489a6e2fa7a120d2f72656c61792f7265636f72641a13a401646e6f74650261610383070000054268692a40cc9f95dbffeeb5a3560b141599deec3a7ebe25ebf6fd1c68990339bc514b8c8d89181746e3accd0da5c88f92b9dfffd00a4b69d4340c24516950792e6b56750b"
	if got := hex.EncodeToString(s.Raw); got != want {
		t.Errorf("a record is laid out as %s", got)
	}
}

func TestOpenCopies(t *testing.T) {
	s := seal(t, "ann", note("a", 1, "text"))
	raw := bytes.Clone(s.Raw)
	got, err := record.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if !bytes.Equal(got.Raw, s.Raw) || string(got.Payload) != "text" {
		t.Error("an opened record shares the bytes that it came in")
	}
}

// Every single changed, missing or added byte must be noticed.
func TestOpenRefusesEveryChange(t *testing.T) {
	raw := seal(t, "ann", note("a", 1, "text")).Raw
	check := func(what string, at int, bad []byte) {
		t.Helper()
		if _, err := record.Open(bad); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%s at byte %d of %d: %v", what, at, len(raw), err)
		}
	}
	for i := range raw {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(raw)
			bad[i] ^= flip
			check("changed", i, bad)
		}
		check("cut", i, raw[:i])
		check("byte removed", i, append(bytes.Clone(raw[:i]), raw[i+1:]...))
	}
	for i := range len(raw) + 1 {
		check("byte added", i, append(append(bytes.Clone(raw[:i]), 0), raw[i:]...))
	}
}

// Protobuf would take these as the same envelope.
func TestOpenRefusesOtherLayouts(t *testing.T) {
	raw := seal(t, "ann", note("a", 1, "text")).Raw
	body := raw[38+2+len("/relay/record") : len(raw)-66]
	key, kind, sig := raw[:38], raw[38:38+2+len("/relay/record")], raw[len(raw)-66:]
	if body[0] != 0x1a {
		t.Fatal("this test does not know where the body lies")
	}
	padded := append([]byte{0x1a, body[1] | 0x80, 0}, body[2:]...)
	for name, bad := range map[string][]byte{
		"fields in another order": bytes.Join([][]byte{kind, key, body, sig}, nil),
		"an unknown field":        bytes.Join([][]byte{key, kind, body, sig, {0x78, 1}}, nil),
		"a field twice":           bytes.Join([][]byte{key, kind, body, body, sig}, nil),
		"a padded length":         bytes.Join([][]byte{key, kind, padded, sig}, nil),
		"nothing":                 {},
	} {
		if _, err := record.Open(bad); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	rsa, _, err := crypto.GenerateRSAKeyPair(2048, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		r   record.Record
		key crypto.PrivKey
	}{
		"no key":          {note("a", 1, ""), nil},
		"a key of RSA":    {note("a", 1, ""), rsa},
		"too large":       {record.Record{Kind: "note", ID: "a", Payload: make([]byte, record.MaxSize)}, keyOf("ann")},
		"no kind":         {record.Record{ID: "a"}, keyOf("ann")},
		"kind upper":      {record.Record{Kind: "Note", ID: "a"}, keyOf("ann")},
		"kind with slash": {record.Record{Kind: "no/te", ID: "a"}, keyOf("ann")},
		"kind digit":      {record.Record{Kind: "1note", ID: "a"}, keyOf("ann")},
		"kind too long":   {record.Record{Kind: strings.Repeat("k", 33), ID: "a"}, keyOf("ann")},
		"no id":           {record.Record{Kind: "note"}, keyOf("ann")},
		"id slash first":  {record.Record{Kind: "note", ID: "/a"}, keyOf("ann")},
		"id slash last":   {record.Record{Kind: "note", ID: "a/"}, keyOf("ann")},
		"id slash double": {record.Record{Kind: "note", ID: "a//b"}, keyOf("ann")},
		"id space":        {record.Record{Kind: "note", ID: "a b"}, keyOf("ann")},
		"id not ASCII":    {record.Record{Kind: "note", ID: "ä"}, keyOf("ann")},
		"id nul":          {record.Record{Kind: "note", ID: "a\x00"}, keyOf("ann")},
		"id too long":     {record.Record{Kind: "note", ID: strings.Repeat("i", 257)}, keyOf("ann")},
	} {
		if _, err := record.Seal(tc.r, tc.key); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte{})
	f.Add(seal(f, "ann", note("a", 1, "text")).Raw)
	f.Add(seal(f, "bob", record.Record{Kind: "advert", ID: idOf("bob").String() + "/x", Version: record.Version{1, 2, 0}, Deleted: true}).Raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := record.Open(raw)
		if err != nil {
			if !errors.Is(err, record.ErrInvalid) {
				t.Fatalf("an error that does not say who is at fault: %v", err)
			}
			return
		}
		// What opens is in the one form that it has.
		if !bytes.Equal(s.Raw, raw) || s.Hash != sha256.Sum256(raw) || len(raw) > record.MaxSize {
			t.Fatal("an opened record is not what came")
		}
		tab := table(t, "ann", newDisk())
		if out, err := tab.Offer(s); out != record.Fresh && !errors.Is(err, record.ErrPayload) && !errors.Is(err, record.ErrNotAllowed) {
			t.Fatalf("an opened record was met with %v, %v", out, err)
		}
	})
}
