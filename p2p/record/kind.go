package record

import (
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Rule says who writes the records of a kind, and so what their versions mean.
type Rule int

const (
	// Owned: each key has one writer, named by Kind.Owner.
	Owned Rule = iota + 1
	// Shared: any admin writes any key.
	Shared
	// Placement: the leader of a model writes its key, under its fence.
	Placement
	// Foreign: a kind that this release does not know. Its records are kept
	// and passed on when their author is a member, and judged by their own rule
	// once a release that knows the kind finds them. Kinds cannot be registered
	// with it.
	Foreign
)

func (r Rule) String() string {
	switch r {
	case Owned:
		return "owned"
	case Shared:
		return "shared"
	case Placement:
		return "placement"
	case Foreign:
		return "foreign"
	}
	return fmt.Sprintf("rule %d", int(r))
}

// Kind registers one kind of record with a table.
type Kind struct {
	// Name is the Kind of its records.
	Name string
	Rule Rule
	// Check says what is wrong with the form of a record's payload, or nil. It
	// looks at the record alone, so that every peer answers alike. For a record
	// about to be written the version is still zero. May be nil.
	Check func(Record) error
	// Owner names the one who may write a key; demanded for Owned, unused
	// otherwise. It looks at the id alone.
	Owner func(id string) (peer.ID, error)
	// Admit is asked instead of the table's Rights where the right to write a
	// record is proven by its own payload (an admission). May be nil.
	Admit func(Record) Verdict
	// Reserved says that its records have room of their own, a fourth of the
	// table's bounds on top of these, shared by authors as the rest is. It is for
	// what takes rights away, which must get in however full the table is.
	Reserved bool
	// Final says, of a shared kind, that a deletion is for ever: nobody writes a
	// deleted key again, and who rewrites it cut off from the one that deletes it
	// does not bring it back.
	Final bool
}

// Verdict is the answer to whether an author may write a record.
type Verdict int

const (
	// Unknown: the author's rights are not known yet; the record is held.
	Unknown Verdict = iota
	// Allowed: the record is kept.
	Allowed
	// Denied: the record is refused, as long as this is the answer.
	Denied
)

func (v Verdict) String() string {
	switch v {
	case Unknown:
		return "unknown"
	case Allowed:
		return "allowed"
	case Denied:
		return "denied"
	}
	return fmt.Sprintf("verdict %d", int(v))
}

// Rights says who may write what. It is asked without any lock of the table
// held, so it may read the table. Answers follow from the records the table
// holds; they should do so at once, and not after a delay.
type Rights interface {
	May(author peer.ID, rule Rule, kind string, id string) Verdict
}

// checkVersion says whether a version is one that the rule hands out.
func (r Rule) checkVersion(v Version) error {
	ok := false
	switch r {
	case Owned:
		ok = v[0] > 0 && v[0] < MaxCount && v[1] < MaxCount && v[2] == 0
	case Shared:
		ok = v[0] > 0 && v[0] < MaxCount && v[1] == 0 && v[2] == 0
	case Placement:
		ok = v[0] > 0 && v[0] < MaxCount && v[2] < MaxCount
	case Foreign:
		ok = true // what its numbers mean is not known here
	}
	if !ok {
		return fmt.Errorf("version %s under the rule %q: %w", v, r.String(), ErrPayload)
	}
	return nil
}
