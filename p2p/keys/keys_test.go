package keys

import (
	"crypto/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

type everybody struct{}

func (everybody) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

func newTable(t *testing.T) *record.Table {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	table, err := record.NewTable(record.Options{Storage: recordtest.NewMemory(), Key: key, Kinds: []record.Kind{RecordKind()}, Rights: everybody{}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func add(t *testing.T, table *record.Table) (secret, id string) {
	t.Helper()
	secret, id, err := New()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := record.Marshal(Key{Name: DefaultName, Hash: Hash(secret)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.PutShared(Kind, id, payload); err != nil {
		t.Fatal(err)
	}
	return secret, id
}

func TestOnlyKnownSecretsOpen(t *testing.T) {
	table := newTable(t)
	ring := NewRing(table, "")
	if ring.Any() {
		t.Error("there is a key before there is one")
	}
	secret, id := add(t, table)
	if !regexp.MustCompile(`^rk-[a-z2-7]{8}-[a-z2-7]{32}$`).MatchString(secret) {
		t.Errorf("a key looks like %q", secret)
	}
	if got, err := ring.Check(secret); err != nil || got.ID != id {
		t.Errorf("the key itself: %+v, %v", got, err)
	}
	other, _, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"", "rk-", "rk--", other, secret[:len(secret)-1], secret + "a", strings.ToUpper(secret),
		"rk-" + id + "-" + strings.Repeat("a", 32), strings.Repeat("x", 1<<20), "env", id} {
		if _, err := ring.Check(wrong); err != ErrUnknown {
			t.Errorf("%.60q opens the door", wrong)
		}
	}
	if _, err := table.DeleteShared(Kind, id); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Check(secret); err != ErrUnknown || ring.Any() {
		t.Error("a key that was taken back opens the door")
	}
}

func TestTheEnvironmentsKeyOpensThisDoor(t *testing.T) {
	ring := NewRing(newTable(t), "anything the owner likes")
	if g, err := ring.Check("anything the owner likes"); err != nil || g.ID != LocalID || !ring.Any() {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := ring.Check(""); err == nil {
		t.Error("no key opens the door")
	}
}

func TestRecordsHoldNoSecrets(t *testing.T) {
	table := newTable(t)
	secret, id := add(t, table)
	raw, ok := table.Raw(record.Key(Kind, id))
	if !ok || strings.Contains(string(raw), secret[12:]) {
		t.Error("the record holds the secret")
	}
	for _, bad := range []Key{{Name: "x", Hash: []byte("short")}, {Hash: Hash("x")}, {Name: strings.Repeat("x", 65), Hash: Hash("x")}} {
		payload, err := record.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.PutShared(Kind, "abcdefgh", payload); err == nil {
			t.Errorf("%+v was kept", bad)
		}
	}
}
