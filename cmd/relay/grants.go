package main

import (
	"relay/p2p/keys"
	"relay/scheduler"
)

// grants gives every key of the ring all that there is.
type grants struct{ *keys.Ring }

func (g grants) Check(secret string) (keys.Grant, error) {
	id, ok := g.Ring.Check(secret)
	if !ok {
		return keys.Grant{}, scheduler.Errorf(scheduler.InvalidKey, "the key is unknown, was taken back or has expired; an admin can list keys and make one")
	}
	return keys.Grant{ID: id, Name: id}, nil
}
