package record

// TakeOver writes again, in this peer's name and in one step, what the shared
// record s says. It is deleted if s is or asDeleted, and keeps its payload either
// way. After an error the table is as it was; beside those of PutShared there are
//
//   - ErrSuperseded: another record is kept at the key by now.
//   - ErrNotFound: none is.
//   - ErrExhausted: s has the highest version there is. Nothing can replace it;
//     its key comes free when s is taken away (Void).
func (t *Table) TakeOver(s Signed, asDeleted bool) (Signed, error) {
	next := nextShared
	if s.Deleted || asDeleted {
		next = t.nextDeletion(s.Kind)
	}
	return t.put(Shared, s.Kind, s.ID, func(kept *Signed) (content, error) {
		switch {
		case kept == nil:
			return content{}, ErrNotFound
		case kept.Hash != s.Hash:
			return content{}, ErrSuperseded
		}
		return content{kept.Deleted || asDeleted, kept.Payload}, nil
	}, next)
}
