package p2p

import "relay/p2p/record"

// PutOwned writes a record of an owned kind under this peer's next version; it
// is on disk when this returns.
func (n *Node) PutOwned(kind, id string, payload any) error {
	data, err := record.Marshal(payload)
	if err != nil {
		return err
	}
	_, err = n.table.PutOwned(kind, id, data)
	return err
}

// PutShared writes a record of a shared kind; only an admin may. What a newer release
// wrote into the one that is kept stays in it.
func (n *Node) PutShared(kind, id string, payload any) error {
	kept, _ := n.table.Get(kind, id)
	data, err := record.MarshalOver(payload, kept.Payload)
	if err != nil {
		return err
	}
	_, err = n.table.PutShared(kind, id, data)
	return err
}

// PutPlacement writes a placement under the version that its leader chose.
func (n *Node) PutPlacement(id string, version record.Version, payload any) error {
	data, err := record.Marshal(payload)
	if err != nil {
		return err
	}
	_, err = n.table.PutPlacement(id, version, data)
	return err
}
