package p2p

type failure struct{ reason, text string }

func (f *failure) Error() string  { return f.text }
func (f *failure) Reason() string { return f.reason }

func fault(reason, text string) error { return &failure{reason, text} }

// What may go wrong between peers.
var (
	ErrUnreachable = fault("unreachable", "none of the peers named in the invite can be reached")
	ErrProtocol    = fault("protocol_mismatch", "the other peer speaks another version of relay's protocol: update the older one")
	ErrNotMember   = fault("not_member", "this machine is not a member of that mesh")
	ErrRevoked     = fault("not_member", "an admin has taken this machine out of the mesh: to be in one again, give it a fresh state folder (RELAY_STATE_DIR) and a new invite")
	ErrLastAdmin   = fault("not_allowed", "this is the last admin of the mesh: make another one first (relay peer invite --admin)")
	ErrSelf        = fault("invalid_request", "a machine is not revoked by itself: it leaves (relay peer leave)")
	ErrTwin        = fault("locked", "another machine runs with a copy of this one's state folder, and was there first: give this one a fresh folder (RELAY_STATE_DIR) and an invite of its own")
	ErrOwnRole     = fault("invalid_request", "a machine does not take its own role away: do it on another admin's machine")
	ErrPortInUse   = fault("port_in_use", "the port is taken by another program: choose another with --p2p-listen")
	ErrRefused     = fault("not_allowed", "the other peer refused")
	ErrPeerGone    = fault("peer_gone", "the peer cannot be reached")
	ErrNotHere     = fault("not_found", "the peer does not have it")
	ErrBusy        = fault("busy", "the peer has as many ranges under way as it sends at a time")
	ErrDamaged     = fault("file_changed", "the peer's file is not as it was added")
	// ErrShardStale: the worker and the coordinator do not go by the same placement, or
	// the worker has no room for one more stream now: to be tried again soon.
	ErrShardStale   = fault("superseded", "the worker does not take part in this placement of the model (yet)")
	ErrShardRefused = fault("not_allowed", "the worker refused to take part")
	ErrBadAnswer    = fault("protocol_mismatch", "the peer answered what it was not asked")
)
