package record

// TakeOver writes again, in this peer's name and in one step, what the shared
// record s says, as deleted where it is or where asDeleted; it keeps its payload
// either way. ErrSuperseded where another record is kept at its key by now,
// ErrNotFound where none is. ErrExhausted where s has the highest version there
// is: nothing can replace it, and its key comes free when s is taken away (Void).
// After an error the table is as it was.
func (t *Table) TakeOver(s Signed, asDeleted bool) (Signed, error) {
	return t.put(Shared, s.Kind, s.ID, func(kept *Signed) (content, error) {
		switch {
		case kept == nil:
			return content{}, ErrNotFound
		case kept.Hash != s.Hash:
			return content{}, ErrSuperseded
		}
		return content{kept.Deleted || asDeleted, kept.Payload}, nil
	}, nextShared)
}
