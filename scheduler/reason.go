package scheduler

import (
	"errors"
	"fmt"
	"time"
)

// Reason is one word for why something was refused or failed. The words below
// are the whole list: they appear unchanged in the API's error codes, in
// replica records, in logs and in `--json`, so programs may rely on them. The
// leaf packages carry theirs as plain strings behind `Reason() string`; a test
// in cmd/relay fails when one of those is not in this list.
type Reason string

const (
	// ModelNotFound: no model of that name or uid is registered in the mesh.
	ModelNotFound Reason = "model_not_found"
	// ModelLoading: a replica is being brought up; asking again later helps.
	ModelLoading Reason = "model_loading"
	// NoHolder: no peer that is up holds the model's file whole.
	NoHolder Reason = "no_holder"
	// NoCapacity: the peers that could serve the model lack the memory.
	NoCapacity Reason = "no_capacity"
	// NoEngine: no usable llama.cpp on the peer.
	NoEngine Reason = "no_engine"
	// EngineFailed: the engine's process died, or answered what it must not.
	EngineFailed Reason = "engine_failed"
	// PeerGone: the peer that served can no longer be reached.
	PeerGone Reason = "peer_gone"
	// Draining: the peer finishes what it has and takes nothing new.
	Draining Reason = "draining"
	// Cordoned: an admin has the peer take nothing that does not run there.
	Cordoned Reason = "cordoned"
	// Unloaded: it was unloaded, because nobody asked for it or for another model; it
	// is loaded again when it is asked for.
	Unloaded Reason = "unloaded"
	// Parked: its engine failed again and again on each peer that could serve it.
	Parked Reason = "parked"
	// DeviceBusy: another program uses the GPU, or its owner took the machine back.
	DeviceBusy Reason = "device_busy"
	// NotYet: this release cannot do that yet.
	NotYet Reason = "not_yet"
	// Busy: every slot is taken and the queue is full.
	Busy Reason = "busy"
	// Superseded: an order under a lower fence than one already obeyed.
	Superseded Reason = "superseded"
	// Timeout: a deadline of relay's own passed.
	Timeout Reason = "timeout"
	// Internal: a fault of relay itself; the log has the reference.
	Internal Reason = "internal"

	// InvalidRequest: the request is not what the route takes.
	InvalidRequest Reason = "invalid_request"
	// RequestTooLarge: the body is above the door's limit.
	RequestTooLarge Reason = "request_too_large"
	// RouteNotFound: no such route at this door.
	RouteNotFound Reason = "route_not_found"
	// MethodNotAllowed: the route exists, not for this method.
	MethodNotAllowed Reason = "method_not_allowed"
	// MissingKey: the request carries no API key.
	MissingKey Reason = "missing_api_key"
	// InvalidKey: the API key is unknown, or no longer good.
	InvalidKey Reason = "invalid_api_key"
	// ForbiddenOrigin: a foreign Host, or a post from another site, at a door
	// that only this machine may use.
	ForbiddenOrigin Reason = "forbidden_origin"
	// HopRefused: a forwarded request may not be forwarded again.
	HopRefused Reason = "hop_refused"
	// ContextLength: prompt and answer do not fit the model's context.
	ContextLength Reason = "context_length_exceeded"
	// QuotaExceeded: the key has used what it may.
	QuotaExceeded Reason = "quota_exceeded"
	// CannotContinue: a broken stream that no other replica can take up.
	CannotContinue Reason = "cannot_continue"

	// NotMember: the peer that asks is not, or no longer, a member.
	NotMember Reason = "not_member"
	// NotAllowed: the member's role or trust does not reach that far.
	NotAllowed Reason = "not_allowed"
	// InviteInvalid: the invite is cut short, mistyped or forged.
	InviteInvalid Reason = "invite_invalid"
	// InviteExpired: the invite's time is over.
	InviteExpired Reason = "invite_expired"
	// InviteSpent: the invite has been used as often as it may.
	InviteSpent Reason = "invite_spent"
	// InviteRevoked: an admin took the invite back.
	InviteRevoked Reason = "invite_revoked"
	// InviteUnknown: no peer that was asked knows the invite, or not yet.
	InviteUnknown Reason = "invite_unknown"
	// InviteForeign: the invite belongs to another mesh.
	InviteForeign Reason = "invite_foreign"
	// InviteNeedsAdmin: the invite makes an admin, and the peer that was asked is none.
	InviteNeedsAdmin Reason = "invite_needs_admin"
	// InMesh: this machine is in a mesh with others and must leave it first.
	InMesh Reason = "in_mesh"
	// Unreachable: no peer that could answer was reached.
	Unreachable Reason = "unreachable"
	// ProtocolMismatch: the other peer speaks another protocol version.
	ProtocolMismatch Reason = "protocol_mismatch"
	// RecordInvalid: a record's signature, size or form is wrong.
	RecordInvalid Reason = "record_invalid"

	// NameTaken: another model, or another machine, of the mesh has that name.
	NameTaken Reason = "name_taken"
	// FileInvalid: not a GGUF, or one that is cut short or lies.
	FileInvalid Reason = "file_invalid"
	// FileChanged: a registered file changed, moved or vanished.
	FileChanged Reason = "file_changed"
	// Paused: somebody paused the pull that this was waiting for.
	Paused Reason = "paused"
	// DiskFull: there is not room enough on the disk.
	DiskFull Reason = "disk_full"
	// NotFound: what was named does not exist.
	NotFound Reason = "not_found"
	// Locked: another relay process uses the state folder.
	Locked Reason = "locked"
	// StateUnusable: the state folder cannot be created, read or written.
	StateUnusable Reason = "state_unusable"
	// PortInUse: another program has the port.
	PortInUse Reason = "port_in_use"
)

// Reasons lists every Reason once, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ModelNotFound, ModelLoading, NoHolder, NoCapacity, NoEngine, EngineFailed, PeerGone, Draining, Cordoned, Unloaded, Parked, DeviceBusy, NotYet, Busy,
		Superseded, Timeout, Internal,
		InvalidRequest, RequestTooLarge, RouteNotFound, MethodNotAllowed, MissingKey, InvalidKey, ForbiddenOrigin,
		HopRefused, ContextLength, QuotaExceeded, CannotContinue,
		NotMember, NotAllowed, InviteInvalid, InviteExpired, InviteSpent, InviteRevoked, InviteUnknown, InviteForeign, InviteNeedsAdmin, InMesh,
		Unreachable, ProtocolMismatch, RecordInvalid,
		NameTaken, FileInvalid, FileChanged, Paused, DiskFull, NotFound, Locked, StateUnusable, PortInUse,
	}
}

// Retry says what the asker may do about a refusal.
type Retry string

const (
	// RetryElsewhere: another replica may well answer.
	RetryElsewhere Retry = "elsewhere"
	// RetryLater: the same question may be answered after a while.
	RetryLater Retry = "later"
	// RetryNever: asking again changes nothing.
	RetryNever Retry = "never"
)

// Error is a refusal in words: one sentence, the same in `status`, in the API
// error and in the log.
type Error struct {
	Why     Reason
	Message string
	// Retry is empty where nobody has to decide whether to ask again.
	Retry Retry
	// RetryAfter is a hint for clients; 0 means none.
	RetryAfter time.Duration
	// Err is the cause, for errors.Is and the log; it may be nil.
	Err error
}

// Errorf makes an Error whose message is formatted like fmt.Errorf; a %w in it
// becomes the cause.
func Errorf(why Reason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Why: why, Message: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string { return e.Message }

// Reason is the word for the error, from the closed list.
func (e *Error) Reason() string { return string(e.Why) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf finds the reason an error carries, or Internal when it carries none.
func ReasonOf(err error) Reason {
	var r interface{ Reason() string }
	if errors.As(err, &r) {
		return Reason(r.Reason())
	}
	return Internal
}
