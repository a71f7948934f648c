package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Act is what somebody may ask of the leader of a model.
type Act string

const (
	// ActWant: somebody waits for the model. It is asked again while that is so.
	ActWant Act = "want"
	// ActLoad has it loaded now, ActUnload has its replicas finish their requests and
	// end; it is loaded again when it is asked for.
	ActLoad   Act = "load"
	ActUnload Act = "unload"
	// ActSpread has it loaded now, on several peers, also where one holds it or that is
	// slow; ActLoad and ActUnload end that.
	ActSpread Act = "spread"
	// ActRestart has its engines started anew, one after another, without a gap where
	// there is room.
	ActRestart Act = "restart"
	// ActRetry has it tried again where its engine failed.
	ActRetry Act = "retry"
)

// Acted is what came of an act.
type Acted struct {
	Model ModelState `json:"model"`
	// Leader is the id of the peer that was asked.
	Leader string `json:"leader"`
	// Text says in words what happens now.
	Text string `json:"text"`
}

// Act asks the leader of a model, named by name, uid, CID or alias, for something. All
// but ActWant are for admins' machines. Errors are of type *Error.
func (s *Scheduler) Act(ctx context.Context, name string, act Act) (Acted, error) {
	v := s.newView()
	m := v.resolve(name)
	if m == nil {
		return Acted{}, v.unknown(name)
	}
	if act != ActWant {
		if s.mayChangeModels() != nil {
			return Acted{}, Errorf(NotAllowed, "models are loaded, unloaded, restarted and tried again on an admin's machine (relay peer ls shows which)")
		}
	}
	p, ok := v.placements[m.uid]
	leader := v.peer[p.leader]
	if !ok || !v.inForce(p) || !leader.alive() {
		return Acted{}, &Error{Why: ModelLoading, Retry: RetryLater, RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("model %q: its leader is being elected", m.shown)}
	}
	text, err := "", error(nil)
	if leader.Self {
		text, err = s.Obey(s.Mesh.Self(), m.uid, act)
	} else {
		text, err = s.tellLeader(ctx, leader, m.uid, act)
	}
	if err != nil {
		return Acted{}, err
	}
	state, err := s.Model(m.uid)
	return Acted{Model: state, Leader: leader.id, Text: text}, err
}

// ActRequest is what a peer asks of the leader of a model: the body of POST /act.
type ActRequest struct {
	UID string `json:"uid"`
	Act Act    `json:"act"`
}

// ActAnswer says what happens now.
type ActAnswer struct {
	Text string `json:"text"`
}

const maxActAnswer = 64 << 10

// tellLeader asks another peer.
func (s *Scheduler) tellLeader(ctx context.Context, leader *peerView, uid string, act Act) (string, error) {
	body, err := json.Marshal(ActRequest{uid, act})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://peer/act", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	unreached := func(err error) error {
		return &Error{Why: Unreachable, Retry: RetryLater, Message: fmt.Sprintf("%s, which leads the model, does not answer: %v", leader.Name, err), Err: err}
	}
	response, err := s.Mesh.Control(leader.ID).RoundTrip(r)
	if err != nil {
		return "", unreached(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxActAnswer))
	if err != nil {
		return "", unreached(err)
	}
	if response.StatusCode != http.StatusOK {
		var no struct {
			Error struct {
				Why     Reason `json:"reason"`
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(data, &no) != nil || no.Error.Message == "" || !slices.Contains(Reasons(), no.Error.Why) {
			return "", Errorf(Internal, "%s, which leads the model, answered %d", leader.Name, response.StatusCode)
		}
		return "", Errorf(no.Error.Why, "%s: %s", leader.Name, told(no.Error.Message))
	}
	var a ActAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return "", Errorf(Internal, "%s, which leads the model, answered what is no answer", leader.Name)
	}
	return told(a.Text), nil
}

// maxAsked bounds what is asked of a leader between two decisions.
const maxAsked = 1024

// Obey does what another peer asks of this one as the leader of a model; what
// happens now is said in words. A peer that does not lead it refuses with
// Superseded.
func (s *Scheduler) Obey(from peer.ID, uid string, act Act) (string, error) {
	v := s.newView()
	m := v.model[uid]
	if m == nil {
		return "", Errorf(ModelNotFound, "there is no such model here")
	}
	if p, ok := v.placements[uid]; !ok || p.leader != s.self {
		return "", Errorf(Superseded, "model %q is led by another peer by now", m.shown)
	}
	ready := m.serves(v)
	texts := map[Act]string{
		ActWant: "it is to be loaded", ActLoad: "it is to be loaded", ActSpread: "it is to be loaded on several peers", ActUnload: "it is unloaded once its requests are finished, and loaded again when somebody asks for it",
		ActRestart: "its engines are started anew, one after another", ActRetry: "it is tried again where its engine failed",
	}
	text, ok := texts[act]
	switch {
	case !ok:
		return "", Errorf(InvalidRequest, "%q is nothing that a model's leader does", act)
	case act == ActUnload && m.kept():
		return "", Errorf(InvalidRequest, "model %q %s", m.shown, m.keptText())
	case act == ActRetry && !s.failedSomewhere(v, m):
		return "nothing of it failed anywhere: there is nothing to try again", nil
	case act == ActLoad && ready && !v.placements[uid].Spread:
		return "it is loaded already", nil
	case act == ActRestart && !ready:
		return "", Errorf(InvalidRequest, "model %q does not run: there is nothing to restart", m.shown)
	}
	l := s.lead
	l.mu.Lock()
	known := slices.Contains(l.asked, ask{uid, act})
	if !known && len(l.asked) < maxAsked {
		l.asked = append(l.asked, ask{uid, act})
	}
	l.mu.Unlock()
	if act != ActWant {
		s.log.Info("asked for", "model", m.shown, "act", string(act), "by", s.Mesh.NameOf(from))
	}
	s.wake()
	return text, nil
}

// keptText says why a model is not unloaded, and how to change that.
func (m *modelView) keptText() string {
	if m.Pinned {
		return fmt.Sprintf("is pinned: take that away first (relay model set %s --pinned=false)", m.shown)
	}
	return fmt.Sprintf("is to have %s at least: take that away first (relay model set %s --min 0)", counted(m.Min, "replica"), m.shown)
}

// failedSomewhere says whether an engine failed for a model somewhere, or it is
// parked.
func (s *Scheduler) failedSomewhere(v *view, m *modelView) bool {
	return len(v.placements[m.uid].Parked) > 0 || slices.ContainsFunc(m.replicas, func(r replicaView) bool { return r.State == StateFailed || r.Tried != nil })
}
