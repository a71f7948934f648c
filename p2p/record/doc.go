// Package record owns the state that peers share: signed, versioned records,
// and the one table of them that every peer keeps a copy of.
//
// It promises that tables which have been offered the same records, in any
// order and any number of times, are equal, and so are their roots; that a
// record is checked (signature, size, form, and the author's right) before it
// is kept; that a record is on disk before the table says it is kept; and that
// Sync makes two tables equal at a cost in proportion to their difference,
// whoever is at the other end of the stream.
//
// It never opens a connection, reads a clock, starts a goroutine that outlives
// a call, or knows what a payload means: kinds are registered by the packages
// that own them, and who may write what is answered by a Rights that is handed
// in.
//
// # What decides between two records of one key
//
// The higher Version; at equal versions the higher author id, then the higher
// hash. Nothing else: neither the time nor the order of arrival. For the same
// reason versions are bounded absolutely (MaxCount) and not by their distance
// to what a table happens to hold: a bound on the distance would refuse on one
// peer what another, which saw the steps between, has kept. Whoever writes is
// held to small steps where he writes (PutPlacement), and workers refuse
// orders that leap (see scheduler/leadership). A key that a hostile writer has
// pushed to the bound can be given up (its model re-added under another uid),
// or comes free when that writer is revoked.
//
// Of an author who has written more than his share of the table only the first
// records stay, in the order of kinds and ids: again nothing that depends on who
// came first. Who writes here is refused before it comes to that. Reserved kinds
// (what takes rights away) have shares of their own beside the table, so that
// nobody keeps them out by filling it.
//
// Deleted records keep their payload and stay for ever: they are small, and
// without them a peer that was away would bring the key back.
//
// # Rights that come later
//
// A record whose author's rights are not known yet is held shortly and offered
// again by Recheck. A record that was kept stays kept when its author's rights
// shrink afterwards, until whoever judges rights takes it away by Void.
//
// Only the last record of a key exists. So nobody's right may rest on a record
// that somebody else can replace: were an admin let in by a shared record, and
// wrote a new version of it, then his right would rest on what he wrote
// himself, and a peer that never saw the first version would never believe any
// of it. A right is proven by what its holder's own record carries (the signed
// invite by itself, not its key), or by a record that has its writer in its
// key.
package record
