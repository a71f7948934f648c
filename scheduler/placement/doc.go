// Package placement decides on which peers a model runs.
//
// It promises: the same model and the same snapshot give the same plan,
// whatever order the peers come in; a plan never asks more memory of a peer
// than it has free; what runs is left where it runs; and there is one sentence
// for what was chosen and one for each peer that was not.
//
// It is pure: no clock, no network, no goroutine, no memory between calls. The
// peer that is to run a model has the last word (package ledger); a plan only
// says what should work by what that peer told.
package placement
