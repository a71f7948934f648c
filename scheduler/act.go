package scheduler

import (
	"context"

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

// Act asks the leader of a model, named by name, uid or CID, for something. All
// but ActWant are for admins' machines. Errors are of type *Error.
func (s *Scheduler) Act(ctx context.Context, name string, act Act) (Acted, error) {
	return Acted{}, Errorf(Internal, "not yet")
}

// Obey does what another peer asks of this one as the leader of a model; what
// happens now is said in words. A peer that does not lead it refuses with
// Superseded.
func (s *Scheduler) Obey(from peer.ID, uid string, act Act) (string, error) {
	return "", Errorf(Internal, "not yet")
}
