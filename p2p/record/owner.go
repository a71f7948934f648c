package record

import (
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
)

// OwnerIsID is the Owner of kinds whose id is the id of the peer they are about.
// Of the ways to spell a peer's id only its own String counts: another spelling
// would be another key about the same peer.
func OwnerIsID(id string) (peer.ID, error) {
	p, err := peer.Decode(id)
	if err != nil {
		return "", err
	}
	if p.String() != id {
		return "", fmt.Errorf("%.80q is not how the id of a peer is written: %w", id, ErrPayload)
	}
	return p, nil
}

// OwnerIsFirst is the Owner of kinds whose id begins with the id of a peer and
// a slash.
func OwnerIsFirst(id string) (peer.ID, error) {
	owner, _, ok := strings.Cut(id, "/")
	if !ok {
		return "", fmt.Errorf("the key %.80q names no owner: %w", id, ErrPayload)
	}
	return OwnerIsID(owner)
}
