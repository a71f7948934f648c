package record

import "fmt"

type faultError struct{ reason, text string }

func (e *faultError) Error() string  { return e.text }
func (e *faultError) Reason() string { return e.reason }

// fault makes a sentinel error that carries its reason for other packages.
func fault(reason, text string) error { return &faultError{reason, text} }

var (
	// ErrInvalid: signature, size or form is wrong. Whoever sent it did not
	// check it either, so it counts against the sender.
	ErrInvalid = fault("record_invalid", "the record is not valid")
	// ErrPayload: a payload, version or key is not what its kind demands. A
	// peer that does not know the kind passes such a record on in good faith,
	// so it does not count against the sender.
	ErrPayload = fault("record_invalid", "the record is not what its kind demands")
	// ErrNotAllowed: the author is known and may not write that key.
	ErrNotAllowed = fault("not_allowed", "the author may not write this record")
	// ErrNotMember: nothing is known yet about the author's rights.
	ErrNotMember = fault("not_member", "the author is not known to be a member of this mesh")
	// ErrUnknownKind: a record of a kind that was not registered cannot be
	// written here, only kept and passed on.
	ErrUnknownKind = fault("internal", "this kind of record is not registered")
	// ErrSuperseded: a higher version is known already.
	ErrSuperseded = fault("superseded", "a newer version of the record is known")
	// ErrExhausted: no version higher than the kept one is left for the key.
	ErrExhausted = fault("record_invalid", "the record's version is at its upper bound")
	// ErrNotFound: there is no live record of that key.
	ErrNotFound = fault("not_found", "there is no such record")
	// ErrFull: the table is at its limit of records or bytes.
	ErrFull = fault("no_capacity", "the table of records has no room for it")
	// ErrShare is ErrFull for one author, who is at the limit of his share. Who
	// writes is refused at home, so an author who sends such records is at fault;
	// others who do so had room for them.
	ErrShare = fmt.Errorf("its author's share is used up: %w", ErrFull)
	// ErrProtocol: the other side of Sync did not keep to the protocol. It
	// counts against that peer.
	ErrProtocol = fault("protocol_mismatch", "the other peer does not keep to the record exchange")
	// ErrSyncLimit: the other side of Sync sent more than one exchange may carry.
	ErrSyncLimit = fault("protocol_mismatch", "the record exchange is larger than allowed")
	// ErrStorage: the state folder could not be read or written.
	ErrStorage = fault("state_unusable", "the records could not be read or written on this machine")
)

// storageError is ErrStorage with what lies behind it. The cause comes first
// when a reason is looked for: a full disk has one of its own.
type storageError struct{ cause error }

func (e *storageError) Error() string   { return ErrStorage.Error() + ": " + e.cause.Error() }
func (e *storageError) Unwrap() []error { return []error{e.cause, ErrStorage} }
