// Package leases decides who is asked for which leaves of a file next, while
// several holders send it at once.
//
// It promises that a leaf is under way from one holder at a time, but for the
// last ones, which somebody idle takes over from somebody slow; that nobody is
// asked for what he does not have or sent wrong; and that what few have is asked
// for before what many have.
//
// It knows no network, no clock and no file: the caller says what came, when,
// and how fast.
package leases
