// Package leadership decides which one peer decides where a model runs.
//
// It promises: the same claim and the same candidates give the same leader on
// every peer; the fences that a worker obeys never fall; and once the claims of
// a connected part of the mesh have spread in it, that part has exactly one
// leader, whose orders all its workers obey. An old leader that comes back from
// sleep is not obeyed.
//
// It is pure: no clock, no network, no goroutine, no memory between calls. Peers
// are strings; who is alive and able is the caller's to say.
package leadership
