package membership

// failure is a sentinel with the reason that the rest of the program knows it by.
type failure struct{ reason, text string }

func (f *failure) Error() string  { return f.text }
func (f *failure) Reason() string { return f.reason }

func fault(reason, text string) error { return &failure{reason, text} }

// What may be wrong with an invite, a code or a membership.
var (
	ErrInviteInvalid = fault("invite_invalid", "this invite is not complete: copy the whole line that starts with relay1:")
	ErrInviteExpired = fault("invite_expired", "this invite has expired: ask for a new one (relay peer invite)")
	ErrInviteSpent   = fault("invite_spent", "this invite has been used up: ask for a new one (relay peer invite)")
	ErrInviteRevoked = fault("invite_revoked", "this invite was taken back by an admin: ask for a new one (relay peer invite)")
	ErrInviteForeign = fault("invite_foreign", "this invite belongs to another mesh")
	ErrInviteUnknown = fault("invite_unknown", "no peer that was reached knows this invite: if it is new, try again in a moment; else ask for another")
	ErrNeedsAdmin    = fault("invite_needs_admin", "this invite makes an admin, and only an admin's machine honours it: none of those that were reached is one")
	ErrNotMember     = fault("not_member", "not a member of this mesh")
	ErrNotAllowed    = fault("not_allowed", "only an admin of the mesh may do this")
	ErrCodeInvalid   = fault("invalid_request", "this is not a recovery code: it has 13 groups of four letters and digits")
)
