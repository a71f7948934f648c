package main

import (
	"relay/p2p/keys"
	"relay/store"
)

// controlKeys is what the control API needs of keys: those that open the door, what
// they use, and where this machine keeps the text of one.
type controlKeys struct {
	*keys.Ring
	*keys.Meter
	m *machine
}

func (k controlKeys) DefaultSecret() (secret string, made bool) { return k.m.defaultKey() }

func (k controlKeys) KeepDefault(secret string) error {
	return store.WriteSecret(k.m.tree.DefaultKey(), []byte(secret+"\n"))
}
