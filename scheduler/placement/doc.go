// Package placement decides on which peers a model runs, and which way.
//
// It promises: the same model and the same snapshot give the same plan,
// whatever order the peers come in; a plan never asks more memory of a device
// than is free there, or than unloading idle models would free where that is
// allowed; what runs is left where and as it runs; and there is one sentence for
// what was chosen and one for each peer that was not.
//
// It is pure: no clock, no network, no goroutine, no memory between calls. The
// peer that is to run a model has the last word (package ledger); a plan only
// says what should work by what that peer told.
package placement
