package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/api/metrics"
	"relay/p2p"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler"
	"relay/store/content"
)

// maxControlBody bounds a request to the control API, in bytes.
const maxControlBody = 1 << 20

// ControlMesh is what the control API needs of the mesh.
type ControlMesh interface {
	Self() peer.ID
	Roster() *membership.Roster
	Table() *record.Table
	Invite(p2p.InviteOptions) (invite membership.Invite, lanOnly bool, err error)
	Control(peer.ID) http.RoundTripper
	// InStep compares records with a member that is linked now: behind is how
	// many it lacked or had older. It fails at once where there is no link.
	InStep(ctx context.Context, id peer.ID) (behind int, err error)
	// Blamed lists the members that sent what no honest one sends.
	Blamed() []p2p.Blame
	// Contacts are the other members that can be dialled.
	Contacts() []peer.AddrInfo
}

// ControlScheduler is what the control API needs of the scheduler.
type ControlScheduler interface {
	Peers() []scheduler.PeerState
	ModelStates() []scheduler.ModelState
	Model(name string) (scheduler.ModelState, error)
	Decisions() []scheduler.Decision
	InFlight() map[string]int
	// Workload lists this peer's own replicas.
	Workload() []scheduler.Workload
	// Plan says in which ways a model could run.
	Plan(name string) (scheduler.PlanState, error)
	// Act asks the leader of a model for something, Obey does what another peer asks
	// of this one as a leader.
	Act(ctx context.Context, name string, act scheduler.Act) (scheduler.Acted, error)
	Obey(from peer.ID, uid string, act scheduler.Act) (text string, err error)
	// TensorsOf says where the tensors of a worker's layers lie.
	TensorsOf(from peer.ID, uid string) ([]scheduler.TensorAt, error)
	// LastCopies names the models of which a peer has pulled the only whole copy
	// within reach.
	LastCopies(id string) []string
	Add(ctx context.Context, o scheduler.AddOptions, progress func(content.Progress)) (scheduler.Outcome, error)
	Pull(ctx context.Context, o scheduler.PullOptions, progress func(content.Progress)) (scheduler.Outcome, error)
	StopPull(ctx context.Context, name string, drop bool) (scheduler.Stopped, error)
	Set(name string, o scheduler.SetOptions) (m scheduler.ModelState, changed []string, err error)
	Remove(ctx context.Context, name string, files, lastCopy bool) (scheduler.Removed, error)
	DiskUse() scheduler.DiskUse
	Prune(ctx context.Context, o scheduler.PruneOptions) (scheduler.Pruned, error)
	TakeIn(from peer.ID, list []scheduler.Carried) error
}

// Control is the control API: HTTP and JSON for the command line, on a socket
// that only the owner of the state folder can open. Long work streams one JSON
// object a line: progress, then one result or one error.
type Control struct {
	Mesh      ControlMesh
	MeshID    membership.MeshID
	Scheduler ControlScheduler
	Version   string
	// Door is the URL of this peer's /v1, Keys what opens it.
	Door string
	Keys ControlKeys
	// Lend is what this machine's owner lends.
	Lend scheduler.Lend
	// Audit has the requests that this peer's door answered, KeyName the name of a key of
	// the mesh, and Metrics what this peer counts.
	Audit   ControlAudit
	KeyName func(id string) string
	Metrics *metrics.Metrics
	// DemoPath writes the demo model to disk and says where.
	DemoPath func() (string, error)
	// Join leaves the mesh that this machine is alone in, for that of the invite.
	Join func(ctx context.Context, invite membership.Invite) (JoinAnswer, error)
	// ForgetInvite drops the invite that is kept for the next start.
	ForgetInvite func() error
	// Members changes who is in the mesh; Leave takes this machine out of it, and
	// with wipe erases what it has of it.
	Members MemberMesh
	Leave   func(wipe bool) error
	// Down asks the whole program to stop.
	Down func()
	Log  *slog.Logger

	finding finding
}

// InviteRequest asks for an invite. Zero values mean a member with trust
// replicas, one use, and 24 hours.
type InviteRequest struct {
	Role  membership.Role  `json:"role,omitempty"`
	Trust membership.Trust `json:"trust,omitempty"`
	Uses  int              `json:"uses,omitempty"`
	// TTLSeconds is how long the invite holds.
	TTLSeconds int64  `json:"ttl_s,omitempty"`
	Label      string `json:"label,omitempty"`
}

const (
	// MaxInviteUses and MaxInviteTTL bound what an invite allows.
	MaxInviteUses = 1000
	MaxInviteTTL  = 366 * 24 * time.Hour
)

// check names what an invite cannot be.
func (q InviteRequest) check() error {
	switch {
	case q.Uses < 0 || q.Uses > MaxInviteUses:
		return scheduler.Errorf(scheduler.InvalidRequest, "an invite for %d machines: 1 to %d are possible", q.Uses, MaxInviteUses)
	case q.TTLSeconds < 0 || q.TTLSeconds > int64(MaxInviteTTL/time.Second):
		return scheduler.Errorf(scheduler.InvalidRequest, "an invite for %d seconds: 1 to %d are possible", q.TTLSeconds, MaxInviteTTL/time.Second)
	}
	return checkRights(q.Role, q.Trust)
}

// checkRights names what is no role or no trust; either may be empty.
func checkRights(role membership.Role, trust membership.Trust) error {
	switch role {
	case "", membership.RoleAdmin, membership.RoleMember:
	default:
		return scheduler.Errorf(scheduler.InvalidRequest, "%q is no role: %s or %s", role, membership.RoleAdmin, membership.RoleMember)
	}
	switch trust {
	case "", membership.TrustReplicas, membership.TrustShardOnly, membership.TrustClient:
	default:
		return scheduler.Errorf(scheduler.InvalidRequest, "%q is no trust: %s, %s or %s", trust,
			membership.TrustReplicas, membership.TrustShardOnly, membership.TrustClient)
	}
	return nil
}

// InviteAnswer is an invite, ready to hand over.
type InviteAnswer struct {
	ID     string `json:"id"`
	Invite string `json:"invite"`
	// LANOnly: no address in it can be reached from the internet.
	LANOnly bool      `json:"lan_only"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses"`
}

// JoinRequest carries an invite, or asks for the kept one to be forgotten.
type JoinRequest struct {
	Invite string `json:"invite,omitempty"`
	Forget bool   `json:"forget,omitempty"`
}

// JoinAnswer says what became of an invite.
type JoinAnswer struct {
	Mesh string `json:"mesh"`
	// Admitter is the name of the peer that let this machine in.
	Admitter string `json:"admitter,omitempty"`
	// Already: this machine is in that mesh; nothing was spent.
	Already bool `json:"already,omitempty"`
	// Pending: the join happens when this peer is next started.
	Pending bool `json:"pending,omitempty"`
	// Forgotten: no invite is kept for the next start any more.
	Forgotten bool `json:"forgotten,omitempty"`
}

// Line is one line of a streamed answer; exactly one field is set.
type Line[T any] struct {
	Progress *ProgressLine `json:"progress,omitempty"`
	Result   *T            `json:"result,omitempty"`
	Error    *ControlError `json:"error,omitempty"`
}

// ProgressLine is how far long work is.
type ProgressLine struct {
	// Phase is plan, check, fetch, hash, start, wait or finish; Why says in words what
	// is waited for.
	Phase string `json:"phase"`
	Why   string `json:"why,omitempty"`
	// Done of Total bytes are done; Total is -1 while it is not known.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Fetched is how many bytes came from other peers in this run, Rate how many
	// came of late each second, and Left in how many seconds the rest is here at
	// that rate; it is left out while nobody can say.
	Fetched int64    `json:"fetched"`
	Rate    float64  `json:"rate"`
	Left    *float64 `json:"left_s,omitempty"`
	// From are the peers that it comes from, the most first.
	From []SourceLine `json:"from,omitempty"`
}

// SourceLine is one peer's part in a pull: the bytes that came from it in this
// run, and of late each second. Who has no name sends single blocks.
type SourceLine struct {
	Name  string  `json:"name"`
	Bytes int64   `json:"bytes"`
	Rate  float64 `json:"rate"`
}

// ControlError is a refusal of the control API.
type ControlError struct {
	Why     string `json:"reason"`
	Message string `json:"message"`
}

func (e *ControlError) Error() string { return e.Message }

// Reason is the word for the refusal.
func (e *ControlError) Reason() string { return e.Why }

// Handler answers /v0.
func (c *Control) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v0/status", atOnce(c, func(r *http.Request) (Status, error) { return c.Status(r.Context()), nil }))
	mux.HandleFunc("GET /v0/peers", atOnce(c, func(r *http.Request) ([]scheduler.PeerState, error) {
		peers := c.Scheduler.Peers()
		if r.URL.Query().Get("ask") != "no" { // Then it is what this peer knows, at once.
			c.askInStep(r.Context(), peers)
		}
		return peers, nil
	}))
	mux.HandleFunc("POST /v0/invite", atOnce(c, c.invite))
	c.routeMembers(mux)
	c.routeSettings(mux)
	c.routeModels(mux)
	c.routeActs(mux)
	c.routeKeys(mux)
	c.routeAudit(mux)
	mux.HandleFunc("POST /v0/join", atOnce(c, c.join))
	mux.HandleFunc("POST /v0/down", atOnce(c, func(*http.Request) (struct{}, error) {
		c.Down()
		return struct{}{}, nil
	}))
	return http.MaxBytesHandler(mux, maxControlBody)
}

func (c *Control) invite(r *http.Request) (InviteAnswer, error) {
	var q InviteRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return InviteAnswer{}, err
	}
	if err := q.check(); err != nil {
		return InviteAnswer{}, err
	}
	o := p2p.InviteOptions{Role: q.Role, Trust: q.Trust, Uses: q.Uses, TTL: time.Duration(q.TTLSeconds) * time.Second, Label: q.Label}
	if o.Role == "" {
		o.Role = membership.RoleMember
	}
	if o.Trust == "" {
		o.Trust = membership.TrustReplicas
	}
	if o.Uses == 0 {
		o.Uses = 1
	}
	if o.TTL == 0 {
		o.TTL = membership.DefaultInviteTTL
	}
	invite, lanOnly, err := c.Mesh.Invite(o)
	if err != nil {
		return InviteAnswer{}, err
	}
	return InviteAnswer{ID: invite.ID(), Invite: invite.String(), LANOnly: lanOnly, Expires: time.Now().Add(o.TTL), Uses: o.Uses}, nil
}

func (c *Control) join(r *http.Request) (JoinAnswer, error) {
	var q JoinRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return JoinAnswer{}, err
	}
	if q.Forget {
		return JoinAnswer{Forgotten: true}, c.ForgetInvite()
	}
	invite, err := membership.ParseInvite(q.Invite)
	if err != nil {
		return JoinAnswer{}, err
	}
	if invite.Mesh == c.MeshID {
		return JoinAnswer{Mesh: string(c.MeshID), Already: true}, nil
	}
	if others := len(c.Mesh.Roster().Members()) - 1; others > 0 {
		return JoinAnswer{}, scheduler.Errorf(scheduler.InMesh, "this machine is in %q with others; leave it first (relay peer leave), then join", c.meshName())
	}
	return c.Join(r.Context(), invite)
}

// decodeBody reads what a command of this machine sent. A field that is not
// known is refused: it would be a wish that is not honoured.
func decodeBody(body io.Reader, v any) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	return badBody(d.Decode(v))
}

// decodePeerBody reads what another peer sent, whose release may know more.
func decodePeerBody(body io.Reader, v any) error { return badBody(json.NewDecoder(body).Decode(v)) }

func badBody(err error) error {
	if err == nil {
		return nil
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return scheduler.Errorf(scheduler.RequestTooLarge, "the request is larger than the %d bytes that are taken: %w", large.Limit, err)
	}
	return scheduler.Errorf(scheduler.InvalidRequest, "the request is not what this route takes: %w", err)
}

// atOnce serves a question that is answered at once.
func atOnce[T any](c *Control, f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := f(r)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			no := c.refusal(err)
			verdict, _ := verdictOf(scheduler.Reason(no.Why))
			w.WriteHeader(verdict.status)
			_ = json.NewEncoder(w).Encode(Line[T]{Error: no})
			return
		}
		_ = json.NewEncoder(w).Encode(result)
	}
}

// inLines serves long work: lines of progress, then the outcome.
func inLines[T any](c *Control, f func(context.Context, io.Reader, func(ProgressLine)) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // Whole, so that the connection shows when the asker goes.
		if err != nil {
			atOnce(c, func(*http.Request) (T, error) {
				var none T
				return none, badBody(err)
			})(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		flush := http.NewResponseController(w)
		encoder := json.NewEncoder(w)
		var mu sync.Mutex
		say := func(l Line[T]) {
			mu.Lock()
			defer mu.Unlock()
			_ = encoder.Encode(l)
			_ = flush.Flush()
		}
		result, err := f(r.Context(), bytes.NewReader(body), func(p ProgressLine) { say(Line[T]{Progress: &p}) })
		if err != nil {
			say(Line[T]{Error: c.refusal(err)})
			return
		}
		say(Line[T]{Result: &result})
	}
}

func (c *Control) refusal(err error) *ControlError {
	why := scheduler.ReasonOf(err)
	if _, known := verdictOf(why); !known {
		why = scheduler.Internal
	}
	if why == scheduler.Internal && !errors.Is(err, context.Canceled) {
		c.Log.Error("control request failed", "error", err)
	}
	return &ControlError{string(why), err.Error()}
}
