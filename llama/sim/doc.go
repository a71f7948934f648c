// Package sim is a stand-in for llama.cpp's llama-server, for tests and load.
//
// It owns an HTTP server with the routes, bodies, events and errors of the real
// engine, a small vocabulary of its own, slots, a clock-driven speed, and faults
// on demand. It promises that what it answers is a pure function of the token
// ids so far and a seed, so that two of them given the same question say the
// same, and one can go on where another stopped: the ids of a prompt with those
// of the answer so far behind them get the very rest of it. The seed is that of
// its options; a request's own changes it above temperature 0 only. It never
// computes with a model, never reads a file, and is never what relay uses unless
// it is asked for by name.
package sim

// Version and Commit are what it says that it stands in for.
const (
	Version = "0.4.0-dev"
	Commit  = "80fb11a"
)
