package api

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/membership"
	"relay/scheduler"
	"relay/store/content"
)

// inviting is a mesh that makes any invite, and a scheduler that takes any
// model in.
type inviting struct {
	ControlMesh
	ControlScheduler
	asked  []p2p.InviteOptions
	taken  []scheduler.Carried
	roster *membership.Roster
}

func (i *inviting) Roster() *membership.Roster { return i.roster }

func (i *inviting) Invite(o p2p.InviteOptions) (membership.Invite, bool, error) {
	i.asked = append(i.asked, o)
	invite, err := membership.NewInvite("aaaaaaaaaaaaaaaa")
	return invite, true, err
}

func (i *inviting) TakeIn(_ peer.ID, list []scheduler.Carried) error {
	i.taken = append(i.taken, list...)
	return nil
}

// quietLog fails a test for every line of a log.
type quietLog struct{ t *testing.T }

func (l quietLog) Write(line []byte) (int, error) {
	l.t.Errorf("logged: %s", line)
	return len(line), nil
}

func newControl(t *testing.T) (*Control, *inviting) {
	i := &inviting{}
	return &Control{Mesh: i, Scheduler: i, Log: slog.New(slog.NewTextHandler(quietLog{t}, nil))}, i
}

func askControl(t *testing.T, h http.Handler, path, body string) (int, *ControlError) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	var line struct{ Error *ControlError }
	if err := json.Unmarshal(w.Body.Bytes(), &line); err != nil {
		t.Fatalf("%s: %d %q: %v", path, w.Code, w.Body, err)
	}
	return w.Code, line.Error
}

// What an invite cannot be is said by name, and nothing is made; it is the
// asker's fault, and not worth a line in the log.
func TestInvitesThatCannotBe(t *testing.T) {
	c, i := newControl(t)
	for body, want := range map[string]string{
		`{"uses":5000}`: "5000 machines", `{"uses":-1}`: "-1 machines", `{"ttl_s":1080000000}`: "seconds", `{"ttl_s":-5}`: "seconds",
		`{"ttl_s":9223372036854775807}`: "seconds", `{"role":"king"}`: `"king" is no role`, `{"trust":"full"}`: `"full" is no trust`,
		`{"colour":"red"}`: "colour", `nonsense`: "not what this route takes",
	} {
		status, err := askControl(t, c.Handler(), "/v0/invite", body)
		if status != http.StatusBadRequest || err == nil || err.Why != string(scheduler.InvalidRequest) || !strings.Contains(err.Message, want) {
			t.Errorf("%s: %d %+v", body, status, err)
		}
	}
	if len(i.asked) > 0 {
		t.Errorf("made: %+v", i.asked)
	}
	for _, body := range []string{`{}`, `{"uses":1000,"ttl_s":31622400,"role":"admin"}`, `{"trust":"shard-only"}`} {
		if status, err := askControl(t, c.Handler(), "/v0/invite", body); status != http.StatusOK || err != nil {
			t.Errorf("%s: %d %+v", body, status, err)
		}
	}
	if len(i.asked) != 3 || i.asked[0].Uses != 1 || i.asked[0].TTL != membership.DefaultInviteTTL || i.asked[1].TTL != 366*24*time.Hour {
		t.Errorf("made: %+v", i.asked)
	}
}

// A body that is too large is refused as such, by every kind of route.
func TestControlBodiesAreBounded(t *testing.T) {
	c, _ := newControl(t)
	body := `{"name":"` + strings.Repeat("x", maxControlBody) + `"}`
	for _, path := range []string{"/v0/model/add", "/v0/model/pull", "/v0/model/rm", "/v0/model/set", "/v0/model/stop", "/v0/cache/prune", "/v0/invite"} {
		status, err := askControl(t, c.Handler(), path, body)
		if status != http.StatusRequestEntityTooLarge || err == nil || err.Why != string(scheduler.RequestTooLarge) {
			t.Errorf("%s: %d %+v", path, status, err)
		}
	}
}

// Peers of another release may say more than this one knows.
func TestPeersMaySayMore(t *testing.T) {
	c, i := newControl(t)
	status, err := askControl(t, c.PeerHandler(), "/carried", `[{"uid":"aaaaaaaaaaaaaaaa","model":{"Name":"m","Colour":"red"},"weight":3}]`)
	if status != http.StatusOK || err != nil || len(i.taken) != 1 || i.taken[0].Model.Name != "m" {
		t.Errorf("%d %+v, %+v", status, err, i.taken)
	}
}

// A line of progress says what is known, and leaves out what is not.
func TestLinesOfProgress(t *testing.T) {
	var many []content.Source
	for range 3 * maxSources {
		many = append(many, content.Source{Name: "den", Bytes: 1})
	}
	for _, c := range []struct {
		p    content.Progress
		want string
	}{
		{content.Progress{Phase: content.PhasePlan, Total: -1, Left: -1}, `{"phase":"plan","done":0,"total":-1,"fetched":0,"rate":0}`},
		{content.Progress{Phase: content.PhaseHash, Done: 1, Total: 2}, `{"phase":"hash","done":1,"total":2,"fetched":0,"rate":0}`},
		{content.Progress{Phase: content.PhaseFetch, Done: 3, Total: 9, Fetched: 2, Rate: 1.5, Left: 4 * time.Second, From: []content.Source{{Name: "den", Bytes: 2, Rate: 1.5}, {}}},
			`{"phase":"fetch","done":3,"total":9,"fetched":2,"rate":1.5,"left_s":4,"from":[{"name":"den","bytes":2,"rate":1.5},{"name":"","bytes":0,"rate":0}]}`},
		{content.Progress{Phase: content.PhaseWait, Why: "no room", Total: 9, Left: -1}, `{"phase":"wait","why":"no room","done":0,"total":9,"fetched":0,"rate":0}`},
	} {
		got, err := json.Marshal(lineOf(c.p))
		if err != nil || string(got) != c.want {
			t.Errorf("%s, want %s (%v)", got, c.want, err)
		}
	}
	if n := len(lineOf(content.Progress{From: many}).From); n != maxSources {
		t.Errorf("%d sources in one line", n)
	}
}

// Only an admin's machine tells another one to pull, or to stop that.
func TestOnlyAdminsTellOthersToPull(t *testing.T) {
	c, i := newControl(t)
	i.roster = membership.NewRoster("aaaaaaaaaaaaaaaa", nil)
	for _, path := range []string{"/pull", "/stop"} {
		status, err := askControl(t, c.PeerHandler(), path, `{"name":"m"}`)
		if status != http.StatusForbidden || err == nil || err.Why != string(scheduler.NotAllowed) {
			t.Errorf("%s: %d %+v", path, status, err)
		}
	}
}

// answering is a mesh whose other peer gives one answer to everything.
type answering struct {
	ControlMesh
	status int
	body   string
}

func (a answering) Control(peer.ID) http.RoundTripper { return a }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// A peer of an older release may know neither pulls nor limits.
func TestPullsOnOlderPeers(t *testing.T) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	to := scheduler.PeerState{ID: id.String(), Name: "old"}
	for _, x := range []struct {
		answer answering
		limit  int64
		want   string // Of the error, else of a warning; "" is neither.
	}{
		{answering{status: 404, body: "404 page not found\n"}, 0, "old answered 404 Not Found (is it of an older version?)"},
		{answering{status: 403, body: `{"error":{"reason":"not_allowed","message":"no"}}`}, 0, "no"},
		{answering{status: 200, body: `{"result":{"name":"m"}}`}, 20, "old is of an older release that knows no limits"},
		{answering{status: 200, body: `{"result":{"name":"m","limit":20}}`}, 20, ""},
		{answering{status: 200, body: `{"result":{"name":"m"}}`}, 0, ""},
		{answering{status: 200, body: `{"progress":{"phase":"fetch"}}` + "\n"}, 0, "the peer went away before it was done"},
	} {
		out, err := peerClient{x.answer}.pull(t.Context(), to, PullRequest{Name: "m", Limit: x.limit}, nil)
		got := strings.Join(out.Warnings, "; ")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, x.want) || x.want == "" && got != "" {
			t.Errorf("%+v: %q", x, got)
		}
	}
}
