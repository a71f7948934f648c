package api

import (
	"net/http"
	"time"

	"relay/scheduler"
)

// OpenAI's words for kinds of error, as its SDKs know them.
const (
	typeInvalid    = "invalid_request_error"
	typeAuth       = "authentication_error"
	typePermission = "permission_error"
	typeRate       = "rate_limit_error"
	typeServer     = "server_error"
)

// verdict is how one reason looks over HTTP. The error's `code` is the reason
// itself.
type verdict struct {
	status int
	kind   string
	// retry is what an asker may do where the refusal itself does not say.
	retry scheduler.Retry
	// after is the Retry-After of a refusal that brings none.
	after time.Duration
}

// verdictOf is the one table from reason to HTTP status and OpenAI type. A
// reason that is not in it is a fault of relay's own.
func verdictOf(r scheduler.Reason) (verdict, bool) {
	const (
		elsewhere = scheduler.RetryElsewhere
		later     = scheduler.RetryLater
		never     = scheduler.RetryNever
	)
	switch r {
	case scheduler.ModelNotFound:
		return verdict{http.StatusNotFound, typeInvalid, never, 0}, true
	case scheduler.ModelLoading:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 5 * time.Second}, true
	case scheduler.NoHolder:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 15 * time.Second}, true
	case scheduler.NoCapacity:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 30 * time.Second}, true
	case scheduler.NoEngine:
		return verdict{http.StatusServiceUnavailable, typeServer, elsewhere, 30 * time.Second}, true
	case scheduler.EngineFailed:
		return verdict{http.StatusBadGateway, typeServer, elsewhere, 5 * time.Second}, true
	case scheduler.PeerGone:
		return verdict{http.StatusServiceUnavailable, typeServer, elsewhere, 5 * time.Second}, true
	case scheduler.Draining:
		return verdict{http.StatusServiceUnavailable, typeServer, elsewhere, 5 * time.Second}, true
	case scheduler.Cordoned:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 30 * time.Second}, true
	case scheduler.Unloaded:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 5 * time.Second}, true
	case scheduler.Parked: // Until somebody does something about it.
		return verdict{http.StatusServiceUnavailable, typeServer, later, time.Minute}, true
	case scheduler.DeviceBusy:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 30 * time.Second}, true
	case scheduler.NotYet:
		return verdict{http.StatusNotImplemented, typeServer, never, 0}, true
	case scheduler.Busy:
		return verdict{http.StatusServiceUnavailable, typeServer, elsewhere, 2 * time.Second}, true
	case scheduler.Superseded:
		return verdict{http.StatusConflict, typeInvalid, elsewhere, 0}, true
	case scheduler.Timeout:
		return verdict{http.StatusGatewayTimeout, typeServer, elsewhere, 5 * time.Second}, true
	case scheduler.Internal:
		return verdict{http.StatusInternalServerError, typeServer, never, 0}, true

	case scheduler.InvalidRequest:
		return verdict{http.StatusBadRequest, typeInvalid, never, 0}, true
	case scheduler.RequestTooLarge:
		return verdict{http.StatusRequestEntityTooLarge, typeInvalid, never, 0}, true
	case scheduler.RouteNotFound:
		return verdict{http.StatusNotFound, typeInvalid, never, 0}, true
	case scheduler.MethodNotAllowed:
		return verdict{http.StatusMethodNotAllowed, typeInvalid, never, 0}, true
	case scheduler.MissingKey, scheduler.InvalidKey:
		return verdict{http.StatusUnauthorized, typeAuth, never, 0}, true
	case scheduler.ForbiddenOrigin:
		return verdict{http.StatusForbidden, typePermission, never, 0}, true
	case scheduler.HopRefused:
		return verdict{http.StatusLoopDetected, typeInvalid, never, 0}, true
	case scheduler.ContextLength:
		return verdict{http.StatusBadRequest, typeInvalid, never, 0}, true
	case scheduler.QuotaExceeded:
		return verdict{http.StatusTooManyRequests, typeRate, later, time.Minute}, true
	case scheduler.CannotContinue:
		return verdict{http.StatusBadGateway, typeServer, later, 0}, true

	case scheduler.NotMember, scheduler.NotAllowed:
		return verdict{http.StatusForbidden, typePermission, never, 0}, true
	case scheduler.InviteInvalid:
		return verdict{http.StatusBadRequest, typeInvalid, never, 0}, true
	case scheduler.InviteExpired, scheduler.InviteSpent, scheduler.InviteRevoked:
		return verdict{http.StatusGone, typeInvalid, never, 0}, true
	case scheduler.InviteUnknown:
		return verdict{http.StatusNotFound, typeInvalid, later, 0}, true
	case scheduler.InviteForeign, scheduler.InviteNeedsAdmin, scheduler.InMesh:
		return verdict{http.StatusConflict, typeInvalid, never, 0}, true
	case scheduler.Unreachable:
		return verdict{http.StatusServiceUnavailable, typeServer, later, 5 * time.Second}, true
	case scheduler.ProtocolMismatch:
		return verdict{http.StatusConflict, typeInvalid, never, 0}, true
	case scheduler.RecordInvalid:
		return verdict{http.StatusBadRequest, typeInvalid, never, 0}, true

	case scheduler.NameTaken:
		return verdict{http.StatusConflict, typeInvalid, never, 0}, true
	case scheduler.FileInvalid:
		return verdict{http.StatusUnprocessableEntity, typeInvalid, never, 0}, true
	case scheduler.FileChanged:
		return verdict{http.StatusConflict, typeInvalid, never, 0}, true
	case scheduler.Paused:
		return verdict{http.StatusConflict, typeInvalid, never, 0}, true
	case scheduler.DiskFull:
		return verdict{http.StatusInsufficientStorage, typeServer, elsewhere, 0}, true
	case scheduler.NotFound:
		return verdict{http.StatusNotFound, typeInvalid, never, 0}, true
	case scheduler.Locked, scheduler.PortInUse:
		return verdict{http.StatusConflict, typeInvalid, never, 0}, true
	case scheduler.StateUnusable:
		return verdict{http.StatusInternalServerError, typeServer, never, 0}, true
	}
	return verdict{http.StatusInternalServerError, typeServer, never, 0}, false
}
