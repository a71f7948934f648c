package record

import (
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Outcome is what became of a record that was offered.
type Outcome int

const (
	// Refused: not kept, and the error says why.
	Refused Outcome = iota
	// Fresh: kept, and stored; worth passing on.
	Fresh
	// Same: this very record was there already.
	Same
	// Stale: a record that beats it was there already.
	Stale
	// Held: nothing is known about the author's rights yet; Recheck decides.
	Held
)

func (o Outcome) String() string {
	switch o {
	case Refused:
		return "refused"
	case Fresh:
		return "fresh"
	case Same:
		return "same"
	case Stale:
		return "stale"
	case Held:
		return "held"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// Offer merges one record that came from outside. The error is nil unless the
// outcome is Refused; only ErrInvalid counts against the sender.
func (t *Table) Offer(s Signed) (Outcome, error) {
	r := t.offerAll([]*Signed{&s})[0]
	if r.out == Held {
		t.held.add(&s)
	}
	return r.out, r.err
}

// result is what became of one record of a batch.
type result struct {
	out    Outcome
	err    error
	crowds bool // See change.
}

// waits says whether the record may be kept once more is known about rights.
func (r result) waits() bool {
	return r.out == Held || errors.Is(r.err, ErrNotAllowed)
}

// offerAll merges a batch with one write to storage. What it calls Held is the
// caller's to hold.
func (t *Table) offerAll(batch []*Signed) (results []result) {
	timely := false
	for n := 0; n < maxJudged && !timely; n++ {
		results, timely = t.tryAll(batch)
	}
	return results
}

// tryAll judges and merges a batch, unless Void runs in between: then nothing is
// kept, and what was to be is called Held.
func (t *Table) tryAll(batch []*Signed) (results []result, timely bool) {
	judged := t.voids.Load()
	results = make([]result, len(batch))
	changes := make([]*change, 0, len(batch))
	at := make([]int, 0, len(batch))
	for i, s := range batch {
		r := &results[i]
		if r.out = t.Known(*s); r.out != Fresh {
			continue
		}
		verdict, err := t.judge(s)
		if err != nil {
			r.out, r.err = Refused, err
			continue
		}
		if verdict == Unknown {
			r.out = Held
			continue
		}
		changes = append(changes, &change{key: s.Key(), offered: s, judged: judged})
		at = append(at, i)
	}
	timely = t.commit(changes)
	for i, c := range changes {
		r := &results[at[i]]
		if !timely {
			r.out = Held
			continue
		}
		r.out, r.err, r.crowds = c.out, c.err, c.crowds
	}
	return results, timely
}

// Known says whether there is nothing to gain from a record: Same or Stale, or
// else Fresh. It spares the checks for what gossip brings again and again.
func (t *Table) Known(s Signed) Outcome {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return against(&s, t.records[s.Key()])
}

// against compares a record with the kept one, which may be nil.
func against(s, kept *Signed) Outcome {
	switch {
	case kept == nil:
		return Fresh
	case s.Hash == kept.Hash:
		return Same
	case s.beats(kept):
		return Fresh
	}
	return Stale
}

// judge checks a record and asks for its author's rights.
func (t *Table) judge(s *Signed) (Verdict, error) {
	if !s.checked {
		return Denied, fmt.Errorf("record %s was neither opened nor sealed: %w", s.Key(), ErrInvalid)
	}
	kind, known := t.kinds[s.Kind]
	if !known {
		kind = Kind{Name: s.Kind, Rule: Foreign}
	}
	if err := kind.Rule.checkVersion(s.Version); err != nil {
		return Denied, fmt.Errorf("record %s: %w", s.Key(), err)
	}
	return t.judgeKind(kind, s.Record)
}

// judgeKind is judge without what a record that is still to be written lacks.
func (t *Table) judgeKind(kind Kind, r Record) (Verdict, error) {
	if kind.Rule == Owned {
		owner, err := kind.Owner(r.ID)
		if err != nil {
			return Denied, fmt.Errorf("record %s: %w: %w", r.Key(), ErrPayload, err)
		}
		if owner != r.Author {
			return Denied, fmt.Errorf("record %s belongs to %s and is signed by %s: %w", r.Key(), short(owner), short(r.Author),
				ErrNotAllowed)
		}
	}
	if kind.Check != nil {
		if err := kind.Check(r); err != nil {
			return Denied, fmt.Errorf("record %s: %w: %w", r.Key(), ErrPayload, err)
		}
	}
	var verdict Verdict
	if kind.Admit != nil {
		verdict = kind.Admit(r)
	} else {
		verdict = t.rights.May(r.Author, kind.Rule, r.Kind, r.ID)
	}
	if verdict == Denied {
		return Denied, fmt.Errorf("record %s by %s: %w", r.Key(), short(r.Author), ErrNotAllowed)
	}
	return verdict, nil
}

// short is the end of a peer id, the part in which ids differ.
func short(id peer.ID) string {
	s := id.String()
	return s[max(0, len(s)-8):]
}
