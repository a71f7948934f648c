// Package continuation goes on with an answer on another engine than the one that began it.
// A Track keeps what of the answer was delivered: the ids of its tokens, its text, their
// number. At a loss its Plan says what the next engine is asked, in order, or why the answer
// cannot be gone on with; and a Seam turns the chunks of that engine into chunks of the
// first one, so that whoever reads them, the Track too, sees one answer. An answer may be
// lost more than once: the same Track goes on.
//
// Nothing here reads a clock, a network or a disk.
package continuation
