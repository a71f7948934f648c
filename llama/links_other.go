//go:build !linux

package llama

import "net"

// connectedBy cannot be told here: local users are trusted.
func connectedBy(net.Conn, int) error { return nil }
