package keys

import (
	"bytes"
	"crypto/rand"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

type everybody struct{}

func (everybody) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

func newTable(t testing.TB) *record.Table {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	table, err := record.NewTable(record.Options{Storage: recordtest.NewMemory(), Key: key, Kinds: []record.Kind{RecordKind(), UsageKind()}, Rights: everybody{}})
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

// put writes a key and gives back its secret.
func put(t *testing.T, table *record.Table, k Key) (secret, id string) {
	t.Helper()
	secret, id, err := New()
	if err != nil {
		t.Fatal(err)
	}
	k.Hash = Hash(secret)
	write(t, table, id, k)
	return secret, id
}

func write(t testing.TB, table *record.Table, id string, k Key) {
	t.Helper()
	payload, err := record.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.PutShared(Kind, id, payload); err != nil {
		t.Fatal(err)
	}
}

func TestAKeySaysWhatItMay(t *testing.T) {
	table := newTable(t)
	ring := NewRing(table, "")
	secret, id := put(t, table, Key{Name: "ci", Models: []string{"a", "b"}, RequestsPerMinute: 6, TokensPerDay: 7, Concurrency: 8})
	g, err := ring.Check(secret)
	want := Grant{ID: id, Name: "ci", Models: []string{"a", "b"}, RequestsPerMinute: 6, TokensPerDay: 7, Concurrency: 8}
	if err != nil || !reflect.DeepEqual(g, want) {
		t.Errorf("%+v, %v", g, err)
	}
	if !g.May("a") || !g.May("b") || g.May("c") || g.May("") {
		t.Error("it may other models than it says")
	}
	for priority, batch := range map[Priority]bool{"": false, Normal: false, Batch: true, "a word of a later release": false} {
		secret, _ := put(t, table, Key{Name: "ci", Priority: priority})
		if g, err := ring.Check(secret); err != nil || g.Batch != batch {
			t.Errorf("priority %q: batch %v, %v", priority, g.Batch, err)
		}
	}
}

// TestAKeyExpires by the clock of the door that is asked, to the second.
func TestAKeyExpires(t *testing.T) {
	table := newTable(t)
	ring := NewRing(table, "")
	now := time.Unix(1_800_000_000, 0)
	ring.now = func() time.Time { return now }
	secret, id := put(t, table, Key{Name: "ci", Expires: now.Unix() + 60})
	if _, err := ring.Check(secret); err != nil || ring.Text() != "1 key of the mesh" {
		t.Errorf("before: %v, %s", err, ring.Text())
	}
	now = now.Add(60 * time.Second)
	if _, err := ring.Check(secret); err != ErrExpired || ring.Text() != "no key opens it: an admin can make one (relay key add)" {
		t.Errorf("after: %v, %s", err, ring.Text())
	}
	// Who does not have the secret is not told that.
	if _, err := ring.Check("rk-" + id + "-" + strings.Repeat("a", 32)); err != ErrUnknown {
		t.Errorf("a guess: %v", err)
	}
}

func TestARotatedKeyHasTwoSecretsForAWhile(t *testing.T) {
	table := newTable(t)
	ring := NewRing(table, "")
	now := time.Unix(1_800_000_000, 0)
	ring.now = func() time.Time { return now }
	old, id := put(t, table, Key{Name: "ci"})
	secret, hash, err := NewSecret(id)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, secret string, want error) {
		t.Helper()
		g, err := ring.Check(secret)
		if err != want || err == nil && g.ID != id {
			t.Errorf("%s: %+v, %v", what, g, err)
		}
	}
	write(t, table, id, Key{Name: "ci", Hash: hash, Former: Hash(old), FormerUntil: now.Unix() + 3600})
	check("the new one", secret, nil)
	check("the old one", old, nil)
	now = now.Add(time.Hour)
	check("the new one, later", secret, nil)
	check("the old one, later", old, ErrReplaced)
	write(t, table, id, Key{Name: "ci", Hash: hash})
	check("the old one, without an overlap", old, ErrUnknown)
}

func TestAShortEnvironmentKeyIsWarnedOf(t *testing.T) {
	for local, warned := range map[string]bool{"": false, "fifteen letters": true, "sixteen letters!": false} {
		if text := NewRing(newTable(t), local).Warning(); (text != "") != warned || strings.Contains(text, "letters") {
			t.Errorf("%q: %q", local, text)
		}
	}
}

// TestMadeUpKeysLeaveNothing: a flood of them costs no memory, also of long ones,
// which are not even hashed.
func TestMadeUpKeysLeaveNothing(t *testing.T) {
	table := newTable(t)
	ring := NewRing(table, "a key of the environment")
	secret, id := put(t, table, Key{Name: "ci"})
	if _, err := ring.Check(secret + strings.Repeat("a", maxSecret)); err != ErrUnknown {
		t.Errorf("a long one: %v", err)
	}
	long := strings.Repeat("x", 1<<20)
	guesses := []string{"rk-" + id + "-" + strings.Repeat("a", 32), "rk-aaaaaaaa-" + strings.Repeat("a", 32), "sk-other"}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 10_000 {
		made := guesses[i%len(guesses)]
		made = made[:len(made)-2] + string(alphabet[i%32]) + string(alphabet[i/32%32])
		if _, err := ring.Check(made); err != ErrUnknown {
			t.Fatalf("%s: %v", made, err)
		}
		if _, err := ring.Check(long); err != ErrUnknown {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<10 {
		t.Errorf("%d bytes are left of 10,000 made-up keys", grown)
	}
	if table.Len() != 1 {
		t.Errorf("%d records", table.Len())
	}
	if _, err := ring.Check(secret); err != nil {
		t.Error(err)
	}
}

// TestAnEarlierReleaseReadsAKey: with what it knows, name, hash and time.
func TestAnEarlierReleaseReadsAKey(t *testing.T) {
	type earlier struct {
		Name    string `cbor:"1,keyasint"`
		Hash    []byte `cbor:"2,keyasint"`
		Created int64  `cbor:"3,keyasint,omitempty"`
	}
	payload, err := record.Marshal(Key{Name: "ci", Hash: Hash("x"), Created: 5, Models: []string{"a"}, Expires: 6, RequestsPerMinute: 7,
		TokensPerDay: 8, Concurrency: 9, Priority: Batch, Former: Hash("y"), FormerUntil: 10})
	if err != nil {
		t.Fatal(err)
	}
	var e earlier
	if err := record.Unmarshal(payload, &e); err != nil || e.Name != "ci" || e.Created != 5 || !bytes.Equal(e.Hash, Hash("x")) {
		t.Errorf("%+v, %v", e, err)
	}
	if payload, err = record.Marshal(e); err != nil {
		t.Fatal(err)
	}
	var k Key
	if err := record.Unmarshal(payload, &k); err != nil || k.Check() != nil || !reflect.DeepEqual(k, Key{Name: "ci", Hash: Hash("x"), Created: 5}) {
		t.Errorf("the other way: %+v, %v", k, err)
	}
}

func TestKeysThatCannotBe(t *testing.T) {
	good := Key{Name: "ci", Hash: Hash("x")}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Key){
		"no name":            func(k *Key) { k.Name = "" },
		"a line break":       func(k *Key) { k.Name = "a\nb" },
		"a former hash":      func(k *Key) { k.Former = []byte("short") },
		"many models":        func(k *Key) { k.Models = slices.Repeat([]string{"a"}, MaxModels+1) },
		"a nameless model":   func(k *Key) { k.Models = []string{""} },
		"a long model":       func(k *Key) { k.Models = []string{strings.Repeat("a", MaxModelName+1)} },
		"a time":             func(k *Key) { k.Expires = -1 },
		"requests":           func(k *Key) { k.RequestsPerMinute = -1 },
		"many requests":      func(k *Key) { k.RequestsPerMinute = MaxRequestsPerMinute + 1 },
		"tokens":             func(k *Key) { k.TokensPerDay = -1 },
		"at once":            func(k *Key) { k.Concurrency = MaxConcurrency + 1 },
		"a long priority":    func(k *Key) { k.Priority = Priority(strings.Repeat("a", 65)) },
		"an end of a former": func(k *Key) { k.FormerUntil = -1 },
	} {
		k := good
		change(&k)
		if k.Check() == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, k := range []Key{{Name: "a", Hash: Hash("x")}, {Name: "b", Hash: Hash("x"), Models: []string{"m"}, Expires: 1, Former: Hash("y"), FormerUntil: 2, Priority: Batch}} {
		payload, err := record.Marshal(k)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("abcdefgh", payload)
	}
	check := RecordKind().Check
	f.Fuzz(func(t *testing.T, id string, payload []byte) {
		if check(record.Record{ID: id, Payload: payload}) != nil {
			return
		}
		var k Key
		if err := record.Unmarshal(payload, &k); err != nil || len(k.Hash) != 32 || k.RequestsPerMinute < 0 || k.TokensPerDay < 0 || k.Concurrency < 0 {
			t.Fatalf("%+v, %v", k, err)
		}
		if _, err := record.Marshal(k); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAKeyThatWasTakenBackStaysSo, however often an admin who had not heard of that
// gave it another secret.
func TestAKeyThatWasTakenBackStaysSo(t *testing.T) {
	a, b := newTable(t), newTable(t)
	secret, id := put(t, a, Key{Name: "ci"})
	meet := func() {
		for from, to := range map[*record.Table]*record.Table{a: b, b: a} {
			for _, s := range from.All() {
				if _, err := to.Offer(s); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	meet()
	if _, err := a.DeleteShared(Kind, id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		write(t, b, id, Key{Name: "ci", Hash: Hash(secret)})
	}
	meet()
	for _, table := range []*record.Table{a, b} {
		if _, err := NewRing(table, "").Check(secret); err != ErrUnknown {
			t.Errorf("a key that was taken back for ever: %v", err)
		}
	}
}

// TestAWrongKeyCostsNoListing: what a door asks about a made-up key takes no memory,
// however many keys there are.
func TestAWrongKeyCostsNoListing(t *testing.T) {
	table := newTable(t)
	for range 200 {
		add(t, table)
	}
	ring := NewRing(table, "")
	if n := testing.AllocsPerRun(100, func() {
		if !ring.Any() {
			t.Error("there is no key")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAnEnvironmentsKeyThatNobodyCanSend is told from one that opens the door.
func TestAnEnvironmentsKeyThatNobodyCanSend(t *testing.T) {
	for key, ok := range map[string]bool{
		"": true, "anything the owner likes": true, "schlüssel": true, strings.Repeat("x", maxSecret): true,
		strings.Repeat("x", maxSecret+1): false, " x": false, "x ": false, "x\n": false, "\t": false, "x\ny": false, "x\x00": false, "x\xff": false,
	} {
		if err := CheckLocal(key); (err == nil) != ok {
			t.Errorf("%.20q: %v", key, err)
		}
		if _, err := NewRing(newTable(t), key).Check(strings.TrimSpace(key)); ok && key != "" && err != nil {
			t.Errorf("%.20q opens no door: %v", key, err)
		}
	}
}

// TestAnIDThatNoKeyHas is no key's, as its use could not be told.
func TestAnIDThatNoKeyHas(t *testing.T) {
	table := newTable(t)
	payload, err := record.Marshal(Key{Name: "odd", Hash: Hash("x")})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ABCDEFGH", "abcdefg1", "abcdefg=", "abcdefg", "abcdefghi"} {
		if _, err := table.PutShared(Kind, id, payload); err == nil {
			t.Errorf("a key %q was kept", id)
		}
		if _, ok := IDOf("rk-" + id + "-" + strings.Repeat("a", 32)); ok {
			t.Errorf("%q is an id", id)
		}
	}
}
