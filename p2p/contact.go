package p2p

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// KindContact is where a peer can be dialled and what it is called; one per
// peer, written by itself.
const KindContact = "contact"

// maxContactAddrs bounds the addresses a peer may publish.
const maxContactAddrs = 32

// Contact is the payload of a contact record.
type Contact struct {
	Name  string   `cbor:"1,keyasint"`
	Addrs [][]byte `cbor:"2,keyasint,omitempty"`
	// Agent is the program and version.
	Agent string `cbor:"3,keyasint,omitempty"`
	// Instance tells one run of the peer from another, and Since is the
	// incarnation with which it came to the mesh, 0 before: see lookForTwin.
	Instance []byte `cbor:"4,keyasint,omitempty"`
	Since    uint64 `cbor:"5,keyasint,omitempty"`
}

func checkContact(r record.Record) error {
	var c Contact
	if err := record.Unmarshal(r.Payload, &c); err != nil {
		return err
	}
	if len(c.Addrs) > maxContactAddrs || len(c.Agent) > 128 || len(c.Instance) > instanceBytes {
		return errors.New("a contact record is too long")
	}
	return membership.CheckName(c.Name)
}

// publishContact writes this peer's contact record if it says anything new.
func (n *Node) publishContact() error {
	c := Contact{Name: n.Name, Agent: n.Agent, Instance: n.life.instance, Since: n.life.since.Load()}
	for _, a := range n.host.Addrs() {
		if len(c.Addrs) < maxContactAddrs {
			c.Addrs = append(c.Addrs, a.Bytes())
		}
	}
	if old, ok := n.contactRecord(n.self); ok && old.Name == c.Name && old.Agent == c.Agent &&
		slices.Equal(old.Instance, c.Instance) && old.Since == c.Since && slices.EqualFunc(old.Addrs, c.Addrs, slices.Equal) {
		return nil
	}
	return n.PutOwned(KindContact, n.self.String(), c)
}

func (n *Node) contactRecord(id peer.ID) (Contact, bool) {
	var c Contact
	r, ok := n.table.Get(KindContact, id.String())
	return c, ok && record.Unmarshal(r.Payload, &c) == nil
}

// contact lists where a member says it can be dialled.
func (n *Node) contact(id peer.ID) ([]ma.Multiaddr, bool) {
	c, ok := n.contactRecord(id)
	if !ok {
		return nil, false
	}
	var addrs []ma.Multiaddr
	for _, raw := range c.Addrs {
		if a, err := ma.NewMultiaddrBytes(raw); err == nil {
			addrs = append(addrs, a)
		}
	}
	return addrs, len(addrs) > 0
}

// Contacts lists the other members with where they say they can be dialled;
// those that have not said it are left out.
func (n *Node) Contacts() []peer.AddrInfo {
	var list []peer.AddrInfo
	for _, m := range n.Roster().Members() {
		if addrs, ok := n.contact(m.ID); ok && m.ID != n.self {
			list = append(list, peer.AddrInfo{ID: m.ID, Addrs: addrs})
		}
	}
	return list
}

// NameOf is what an admin has named a member, else what it calls itself, else
// the end of its id.
func (n *Node) NameOf(id peer.ID) string {
	if name := n.settingsOf(id).name; name != "" {
		return name
	}
	if c, ok := n.contactRecord(id); ok {
		return c.Name
	}
	if m, ok := n.Member(id); ok && m.Name != "" {
		return m.Name
	}
	return short(id)
}

// watchAddresses keeps the contact record true while addresses come and go.
func (n *Node) watchAddresses(ctx context.Context) error {
	sub, err := n.host.EventBus().Subscribe(new(event.EvtLocalAddressesUpdated))
	if err != nil {
		return err
	}
	defer sub.Close()
	again := time.NewTicker(time.Minute) // Interfaces change without an event on some systems.
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sub.Out():
		case <-again.C:
		}
		if err := n.publishContact(); err != nil {
			n.log.Warn("contact not published", "error", err)
		}
	}
}
