package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
)

// DefaultShares is how many authors fill a table unless told otherwise. Few
// enough that nobody who adds models by the thousand meets his bound (12,500
// records, 8 MiB), and so many that several who write whatever they can leave
// room for the others.
const DefaultShares = 8

// Share is what the records of one author take of the table, deleted ones too.
type Share struct {
	Records int
	Bytes   int64
}

// share is what a table knows of one author.
type share struct {
	records []*Signed // as precede orders them
	bytes   int64
}

// Share says what an author's records take.
func (t *Table) Share(author peer.ID) Share {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return t.shareOf(author)
}

// MaxShare is the most that one author's records may take.
func (t *Table) MaxShare() Share {
	return Share{t.maxRecords / t.parts, t.maxBytes / int64(t.parts)}
}

func (t *Table) shareOf(author peer.ID) Share {
	if s := t.shares[author]; s != nil {
		return Share{len(s.records), s.bytes}
	}
	return Share{}
}

// exceeds says whether s is more than o in either respect.
func (s Share) exceeds(o Share) bool { return s.Records > o.Records || s.Bytes > o.Bytes }

// within is what of s counts for the table: nobody's records take more than a
// share of it once trim was there.
func (s Share) within(o Share) Share { return Share{min(s.Records, o.Records), min(s.Bytes, o.Bytes)} }

func (s Share) plus(o Share) Share  { return Share{s.Records + o.Records, s.Bytes + o.Bytes} }
func (s Share) minus(o Share) Share { return Share{s.Records - o.Records, s.Bytes - o.Bytes} }

// taken is what one record takes.
func taken(s *Signed) Share { return Share{1, cost(s)} }

// precede orders the records of one author: which of them stay when they are
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

// give counts a record for its author's share, and take does no longer; as with
// install, reading is held for writing.
func (t *Table) give(s *Signed) {
	of := t.shares[s.Author]
	if of == nil {
		of = &share{}
		t.shares[s.Author] = of
	}
	at, _ := slices.BinarySearchFunc(of.records, s, t.precede)
	of.records = slices.Insert(of.records, at, s)
	of.bytes += cost(s)
}

func (t *Table) take(s *Signed) {
	of := t.shares[s.Author]
	at, _ := slices.BinarySearchFunc(of.records, s, t.precede)
	of.records = slices.Delete(of.records, at, at+1)
	of.bytes -= cost(s)
	if len(of.records) == 0 {
		delete(t.shares, s.Author)
	}
}

// room follows what authors' shares, and the table, become within one batch.
type room struct {
	t      *Table
	most   Share // of one author
	all    Share
	shares map[peer.ID]*Share // of the authors in the batch
}

func (t *Table) room() *room {
	return &room{t: t, most: t.MaxShare(), all: Share{len(t.records), t.bytes}, shares: make(map[peer.ID]*Share)}
}

func (r *room) of(author peer.ID) *Share {
	s := r.shares[author]
	if s == nil {
		now := r.t.shareOf(author)
		s = &now
		r.shares[author] = s
	}
	return s
}

// admit makes room for a record in the place of old, which may be nil; own says
// that this peer writes it now. The error is ErrFull. What came from others is
// admitted over its author's share: trim decides which of it stays.
func (r *room) admit(s, old *Signed, own bool) error {
	gains := r.of(s.Author)
	loses := gains
	if old != nil {
		loses = r.of(old.Author)
	}
	gained, lost := *gains, *loses
	all := r.all.minus(gained.within(r.most))
	if loses != gains {
		all = all.minus(lost.within(r.most))
	}
	*gains = gains.plus(taken(s))
	if old != nil {
		*loses = loses.minus(taken(old))
	}
	all = all.plus(gains.within(r.most))
	if loses != gains {
		all = all.plus(loses.within(r.most))
	}
	var err error
	switch {
	case own && gains.exceeds(r.most) && gains.exceeds(gained):
		err = r.t.overShare(s)
	case all.Records > max(r.t.maxRecords, r.all.Records), all.Bytes > max(r.t.maxBytes, r.all.Bytes):
		err = fmt.Errorf("record %s: %w", s.Key(), ErrFull)
	}
	if err != nil {
		*gains, *loses = gained, lost
		return err
	}
	r.all = all
	return nil
}

func (t *Table) overShare(s *Signed) error {
	most := t.MaxShare()
	return fmt.Errorf("record %s: %s may have %d records and %d bytes: %w", s.Key(), short(s.Author), most.Records, most.Bytes, ErrShare)
}

// trim lists what has to go, of the records kept so far and of those in next,
// of authors who are over their share: all that come after the first that does
// not fit. So it is the same records that stay on every peer, in whatever order
// they came, and two tables do not send each other for ever what the other has
// no room for.
func (r *room) trim(next map[string]*Signed) []*Signed {
	var out []*Signed
	for author, s := range r.shares {
		if !s.exceeds(r.most) {
			continue
		}
		var all []*Signed
		if of := r.t.shares[author]; of != nil {
			for _, rec := range of.records {
				if _, replaced := next[rec.Key()]; !replaced {
					all = append(all, rec)
				}
			}
		}
		for _, rec := range next {
			if rec.Author == author {
				all = append(all, rec)
			}
		}
		slices.SortFunc(all, r.t.precede)
		var sum Share
		for i, rec := range all {
			if sum = sum.plus(taken(rec)); sum.exceeds(r.most) {
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
	over := make(map[peer.ID]bool)
	for _, s := range r.trim(next) {
		out[s.Key()], over[s.Author] = s, true
	}
	if len(out) == 0 {
		return nil
	}
	for _, c := range batch {
		switch {
		case c.err != nil || c.out != Fresh:
		case out[c.key] != nil:
			c.out, c.err = Refused, r.t.overShare(c.rec)
		case over[c.rec.Author]:
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
