package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/keys"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/p2p/record/recordtest"
	"relay/scheduler"
)

// town is a mesh whose members are what a test says, and which notes what is
// written about them.
type town struct {
	ControlMesh
	ControlScheduler
	MemberMesh
	peers   []scheduler.PeerState
	behind  map[string]int // Of those that answer, by id.
	load    map[string]bool
	wrote   []string
	refuse  map[string]error // By what is written, or "check".
	wiping  []peer.ID
	blamed  []p2p.Blame
	copies  []string // Last ones, of whoever is asked about.
	revoked []string
	left    []bool
	running []scheduler.Workload // Here.
	models  []scheduler.ModelState
}

func (w *town) Peers() []scheduler.PeerState         { return slices.Clone(w.peers) }
func (w *town) ModelStates() []scheduler.ModelState  { return slices.Clone(w.models) }
func (w *town) Workload() []scheduler.Workload       { return w.running }
func (w *town) DiskUse() scheduler.DiskUse           { return scheduler.DiskUse{Stuck: "no room"} }
func (w *town) Decisions() []scheduler.Decision      { return nil }
func (w *town) LastCopies(string) []string           { return w.copies }
func (w *town) Self() peer.ID                        { id, _ := peer.Decode(w.peers[0].ID); return id }
func (w *town) Roster() *membership.Roster           { return membership.NewRoster("aaaaaaaaaaaaaaaa", nil) }
func (w *town) Blamed() []p2p.Blame                  { return w.blamed }
func (w *town) Contacts() []peer.AddrInfo            { return nil }
func (w *town) Wiping() []peer.ID                    { return w.wiping }
func (w *town) NameOf(id peer.ID) string             { return "name of " + id.String()[48:] }
func (w *town) Control(to peer.ID) http.RoundTripper { return townLoad{w, to.String()} }
func (w *town) note(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	kind, _, _ := strings.Cut(what, " ")
	if err := w.refuse[kind]; err != nil {
		return err
	}
	w.wrote = append(w.wrote, what)
	return nil
}

// state of a peer that is written about.
func (w *town) of(id peer.ID) *scheduler.PeerState {
	for i := range w.peers {
		if w.peers[i].ID == id.String() {
			return &w.peers[i]
		}
	}
	return &scheduler.PeerState{}
}

func (w *town) InStep(_ context.Context, id peer.ID) (int, error) {
	if behind, ok := w.behind[id.String()]; ok {
		return behind, nil
	}
	return 0, errors.New("no answer")
}

func (w *town) CheckSettings(_ peer.ID, _ *string, _ map[string]string) error {
	return w.refuse["check"]
}

func (w *town) SetPolicy(id peer.ID, role membership.Role, trust membership.Trust) error {
	if err := w.note("policy %s %s", role, trust); err != nil {
		return err
	}
	if trust != "" {
		w.of(id).Trust = string(trust)
	}
	return nil
}

func (w *town) SetName(id peer.ID, name string) error {
	w.of(id).Name = name
	return w.note("name %s", name)
}

func (w *town) KeepName(_ peer.ID, name string) error { return w.note("kept %s", name) }

func (w *town) SetLabel(id peer.ID, key, value string) error {
	w.of(id).Labels = map[string]string{key: value}
	return w.note("label %s=%s", key, value)
}

func (w *town) Cordon(id peer.ID, on bool) error {
	w.of(id).Cordoned = on
	return w.note("cordon %v", on)
}

func (w *town) Drain(id peer.ID, on bool) error {
	w.of(id).Draining = on
	return w.note("drain %v", on)
}

func (w *town) Revoke(id peer.ID, wipe bool) error {
	w.revoked = append(w.revoked, fmt.Sprint(w.of(id).Name, " ", wipe))
	return w.refuse["revoke"]
}

// townLoad answers how busy a peer is, where that is in load.
type townLoad struct {
	w  *town
	to string
}

func (l townLoad) RoundTrip(*http.Request) (*http.Response, error) {
	if !l.w.load[l.to] {
		return nil, errors.New("no answer")
	}
	answer := httptest.NewRecorder()
	_, _ = answer.WriteString("[]")
	return answer.Result(), nil
}

// ids of three peers.
var townIDs = [3]string{
	"12D3KooWQgmNLoZYvGmMVHtVYhYUBUsTpGKJ8RqVxGvFz2sYT1jw", "12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf", "12D3KooWHwzFz7zwCqkyeFm6cQyVRDVCQGpYwVBmdmUkzcYt8nHR",
}

func newTown(t *testing.T) (*Control, *town) {
	t.Helper()
	w := &town{refuse: map[string]error{}, behind: map[string]int{townIDs[1]: 0}, load: map[string]bool{townIDs[1]: true}}
	seen := 5 * time.Minute.Seconds()
	for i, name := range []string{"attic", "den", "cellar"} {
		w.peers = append(w.peers, scheduler.PeerState{ID: townIDs[i], Name: name, Role: "member", Trust: "replicas", State: "alive", Self: i == 0,
			Labels: map[string]string{}, LastSeen: &seen, Link: scheduler.LinkState{Path: "direct"}})
	}
	c := &Control{Mesh: w, Scheduler: w, Members: w, Keys: noKeys{}, Leave: func(wipe bool) error {
		w.left = append(w.left, wipe)
		return nil
	}}
	return c, w
}

func post[T any](t *testing.T, c *Control, path, body string) (answer T, refusal *ControlError) {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	got := httptest.NewRecorder()
	c.Handler().ServeHTTP(got, httptest.NewRequest(method, path, strings.NewReader(body)))
	if got.Code != http.StatusOK {
		var line struct{ Error *ControlError }
		if err := json.Unmarshal(got.Body.Bytes(), &line); err != nil || line.Error == nil {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
		return answer, line.Error
	}
	if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return answer, nil
}

// All is checked before anything is written, what may still be refused is written
// first, and the answer says what changed.
func TestSetPeer(t *testing.T) {
	c, w := newTown(t)
	a, no := post[SetAnswer](t, c, "/v0/peer/set",
		`{"peer":"den","trust":"client","name":"lab","labels":{"room":"top"},"cordon":true,"drain":true}`)
	if no != nil {
		t.Fatal(no)
	}
	if want := []string{"policy  client", "name lab", "label room=top", "cordon true", "drain true"}; !slices.Equal(w.wrote, want) {
		t.Errorf("wrote %q", w.wrote)
	}
	want := []string{"name is lab (was den)", "trust is client (was replicas)", "label room is top",
		"cordoned: nothing that does not run there is placed there", "draining: what runs there moves away"}
	if a.Peer.Name != "lab" || !slices.Equal(a.Changed, want) {
		t.Errorf("%+v", a)
	}
	if a, no := post[SetAnswer](t, c, "/v0/peer/set", `{"peer":"lab","cordon":true}`); no != nil || a.Changed == nil || len(a.Changed) > 0 {
		t.Errorf("again: %+v %v", a, no)
	}
	if a, no := post[SetAnswer](t, c, "/v0/peer/set", `{"peer":"lab","cordon":false,"labels":{"room":"below"}}`); no != nil ||
		!slices.Equal(a.Changed, []string{"label room is below (was top)", "not cordoned any more"}) {
		t.Errorf("back: %+v %v", a, no)
	}

	for body, want := range map[string]string{
		`{"peer":"cellar"}`:                             "say what is to be changed",
		`{"peer":"nosuch","cordon":true}`:               `no peer "nosuch"`,
		`{"peer":"cellar","trust":"king"}`:              `"king" is no trust`,
		`{"peer":"cellar","role":"king"}`:               `"king" is no role`,
		`{"peer":"cellar","colour":"red"}`:              "colour",
		`{"peer":"cellar","name":"attic","drain":true}`: "taken",
		`{"peer":"cellar","role":"member","name":"x"}`:  "last admin",
	} {
		w.wrote = nil
		w.refuse = map[string]error{"check": scheduler.Errorf(scheduler.NameTaken, "taken")}
		if strings.Contains(body, "role") {
			w.refuse = map[string]error{"policy": p2p.ErrLastAdmin}
		}
		if _, no := post[SetAnswer](t, c, "/v0/peer/set", body); no == nil || !strings.Contains(no.Message, want) || len(w.wrote) > 0 {
			t.Errorf("%s: %v, wrote %q", body, no, w.wrote)
		}
	}
}

// The last whole copy of a model is not erased unasked.
func TestWipeAsks(t *testing.T) {
	c, w := newTown(t)
	w.copies = []string{"qwen"}
	for path, name := range map[string]string{"/v0/peer/rm": `"name":"den",`, "/v0/peer/leave": ""} {
		if _, no := post[struct{}](t, c, path, `{`+name+`"wipe":true}`); no == nil || no.Why != "not_allowed" || !strings.Contains(no.Message, "qwen") ||
			!strings.Contains(no.Message, "--last-copy") {
			t.Errorf("%s: %v", path, no)
		}
	}
	if len(w.revoked)+len(w.left)+len(w.wrote) > 0 {
		t.Errorf("done all the same: %v %v %v", w.revoked, w.left, w.wrote)
	}
	p, no := post[RemovedPeer](t, c, "/v0/peer/rm", `{"name":"den","wipe":true,"last_copy":true}`)
	if no != nil || !p.Wipe || p.Name != "den" || !slices.Equal(w.wrote, []string{"kept den"}) {
		t.Errorf("%+v %v, wrote %q", p, no, w.wrote)
	}
	if _, no := post[RemovedPeer](t, c, "/v0/peer/rm", `{"name":"cellar"}`); no != nil {
		t.Error(no)
	}
	if _, no := post[RemovedPeer](t, c, "/v0/peer/rm", `{"name":"12D3KooWKeAA5e2RPD5ctdFrAPqkyn8Z55aQTyuxBCPrRWj7ZiqR","wipe":true}`); no != nil { // Out already.
		t.Error(no)
	}
	w.refuse["revoke"] = p2p.ErrLastAdmin
	if _, no := post[RemovedPeer](t, c, "/v0/peer/rm", `{"name":"den","wipe":true,"last_copy":true}`); no == nil || len(w.wrote) != 1 {
		t.Errorf("refused: %v, wrote %q", no, w.wrote)
	}
	for _, body := range []string{`{}`, `{"wipe":true,"last_copy":true}`, `null`} {
		if _, no := post[struct{}](t, c, "/v0/peer/leave", body); no != nil {
			t.Error(no)
		}
	}
	if want := []string{"den true", "cellar false", " true", "den true"}; !slices.Equal(w.revoked, want) {
		t.Errorf("revoked: %q", w.revoked)
	}
	if !slices.Equal(w.left, []bool{false, true, false}) {
		t.Errorf("left: %v", w.left)
	}
}

// Status says who is behind, who did not answer either question, who is to erase
// itself, and who was cut off.
func TestStatusNamesWhoDidNotAnswer(t *testing.T) {
	c, w := newTown(t)
	key, _, err := p2p.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	table, err := record.NewTable(record.Options{Storage: recordtest.NewMemory(), Key: key, Rights: membersMay{}})
	if err != nil {
		t.Fatal(err)
	}
	c.Mesh = withTable{w, table}
	w.behind[townIDs[1]] = 12
	w.load[townIDs[2]] = true // It answers one of two.
	w.wiping = []peer.ID{w.Self()}
	den, _ := peer.Decode(townIDs[1])
	w.blamed = []p2p.Blame{{Peer: den, Dropped: 17, Until: 29 * time.Second}}
	s := c.Status(t.Context())
	for i, want := range []string{"0", "12", "?"} {
		got := "?"
		if b := s.Peers[i].Behind; b != nil {
			got = fmt.Sprint(*b)
		}
		if got != want {
			t.Errorf("%s is %s behind, want %s", s.Peers[i].Name, got, want)
		}
	}
	if !slices.Equal(s.Unanswered, []string{townIDs[2]}) {
		t.Errorf("not answered: %v", s.Unanswered)
	}
	if len(s.Wiping) != 1 || s.Wiping[0].ID != townIDs[0] || !strings.HasPrefix(s.Wiping[0].Name, "name of") {
		t.Errorf("to be erased: %+v", s.Wiping)
	}
	want := "name of " + townIDs[1][48:] + " sent 17 things that no honest peer sends; they were dropped, and it is kept out for 29s more (relay peer rm takes it out of the mesh)"
	if !slices.Contains(s.Warnings, want) {
		t.Errorf("warnings: %q", s.Warnings)
	}

	peers, no := post[[]scheduler.PeerState](t, c, "/v0/peers", "")
	if no != nil || *peers[1].Behind != 12 || peers[2].Behind != nil {
		t.Errorf("%+v %v", peers, no)
	}
	w.peers[1].State = "gone" // Then it is not even asked.
	shown, no := post[PeerShown](t, c, "/v0/peer?name=den", "")
	if no != nil || shown.Behind != nil || shown.Addresses == nil || shown.Holds == nil || shown.Runs == nil || shown.Leads == nil {
		t.Errorf("%+v %v", shown, no)
	}
}

type membersMay struct{}

func (membersMay) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

// withTable is a town with records.
type withTable struct {
	*town
	table *record.Table
}

func (w withTable) Table() *record.Table { return w.table }

// TestANameIsNotTakenForAnID: a machine that calls itself what stands for another
// one's id is not what is meant by it, and neither is the other without a word.
func TestANameIsNotTakenForAnID(t *testing.T) {
	den := scheduler.PeerState{ID: "12D3KooWDENxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxAAAAtail", Name: "den"}
	for _, name := range []string{"12D3KooWDEN", "AAAAtail"} {
		if got, err := findPeer([]scheduler.PeerState{den}, name); err != nil || got.ID != den.ID {
			t.Errorf("%q alone: %q, %v", name, got.ID, err)
		}
		other := scheduler.PeerState{ID: "12D3KooWBADxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxBBBBxxxx", Name: name}
		if got, err := findPeer([]scheduler.PeerState{den, other}, name); err == nil {
			t.Errorf("%q is taken for %s", name, got.ID)
		}
	}
}

// noKeys open nothing.
type noKeys struct{}

func (noKeys) Text() string                  { return "" }
func (noKeys) Warning() string               { return "" }
func (noKeys) Local() bool                   { return false }
func (noKeys) Sum(string) keys.Used          { return keys.Used{} }
func (noKeys) DefaultSecret() (string, bool) { return "", false }
func (noKeys) KeepDefault(string) error      { return nil }
