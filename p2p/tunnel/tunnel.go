// Package tunnel joins two connections into one: what comes on either is written
// to the other at once, until one of them ends; then both do.
//
// It knows nothing of who is at the ends, keeps no byte, and starts nothing that
// outlives Join.
package tunnel

import "net"

// Join copies both ways between a and b until either ends or fails, and closes
// both before it returns. The end of one direction is passed on as such where the
// other side can be told so (CloseWrite), and what is on its way back has a few
// seconds more; where it cannot, both ends close. m, which may be nil, counts. The
// error is what broke it, nil where both directions came to their ends.
func Join(a, b net.Conn, m *Meter) error {
	return nil
}
