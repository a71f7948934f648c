// Package p2p is the mesh: the libp2p host, who is let in through it, the
// records that members share, who is alive, the block exchange, and the HTTP
// that peers speak to each other over streams.
//
// It promises that nothing but the join protocol and a stripped identify
// answers somebody who is not a member, that a record it acknowledged is on
// disk, and that every stream it opened is gone when Run returns.
//
// It knows no models, engines or placements: other packages register the kinds
// of record they own, and hand in the handlers and blocks they serve.
package p2p
