// Package setback keeps account of what failed where, and says when it may be
// tried again.
//
// It promises: after each failure in a row a model is left alone on that peer for
// longer, and not for the same time everywhere; once an engine failed five times
// in a row with one build, and served nobody in between, the model is parked on
// that peer, and nowhere else, until a person or another build changes that; one
// report counts once.
//
// It is pure: the time is told to it.
package setback
