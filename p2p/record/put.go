package record

import (
	"fmt"
	"slices"
)

const (
	// maxStep is how far an epoch written here may lie above the one that is kept.
	maxStep = 1 << 16
	// finalStep is how far the version of a deletion that is for ever lies above the
	// one that is kept: so often nobody writes a key on the other side of a cut.
	finalStep = 1 << 20
)

// PutOwned writes a record of an owned kind under this peer's next version. Like
// all writers it returns after the record is stored and visible, and published.
// Errors: ErrUnknownKind, ErrPayload, ErrNotAllowed, ErrNotMember, ErrFull,
// ErrExhausted, ErrStorage.
func (t *Table) PutOwned(kind, id string, payload []byte) (Signed, error) {
	return t.put(Owned, kind, id, live(payload), t.nextOwned)
}

// DeleteOwned marks the key of an owned kind as deleted; ErrNotFound where it
// is not live.
func (t *Table) DeleteOwned(kind, id string) (Signed, error) {
	return t.put(Owned, kind, id, deleted, t.nextOwned)
}

// PutShared writes a record of a shared kind under one more than the highest
// version known for the key. It brings a deleted key back; of a kind whose
// deletions are final it is ErrNotFound.
func (t *Table) PutShared(kind, id string, payload []byte) (Signed, error) {
	says := live(payload)
	if t.kinds[kind].Final {
		says = unlessDeleted(says)
	}
	return t.put(Shared, kind, id, says, nextShared)
}

// DeleteShared marks the key of a shared kind as deleted; ErrNotFound where it
// is not live.
func (t *Table) DeleteShared(kind, id string) (Signed, error) {
	return t.put(Shared, kind, id, deleted, t.nextDeletion(kind))
}

// PutPlacement writes the placement of a model under a version that its leader
// chose: (epoch, rank, sequence). ErrSuperseded where it is not above the kept
// one, ErrPayload where its epoch lies more than 2^16 above it.
func (t *Table) PutPlacement(id string, version Version, payload []byte) (Signed, error) {
	return t.put(Placement, t.placed, id, live(payload), func(kept *Signed) (Version, error) {
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

// content is what a record to be written says of its key.
type content struct {
	deleted bool
	payload []byte
}

// live is the content of a live record, whatever is kept.
func live(payload []byte) func(*Signed) (content, error) {
	c := content{payload: slices.Clone(payload)}
	return func(*Signed) (content, error) { return c, nil }
}

// unlessDeleted is what says says, of a key that is not deleted.
func unlessDeleted(says func(*Signed) (content, error)) func(*Signed) (content, error) {
	return func(kept *Signed) (content, error) {
		if kept != nil && kept.Deleted {
			return content{}, ErrNotFound
		}
		return says(kept)
	}
}

// deleted is the content of the record that deletes the kept one.
func deleted(kept *Signed) (content, error) {
	if kept == nil || kept.Deleted {
		return content{}, ErrNotFound
	}
	return content{true, kept.Payload}, nil
}

// put checks, seals, stores and publishes a record. What it says, and its
// version, follow from the record that is kept when it is written (nil if none);
// what it would say by the one that is kept before is judged.
func (t *Table) put(rule Rule, kind, id string, says func(kept *Signed) (content, error),
	version func(kept *Signed) (Version, error)) (Signed, error) {
	k, ok := t.kinds[kind]
	if !ok || k.Rule != rule {
		return Signed{}, fmt.Errorf("kind %.40q under the rule %q: %w", kind, rule.String(), ErrUnknownKind)
	}
	if err := checkName(kind, id); err != nil {
		return Signed{}, err
	}
	r := Record{Kind: kind, ID: id, Author: t.self}
	say := func(kept *Signed) error {
		c, err := says(kept)
		if err != nil {
			return fmt.Errorf("record %s: %w", r.Key(), err)
		}
		r.Deleted, r.Payload = c.deleted, c.payload
		return nil
	}
	seal := func(kept *Signed) (Signed, error) {
		if err := say(kept); err != nil {
			return Signed{}, err
		}
		var err error
		if r.Version, err = version(kept); err != nil {
			return Signed{}, fmt.Errorf("record %s: %w", r.Key(), err)
		}
		if err := rule.checkVersion(r.Version); err != nil {
			return Signed{}, fmt.Errorf("record %s: %w", r.Key(), err)
		}
		return Seal(r, t.key)
	}
	for range maxJudged {
		judged := t.voids.Load()
		if err := say(t.kept(r.Key())); err != nil {
			return Signed{}, err
		}
		if verdict, err := t.judgeKind(k, r); err != nil {
			return Signed{}, err
		} else if verdict != Allowed {
			break
		}
		c := &change{key: r.Key(), seal: seal, judged: judged}
		if !t.commit([]*change{c}) {
			continue
		}
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
	return Signed{}, fmt.Errorf("record %s by this peer: %w", r.Key(), ErrNotMember)
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

// nextDeletion is nextShared for a record that deletes a key.
func (t *Table) nextDeletion(kind string) func(*Signed) (Version, error) {
	if !t.kinds[kind].Final {
		return nextShared
	}
	return func(kept *Signed) (Version, error) {
		v, err := nextShared(kept)
		if err == nil && !kept.Deleted {
			v[0] = min(kept.Version[0]+finalStep, MaxCount-1)
		}
		return v, err
	}
}
