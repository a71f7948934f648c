package api

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/keys"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/p2p/record/recordtest"
	"relay/scheduler"
)

// keyring is an admin's machine with keys of its mesh.
type keyring struct {
	ControlMesh
	ControlScheduler
	MemberMesh
	noKeys
	t      *testing.T
	table  *record.Table
	roster *membership.Roster
	models []scheduler.ModelState

	secret string // The default one that it keeps.
	full   error  // Why it can keep no other.
}

type everybodyMay struct{}

func (everybodyMay) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

func newKeyring(t *testing.T) (*keyring, *Control) {
	t.Helper()
	identity, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	kinds := append(membership.Kinds(root.ID(), func(record.Record) record.Verdict { return record.Allowed }), keys.RecordKind())
	k := &keyring{t: t}
	if k.table, err = record.NewTable(record.Options{Storage: recordtest.NewMemory(), Key: identity, Kinds: kinds, Rights: everybodyMay{}}); err != nil {
		t.Fatal(err)
	}
	grant := root.GrantAdmin(k.table.Self(), "attic")
	id, err := membership.GrantID(k.table.Self(), grant)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := record.Marshal(grant)
	if err != nil {
		t.Fatal(err)
	}
	member, err := k.table.PutOwned(membership.KindMember, id, payload)
	if err != nil {
		t.Fatal(err)
	}
	k.roster = membership.NewRoster(root.ID(), []record.Record{member.Record})
	return k, &Control{Mesh: k, Scheduler: k, Members: k, Keys: k, Log: slog.New(slog.DiscardHandler)}
}

func (k *keyring) Self() peer.ID                       { return k.table.Self() }
func (k *keyring) Roster() *membership.Roster          { return k.roster }
func (k *keyring) Table() *record.Table                { return k.table }
func (k *keyring) NameOf(peer.ID) string               { return "attic" }
func (k *keyring) ModelStates() []scheduler.ModelState { return k.models }
func (k *keyring) DefaultSecret() (string, bool)       { return k.secret, k.secret != "" }

func (k *keyring) Model(name string) (scheduler.ModelState, error) {
	for _, m := range k.models {
		if m.Name == name || m.UID == name || slices.Contains(m.Aliases, name) {
			return m, nil
		}
	}
	return scheduler.ModelState{}, scheduler.Errorf(scheduler.NotFound, "no model %q", name)
}

func (k *keyring) KeepDefault(secret string) error {
	if k.full == nil {
		k.secret = secret
	}
	return k.full
}

// put writes a key as another admin would, and gives back its secret.
func (k *keyring) put(id, name string) (secret string) {
	secret, hash, err := keys.NewSecret(id)
	if err != nil {
		k.t.Fatal(err)
	}
	payload, err := record.Marshal(keys.Key{Name: name, Hash: hash, Created: 1})
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.table.PutShared(keys.Kind, id, payload); err != nil {
		k.t.Fatal(err)
	}
	return secret
}

// askKeys asks the control API, and reads what it answers; the error is its refusal.
func askKeys[T any](t *testing.T, c *Control, method, path string, body any) (answer T, refused string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(encodeJSON(body))))
	var line Line[struct{}]
	if w.Code != http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &line); err != nil || line.Error == nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return answer, line.Error.Error()
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return answer, ""
}

// TestAKeyIsNamedWhole, or by its id or a beginning of that which is no other's.
func TestAKeyIsNamedWhole(t *testing.T) {
	k, c := newKeyring(t)
	for id, name := range map[string]string{"aaaaaaaa": "default-ci", "aabbbbbb": "default-web", "ccaaaaaa": "twice", "cbbbbbbb": "twice", "aaccccca": "cc"} {
		k.put(id, name)
	}
	for name, want := range map[string]string{
		"default-ci": "aaaaaaaa", "aaaaaaaa": "aaaaaaaa", "aaa": "aaaaaaaa", "aab": "aabbbbbb", "cc": "aaccccca", // The name, not the beginning of an id.
		"default": "", "default-w": "", "": "", "aa": "", "twice": "", "nosuch": "",
	} {
		found, err := c.findKey(name)
		if found.id != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", name, found.id, err)
		}
	}
	for _, path := range []string{"/v0/keys/rm", "/v0/keys/rotate"} {
		if _, no := askKeys[KeyShown](t, c, http.MethodPost, path, NameRequest{Name: "default"}); !strings.Contains(no, "the whole name of a key is wanted") {
			t.Errorf("%s: %q", path, no)
		}
		if _, no := askKeys[KeyShown](t, c, http.MethodPost, path, NameRequest{Name: "twice"}); !strings.Contains(no, "twice (cbbbbbbb)") || !strings.Contains(no, "twice (ccaaaaaa)") {
			t.Errorf("%s: %q", path, no)
		}
	}
	if n := len(c.knownKeys()); n != 5 {
		t.Errorf("%d keys are left", n)
	}
}

// TestASecretThatCannotBeKept is shown all the same, and said not to be kept.
func TestASecretThatCannotBeKept(t *testing.T) {
	k, c := newKeyring(t)
	k.put("aaaaaaaa", keys.DefaultName)
	k.full = errors.New("no room")
	made, no := askKeys[KeyMade](t, c, http.MethodPost, "/v0/keys/rotate", RotateKeyRequest{Name: "aaaaaaaa"})
	if _, err := keys.NewRing(k.table, "").Check(made.Secret); no != "" || err != nil || len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "no room") {
		t.Errorf("%q, %v, %q", no, err, made.Warnings)
	}
	if d, _ := askKeys[DefaultKey](t, c, http.MethodGet, "/v0/keys/default", nil); d.Secret != "" || d.KeptOn != "attic" {
		t.Errorf("%+v", d)
	}
}

// TestOfTwoDefaultKeys, made on two sides of a cut, the one that is kept here is shown.
func TestOfTwoDefaultKeys(t *testing.T) {
	k, c := newKeyring(t)
	k.put("aaaaaaaa", keys.DefaultName)
	k.secret = k.put("bbbbbbbb", keys.DefaultName)
	if d, _ := askKeys[DefaultKey](t, c, http.MethodGet, "/v0/keys/default", nil); d.Secret != k.secret || d.ID != "bbbbbbbb" {
		t.Errorf("%+v", d)
	}
}

// TestAKeyIsForModelsByName: an alias or an id would open nothing.
func TestAKeyIsForModelsByName(t *testing.T) {
	k, c := newKeyring(t)
	k.models = []scheduler.ModelState{{UID: "u1", Name: "qwen", Aliases: []string{"best"}}}
	add := func(name string, models ...string) (KeyMade, string) {
		return askKeys[KeyMade](t, c, http.MethodPost, "/v0/keys/add", AddKeyRequest{Name: name, Models: models})
	}
	for _, other := range []string{"best", "u1"} {
		if _, no := add("ci", "qwen", other); !strings.Contains(no, `the model "qwen"`) {
			t.Errorf("%s: %q", other, no)
		}
	}
	if made, no := add("ci", "qwen"); no != "" || len(made.Warnings) != 0 {
		t.Errorf("%+v, %q", made, no)
	}
	if made, no := add("later", "nosuch"); no != "" || len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "nosuch") {
		t.Errorf("%+v, %q", made, no)
	}
	k.models[0].Aliases = append(k.models[0].Aliases, "nosuch") // Since then.
	if _, no := askKeys[KeyMade](t, c, http.MethodPost, "/v0/keys/rotate", RotateKeyRequest{Name: "later"}); no != "" {
		t.Errorf("rotating: %q", no)
	}
}

// TestRotatingKeepsWhatIsNotKnown: fields of a newer release stay in the record.
func TestRotatingKeepsWhatIsNotKnown(t *testing.T) {
	k, c := newKeyring(t)
	type newer struct {
		keys.Key
		More string `cbor:"99,keyasint"`
	}
	payload, err := record.Marshal(newer{keys.Key{Name: "ci", Hash: keys.Hash("x"), Models: []string{"m"}}, "of a newer release"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.table.PutShared(keys.Kind, "aaaaaaaa", payload); err != nil {
		t.Fatal(err)
	}
	made, no := askKeys[KeyMade](t, c, http.MethodPost, "/v0/keys/rotate", RotateKeyRequest{Name: "ci"})
	if no != "" {
		t.Fatal(no)
	}
	rec, _ := k.table.Get(keys.Kind, "aaaaaaaa")
	var is newer
	if err := record.Unmarshal(rec.Payload, &is); err != nil || is.More != "of a newer release" || !slices.Equal(is.Hash, keys.Hash(made.Secret)) || is.Models[0] != "m" {
		t.Errorf("%+v, %v", is, err)
	}
}
