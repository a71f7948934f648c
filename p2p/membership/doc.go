// Package membership decides who belongs to a mesh: the mesh key and its id,
// invites as strings and as records, and the chain of signatures by which one
// member's record proves itself back to the mesh key.
//
// Everything here is a function of the records and bytes it is given. It opens
// no connection and keeps no clock: the one time that matters, an invite's
// expiry, is handed in by the one machine that acts on it.
package membership
