package shards

import (
	"time"

	"relay/scheduler/ways"
)

// Plan is who runs the model together, and how.
type Plan struct {
	// Coordinator is a member's id.
	Coordinator string
	// Way is the coordinator's, of the kind Shards; its Group has the shares and no ID yet.
	Way ways.Way
	// Verdict is Fits, or Evicts where idle models have to go first on some of them.
	Verdict ways.Verdict
	// Load is about how long the coordinator takes to load: it reads and hashes the whole file.
	Load time.Duration
	// Text says why and where, with the predicted speed and who was left out why, in
	// one sentence that does not name the model; Layers is the part of it that says
	// where the layers are and how fast that is.
	Text, Layers string
}

// Refusal is why there is no plan.
type Refusal struct {
	// Reason is a word of the closed list in scheduler.
	Reason string
	// Text is one sentence that does not name the model.
	Text string
	// Verdict is Later where there would be a plan if nothing else ran anywhere, else Never.
	Verdict ways.Verdict
	// Decode is the predicted tokens/s of what was too slow to be planned, else 0.
	Decode float64
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }

// Form plans a group: the fewest peers, of these the closest, of these the fastest.
// no is nil where there is a plan.
func Form(p Problem) (plan Plan, no *Refusal) { return Plan{}, &Refusal{Verdict: ways.Never} }
