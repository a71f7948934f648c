package record

import (
	"fmt"
	"slices"
)

// maxStep is how far an epoch written here may lie above the one that is kept.
const maxStep = 1 << 16

// PutOwned writes a record of an owned kind under this peer's next version. Like
// all writers it returns after the record is stored and visible, and published.
// Errors: ErrUnknownKind, ErrPayload, ErrNotAllowed, ErrNotMember, ErrFull,
// ErrExhausted, ErrStorage.
func (t *Table) PutOwned(kind, id string, payload []byte) (Signed, error) {
	return t.put(Owned, Record{Kind: kind, ID: id, Payload: payload}, t.nextOwned)
}

// DeleteOwned marks the key of an owned kind as deleted; ErrNotFound where it
// is not live.
func (t *Table) DeleteOwned(kind, id string) (Signed, error) {
	return t.put(Owned, Record{Kind: kind, ID: id, Deleted: true}, t.nextOwned)
}

// PutShared writes a record of a shared kind under one more than the highest
// version known for the key. It brings a deleted key back.
func (t *Table) PutShared(kind, id string, payload []byte) (Signed, error) {
	return t.put(Shared, Record{Kind: kind, ID: id, Payload: payload}, nextShared)
}

// DeleteShared marks the key of a shared kind as deleted; ErrNotFound where it
// is not live.
func (t *Table) DeleteShared(kind, id string) (Signed, error) {
	return t.put(Shared, Record{Kind: kind, ID: id, Deleted: true}, nextShared)
}

// PutPlacement writes the placement of a model under a version that its leader
// chose: (epoch, rank, sequence). ErrSuperseded where it is not above the kept
// one, ErrPayload where its epoch lies more than 2^16 above it.
func (t *Table) PutPlacement(id string, version Version, payload []byte) (Signed, error) {
	return t.put(Placement, Record{Kind: t.placed, ID: id, Payload: payload}, func(kept *Signed) (Version, error) {
		if kept == nil {
			return version, nil
		}
		if !kept.Version.Less(version) {
			return Version{}, fmt.Errorf("placement %s is known, this is %s: %w", kept.Version, version, ErrSuperseded)
		}
		if version[0]-kept.Version[0] > maxStep {
			return Version{}, fmt.Errorf("from epoch %d to %d is no takeover: %w", kept.Version[0], version[0], ErrPayload)
		}
		return version, nil
	})
}

// put checks, seals, stores and publishes a record.
func (t *Table) put(rule Rule, r Record, version func(kept *Signed) (Version, error)) (Signed, error) {
	kind, ok := t.kinds[r.Kind]
	if !ok || kind.Rule != rule {
		return Signed{}, fmt.Errorf("kind %.40q under the rule %q: %w", r.Kind, rule.String(), ErrUnknownKind)
	}
	if err := checkName(r.Kind, r.ID); err != nil {
		return Signed{}, err
	}
	r.Author = t.self
	r.Payload = slices.Clone(r.Payload)
	if r.Deleted {
		kept, ok := t.Get(r.Kind, r.ID)
		if !ok {
			return Signed{}, fmt.Errorf("record %s: %w", r.Key(), ErrNotFound)
		}
		r.Payload = kept.Payload
	}
	if verdict, err := t.judgeKind(kind, r); err != nil {
		return Signed{}, err
	} else if verdict != Allowed {
		return Signed{}, fmt.Errorf("record %s by this peer: %w", r.Key(), ErrNotMember)
	}
	c := &change{key: r.Key(), seal: func(kept *Signed) (Signed, error) {
		if r.Deleted {
			if kept == nil || kept.Deleted {
				return Signed{}, fmt.Errorf("record %s: %w", r.Key(), ErrNotFound)
			}
			r.Payload = kept.Payload
		}
		var err error
		if r.Version, err = version(kept); err != nil {
			return Signed{}, fmt.Errorf("record %s: %w", r.Key(), err)
		}
		if err := rule.checkVersion(r.Version); err != nil {
			return Signed{}, fmt.Errorf("record %s: %w", r.Key(), err)
		}
		return Seal(r, t.key)
	}}
	t.commit([]*change{c})
	if c.err != nil {
		return Signed{}, c.err
	}
	if c.out != Fresh { // an owned key whose kept incarnation is at the bound
		return Signed{}, fmt.Errorf("record %s: %w", c.key, ErrExhausted)
	}
	if t.publish != nil {
		t.publish(*c.rec)
	}
	return *c.rec, nil
}

// nextOwned is this peer's next version; writing is held. A number once handed
// out is never used again, also when the write fails: what was meant to be
// stored may be on the disk all the same.
func (t *Table) nextOwned(*Signed) (Version, error) {
	if t.sequence+1 >= MaxCount {
		return Version{}, ErrExhausted
	}
	t.sequence++
	return Version{t.incarnation, t.sequence, 0}, nil
}

func nextShared(kept *Signed) (Version, error) {
	if kept == nil {
		return Version{1, 0, 0}, nil
	}
	if kept.Version[0]+1 >= MaxCount {
		return Version{}, ErrExhausted
	}
	return Version{kept.Version[0] + 1, 0, 0}, nil
}
