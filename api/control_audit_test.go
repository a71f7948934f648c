package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/scheduler"
	"relay/store/audit"
)

func testPeerID(t *testing.T) peer.ID {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// doors is a mesh of which each peer answers a question for rows in its own way.
type doors struct {
	ControlMesh
	ControlScheduler
	list    []scheduler.PeerState
	answers map[string]func(url.Values) (int, string)
}

func (d *doors) Peers() []scheduler.PeerState { return d.list }
func (d *doors) Roster() *membership.Roster   { return membership.NewRoster("aaaaaaaaaaaaaaaa", nil) }

func (d *doors) Control(id peer.ID) http.RoundTripper { return wayTo{d, id.String()} }

type wayTo struct {
	doors *doors
	id    string
}

func (w wayTo) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := w.doors.answers[w.id]
	if answer == nil {
		return nil, fmt.Errorf("no route")
	}
	status, body := answer(r.URL.Query())
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader(body))}, nil
}

// ownRows are those of the peer that is asked.
type ownRows struct{ page audit.Page }

func (o ownRows) Tail(int) (audit.Page, error)          { return o.page, nil }
func (o ownRows) Since(uint64, int) (audit.Page, error) { return o.page, nil }
func (o ownRows) Find(context.Context, string) (audit.Page, error) {
	return o.page, nil
}

func rowsOf(t *testing.T, h http.Handler, method, path, body string) AuditAnswer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	var a AuditAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return a
}

// What the doors of a mesh answered is put together by time; none speaks for another,
// and who does not answer is named.
func TestAuditAcrossTheMesh(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 5, 4, 15, 0, second, 0, time.UTC) }
	page := func(next uint64, rows ...audit.Row) string {
		b, _ := json.Marshal(audit.Page{Rows: rows, Next: next})
		return string(b)
	}
	var names = []string{"self", "den", "gone", "old", "liar", "barred"}
	d := &doors{answers: map[string]func(url.Values) (int, string){}}
	id := map[string]string{}
	for _, name := range names {
		id[name] = testPeerID(t).String()
		d.list = append(d.list, scheduler.PeerState{ID: id[name], Name: name, Self: name == "self", State: "alive"})
	}
	d.list[2].State = "gone"
	var asked []url.Values
	d.answers[id["den"]] = func(q url.Values) (int, string) {
		asked = append(asked, q)
		return 200, page(7, audit.Row{ID: "first", Time: at(1), Entrance: id["self"], Key: "k1", Peer: id["self"]}, audit.Row{ID: "third", Time: at(3)})
	}
	d.answers[id["gone"]] = func(url.Values) (int, string) { t.Error("one that is gone was asked"); return 500, "" }
	d.answers[id["old"]] = func(url.Values) (int, string) { return 404, "404 page not found" }
	d.answers[id["liar"]] = func(url.Values) (int, string) {
		return 200, page(1, slices.Repeat([]audit.Row{{ID: "\x1b[2J" + strings.Repeat("x", 1000), Time: at(9)}}, audit.MostRows+5)...)
	}
	d.answers[id["barred"]] = func(url.Values) (int, string) {
		return 403, `{"error":{"reason":"not_allowed","message":"its requests are not for you"}}`
	}
	c := &Control{Mesh: d, Scheduler: d, Audit: ownRows{audit.Page{Rows: []audit.Row{{ID: "second", Time: at(2)}}, Next: 3}},
		KeyName: func(id string) string { return "key " + id }, Log: slog.New(slog.NewTextHandler(quietLog{t}, nil))}

	a := rowsOf(t, c.Handler(), http.MethodPost, "/v0/audit", `{"last":1000}`)
	if len(a.Rows) != 1000 || a.Rows[999].ID != "\ufffd[2J"+strings.Repeat("x", 124) || a.Rows[0].ID != "first" || a.Rows[2].ID != "third" || a.Rows[3].Entrance != id["liar"] {
		t.Errorf("%d rows, the last %+v", len(a.Rows), a.Rows[len(a.Rows)-1])
	}
	delete(d.answers, id["liar"])
	a = rowsOf(t, c.Handler(), http.MethodPost, "/v0/audit", `{"last":1000}`)
	var got []string
	for _, r := range a.Rows {
		got = append(got, r.ID+" at "+r.EntranceName)
	}
	if strings.Join(got, ", ") != "first at den, second at self, third at den" || a.Rows[0].Entrance != id["den"] || a.Rows[0].KeyName != "key k1" || a.Rows[0].PeerName != "self" {
		t.Errorf("%v; %+v", got, a.Rows)
	}
	got = nil
	for _, u := range a.Unanswered {
		got = append(got, u.Name+": "+u.Why)
	}
	want := "gone: it is gone; old: it is of an older release that keeps no rows; liar: it does not answer; barred: its requests are not for you"
	if strings.Join(got, "; ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, "; "), want)
	}
	if len(a.Next) != 2 || a.Next[id["den"]] != 7 || a.Next[id["self"]] != 3 {
		t.Errorf("go on after %v", a.Next)
	}

	// What comes next is asked of each after its own mark; those of who is silent stay.
	body, _ := json.Marshal(AuditRequest{Last: 10, After: map[string]uint64{id["den"]: 7, id["liar"]: 5}})
	a = rowsOf(t, c.Handler(), http.MethodPost, "/v0/audit", string(body))
	if q := asked[len(asked)-1]; q.Get("after") != "7" || q.Get("last") != "10" {
		t.Errorf("den was asked %v", q)
	}
	if a.Next[id["liar"]] != 5 {
		t.Errorf("go on after %v", a.Next)
	}
	if a.More {
		t.Errorf("two rows of ten are not all: %+v", a)
	}
	// One that answers for the first time is asked for its mark alone; a page that is full
	// may not be the last.
	body, _ = json.Marshal(AuditRequest{Last: 2, After: map[string]uint64{id["self"]: 1}})
	a = rowsOf(t, c.Handler(), http.MethodPost, "/v0/audit", string(body))
	if q := asked[len(asked)-1]; q.Has("after") || q.Get("last") != "0" || !a.More {
		t.Errorf("den was asked %v: %+v", q, a)
	}
	a = rowsOf(t, c.Handler(), http.MethodGet, "/v0/request?id=first", "")
	if q := asked[len(asked)-1]; q.Get("id") != "first" || len(a.Rows) != 3 {
		t.Errorf("den was asked %v: %+v", q, a)
	}
}

// Clocks may be days apart, or be said to be: what has just ended here is shown all the
// same, and what ended elsewhere in its place.
func TestAuditWithClocksApart(t *testing.T) {
	now := time.Now()
	self, ahead, behind, old := testPeerID(t).String(), testPeerID(t).String(), testPeerID(t).String(), testPeerID(t).String()
	d := &doors{answers: map[string]func(url.Values) (int, string){}}
	for name, id := range map[string]string{"self": self, "ahead": ahead, "behind": behind, "old": old} {
		d.list = append(d.list, scheduler.PeerState{ID: id, Name: name, Self: name == "self", State: "alive"})
	}
	tell := func(id string, clock time.Duration, says bool, ages ...time.Duration) {
		var p audit.Page
		if says {
			p.Now = now.Add(clock)
		}
		for _, age := range ages {
			p.Rows = append(p.Rows, audit.Row{ID: age.String(), Time: now.Add(clock - age)})
		}
		d.answers[id] = func(url.Values) (int, string) { b, _ := json.Marshal(p); return 200, string(b) }
	}
	day := 24 * time.Hour
	c := &Control{Mesh: d, Scheduler: d, Audit: ownRows{audit.Page{Rows: []audit.Row{{ID: "3m", Time: now.Add(-3 * time.Minute)}, {ID: "just now", Time: now}}}}, Log: slog.New(slog.DiscardHandler)}
	shown := func(last int) string {
		var ids []string
		for _, r := range rowsOf(t, c.Handler(), http.MethodPost, "/v0/audit", fmt.Sprintf(`{"last":%d}`, last)).Rows {
			ids = append(ids, r.ID)
		}
		return strings.Join(ids, " ")
	}
	tell(ahead, 3*day, true, 4*time.Minute, 2*time.Minute)
	tell(behind, -30*day, true, 5*time.Minute, time.Minute)
	tell(old, 0, false, 6*time.Minute, 90*time.Second)
	if got := shown(1000); got != "6m0s 5m0s 4m0s 3m 2m0s 1m30s 1m0s just now" {
		t.Error(got)
	}
	if got := shown(5); got != "3m 2m0s 1m30s 1m0s just now" {
		t.Error(got)
	}
	tell(ahead, 3*day, false, slices.Repeat([]time.Duration{-time.Hour}, 1000)...) // Of an older release, or one that lies.
	if got := shown(5); got != "1m30s 1m0s just now -1h0m0s -1h0m0s" {
		t.Error(got)
	}
	if got := shown(2); !strings.Contains(got, "just now") {
		t.Error(got)
	}
}

func TestAuditQuestionsThatCannotBe(t *testing.T) {
	c, _ := newControl(t)
	c.Audit = ownRows{}
	for _, q := range []struct{ method, path, body, want string }{
		{"POST", "/v0/audit", `{"last":0}`, "1 to 1000"}, {"POST", "/v0/audit", `{"last":1001}`, "1 to 1000"},
		{"GET", "/v0/request?id=a%20b", "", "no id of a request"}, {"GET", "/v0/request", "", "no id of a request"},
	} {
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, httptest.NewRequest(q.method, q.path, strings.NewReader(q.body)))
		if w.Code != 400 || !bytes.Contains(w.Body.Bytes(), []byte(q.want)) {
			t.Errorf("%s %s: %d %s", q.method, q.path, w.Code, w.Body)
		}
	}
}

// Rows are for admins' machines and those that are trusted with replicas.
func TestWhoSeesRequests(t *testing.T) {
	for _, c := range []struct {
		role  membership.Role
		trust membership.Trust
		want  bool
	}{
		{membership.RoleAdmin, membership.TrustClient, true}, {membership.RoleMember, membership.TrustReplicas, true},
		{membership.RoleMember, membership.TrustShardOnly, false}, {membership.RoleMember, membership.TrustClient, false},
	} {
		if got := seesRequests(membership.Member{Role: c.role, Trust: c.trust}); got != c.want {
			t.Errorf("%s with trust %s: %v", c.role, c.trust, got)
		}
	}
	d := &doors{}
	c := &Control{Mesh: d, Audit: ownRows{}, Log: slog.New(slog.DiscardHandler)}
	w := httptest.NewRecorder() // Of somebody who is no member.
	c.PeerHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/audit?last=1", nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestFewAreLookedForAtATime for other peers; who waits in vain leaves.
func TestFewAreLookedForAtATime(t *testing.T) {
	var f finding
	var leave [mostFinds]func()
	for i := range leave {
		var err error
		if leave[i], err = f.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.enter(ctx); err == nil {
		t.Error("one more was let in")
	}
	leave[0]()
	if again, err := f.enter(t.Context()); err != nil {
		t.Error(err)
	} else {
		again()
	}
	leave[1]()
}
