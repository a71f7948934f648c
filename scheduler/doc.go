// Package scheduler is the brain of one peer. From the mesh's records it works
// out which model is led by whom, where each one runs, and which replica answers
// a request; it carries out this peer's own share of that, and says in one
// sentence why for everything that did not go without saying.
//
// What is decided is decided by pure functions over a snapshot, in the packages
// leadership, placement and routing: no clock, no network, no database. This
// package gathers the snapshots and has the effects.
//
// It promises that a worker never obeys a lower fence than one that it obeyed
// before, and never starts what its own ledger does not cover. It never sees
// the text of a prompt or an answer.
package scheduler
