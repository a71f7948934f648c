package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
)

// DefaultShares is how many authors fill a table unless told otherwise. Few
// enough that nobody who adds models by the thousand meets his bound (12,500
// records, 8 MiB), and so many that several who write whatever they can leave
// room for the others.
const DefaultShares = 8

// reservedPart is which part of a table's bounds is there on top of them for
// reserved kinds: of a table as large as by default, one author's share of it
// (3,125 records, 2 MiB) holds 2,800 records of 255 bytes, which is what it takes
// to revoke a peer that let nobody in.
const reservedPart = 4

// Share is what the records of one author take of the table, deleted ones too.
type Share struct {
	Records int
	Bytes   int64
}

// claim is what a record's room is counted for: the records of its author that
// are of reserved kinds, or those that are not.
type claim struct {
	author   peer.ID
	reserved bool
}

func (t *Table) claimOf(s *Signed) claim { return claim{s.Author, t.kinds[s.Kind].Reserved} }

// share is what a table has for one claim.
type share struct {
	records []*Signed // as precede orders them
	bytes   int64
}

// Share says what an author's records take, without those of reserved kinds.
func (t *Table) Share(author peer.ID) Share { return t.shareOf(claim{author, false}) }

// Reserved says what an author's records of reserved kinds take.
func (t *Table) Reserved(author peer.ID) Share { return t.shareOf(claim{author, true}) }

// MaxShare is the most that one author's records may take, without those of
// reserved kinds.
func (t *Table) MaxShare() Share { return t.most(false) }

// MaxReserved is the most that one author's records of reserved kinds may take.
func (t *Table) MaxReserved() Share { return t.most(true) }

// most is the most that one claim is good for.
func (t *Table) most(reserved bool) Share { return t.bounds(reserved).part(t.parts) }

// bounds is the most that all records may take which are of reserved kinds, or
// which are not.
func (t *Table) bounds(reserved bool) Share {
	all := Share{t.maxRecords, t.maxBytes}
	if reserved {
		return all.part(reservedPart)
	}
	return all
}

func (t *Table) shareOf(c claim) Share {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return t.shares[c].sum()
}

func (s *share) sum() Share {
	if s == nil {
		return Share{}
	}
	return Share{len(s.records), s.bytes}
}

// exceeds says whether s is more than o in either respect.
func (s Share) exceeds(o Share) bool { return s.Records > o.Records || s.Bytes > o.Bytes }

// within is what of s counts for the table: nobody's records take more than a
// share of it once trim was there.
func (s Share) within(o Share) Share { return Share{min(s.Records, o.Records), min(s.Bytes, o.Bytes)} }

func (s Share) plus(o Share) Share  { return Share{s.Records + o.Records, s.Bytes + o.Bytes} }
func (s Share) minus(o Share) Share { return Share{s.Records - o.Records, s.Bytes - o.Bytes} }
func (s Share) part(n int) Share    { return Share{s.Records / n, s.Bytes / int64(n)} }

// taken is what one record takes.
func taken(s *Signed) Share { return Share{1, cost(s)} }

// precede orders the records of one claim: which of them stay when they are
// more than a share. Kinds go in the order of their registration, so that what
// others' rights depend on is the last to go.
func (t *Table) precede(a, b *Signed) int {
	return cmp.Or(cmp.Compare(t.rank(a.Kind), t.rank(b.Kind)), strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
}

// rank is the place of a kind in the order of registration; unknown ones are last.
func (t *Table) rank(kind string) int {
	if at, ok := t.order[kind]; ok {
		return at
	}
	return len(t.order)
}

// give counts a record for its claim, and take does no longer; as with
// install, reading is held for writing.
func (t *Table) give(s *Signed) {
	c := t.claimOf(s)
	t.sums[c.reserved] = t.sums[c.reserved].plus(taken(s))
	of := t.shares[c]
	if of == nil {
		of = &share{}
		t.shares[c] = of
	}
	at, _ := slices.BinarySearchFunc(of.records, s, t.precede)
	of.records = slices.Insert(of.records, at, s)
	of.bytes += cost(s)
}

func (t *Table) take(s *Signed) {
	c := t.claimOf(s)
	t.sums[c.reserved] = t.sums[c.reserved].minus(taken(s))
	of := t.shares[c]
	at, _ := slices.BinarySearchFunc(of.records, s, t.precede)
	of.records = slices.Delete(of.records, at, at+1)
	of.bytes -= cost(s)
	if len(of.records) == 0 {
		delete(t.shares, c)
	}
}

// room follows what authors' shares, and the table, become within one batch.
type room struct {
	t      *Table
	all    map[bool]Share   // as Table.sums
	shares map[claim]*Share // of the authors in the batch
}

func (t *Table) room() *room {
	return &room{t: t, all: maps.Clone(t.sums), shares: make(map[claim]*Share)}
}

func (r *room) of(c claim) *Share {
	s := r.shares[c]
	if s == nil {
		now := r.t.shares[c].sum()
		s = &now
		r.shares[c] = s
	}
	return s
}

// admit makes room for a record in the place of old, which may be nil; own says
// that this peer writes it now. The error is ErrFull. What came from others is
// admitted over its author's share: trim decides which of it stays.
func (r *room) admit(s, old *Signed, own bool) error {
	c := r.t.claimOf(s)
	bounds, most, before := r.t.bounds(c.reserved), r.t.most(c.reserved), r.all[c.reserved]
	gains := r.of(c)
	loses := gains
	if old != nil {
		loses = r.of(r.t.claimOf(old))
	}
	gained, lost := *gains, *loses
	all := before.minus(gained.within(most))
	if loses != gains {
		all = all.minus(lost.within(most))
	}
	*gains = gains.plus(taken(s))
	if old != nil {
		*loses = loses.minus(taken(old))
	}
	all = all.plus(gains.within(most))
	if loses != gains {
		all = all.plus(loses.within(most))
	}
	var err error
	switch {
	case own && gains.exceeds(most) && gains.exceeds(gained):
		err = r.t.overShare(s)
	case all.Records > max(bounds.Records, before.Records), all.Bytes > max(bounds.Bytes, before.Bytes):
		err = fmt.Errorf("record %s: %w", s.Key(), ErrFull)
	}
	if err != nil {
		*gains, *loses = gained, lost
		return err
	}
	r.all[c.reserved] = all
	return nil
}

func (t *Table) overShare(s *Signed) error {
	most := t.most(t.claimOf(s).reserved)
	return fmt.Errorf("record %s: %s may have %d records and %d bytes: %w", s.Key(), short(s.Author), most.Records, most.Bytes, ErrShare)
}

// trim lists what has to go, of the records kept so far and of those in next,
// of authors who are over their share: all that come after the first that does
// not fit. So it is the same records that stay on every peer, in whatever order
// they came, and two tables do not send each other for ever what the other has
// no room for.
func (r *room) trim(next map[string]*Signed) []*Signed {
	var out []*Signed
	for c, s := range r.shares {
		most := r.t.most(c.reserved)
		if !s.exceeds(most) {
			continue
		}
		var all []*Signed
		if of := r.t.shares[c]; of != nil {
			for _, rec := range of.records {
				if _, replaced := next[rec.Key()]; !replaced {
					all = append(all, rec)
				}
			}
		}
		for _, rec := range next {
			if r.t.claimOf(rec) == c {
				all = append(all, rec)
			}
		}
		slices.SortFunc(all, r.t.precede)
		var sum Share
		for i, rec := range all {
			if sum = sum.plus(taken(rec)); sum.exceeds(most) {
				out = append(out, all[i:]...)
				break
			}
		}
	}
	return out
}

// pushOut takes what trim lists out of next and returns the kept records that
// go with it. The changes that brought it are refused, those that stay in its
// place marked.
func (r *room) pushOut(batch []*change, next map[string]*Signed) []*Signed {
	out := make(map[string]*Signed)
	over := make(map[claim]bool)
	for _, s := range r.trim(next) {
		out[s.Key()], over[r.t.claimOf(s)] = s, true
	}
	if len(out) == 0 {
		return nil
	}
	for _, c := range batch {
		switch {
		case c.err != nil || c.out != Fresh:
		case out[c.key] != nil:
			c.out, c.err = Refused, r.t.overShare(c.rec)
		case over[r.t.claimOf(c.rec)]:
			c.crowds = true
		}
	}
	gone := make([]*Signed, 0, len(out))
	for key := range out {
		delete(next, key)
		if kept := r.t.records[key]; kept != nil {
			gone = append(gone, kept)
		}
	}
	return gone
}
