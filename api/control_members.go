package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/scheduler"
)

// MemberMesh is what the control API needs of the mesh to change who is in it.
type MemberMesh interface {
	Revoke(target peer.ID, wipe bool) error
	Recover(key membership.MeshKey) error
	Invites() []p2p.InviteState
	RevokeInvite(id string) error
	NameOf(id peer.ID) string
	// KeepName notes what one that was taken out was called.
	KeepName(out peer.ID, name string) error
	// Wiping are those taken out that have not said yet that they erased
	// themselves.
	Wiping() []peer.ID
	MemberSettings
}

// NameRequest names a peer, or an invite, by name, id, or a unique prefix.
type NameRequest struct {
	Name string `json:"name"`
}

// CodeRequest carries a mesh's recovery code: a secret.
type CodeRequest struct {
	Code string `json:"code"`
}

// InviteShown is one invite in a listing.
type InviteShown struct {
	ID    string           `json:"id"`
	Label string           `json:"label"`
	Role  membership.Role  `json:"role"`
	Trust membership.Trust `json:"trust"`
	Uses  int              `json:"uses"`
	Used  int              `json:"used"`
	// Expires is by the clock of the admin who made it.
	Expires time.Time `json:"expires"`
	// State is good, spent, expired or revoked, as this peer would judge it now.
	State string `json:"state"`
}

// routeMembers adds what changes who is in the mesh.
func (c *Control) routeMembers(mux *http.ServeMux) {
	mux.HandleFunc("POST /v0/peer/rm", atOnce(c, c.removePeer))
	mux.HandleFunc("POST /v0/peer/leave", atOnce(c, c.leave))
	mux.HandleFunc("POST /v0/peer/recover", atOnce(c, c.recover))
	mux.HandleFunc("GET /v0/invites", atOnce(c, func(*http.Request) ([]InviteShown, error) { return c.invites(), nil }))
	mux.HandleFunc("POST /v0/invite/revoke", atOnce(c, c.revokeInvite))
}

// WipeRequest says whether a machine that goes erases what it has of the mesh.
type WipeRequest struct {
	Wipe bool `json:"wipe,omitempty"`
	// LastCopy has it erase also the last whole copy of a model within reach.
	LastCopy bool `json:"last_copy,omitempty"`
}

// RemovePeerRequest names the peer that is taken out.
type RemovePeerRequest struct {
	Name string `json:"name"`
	WipeRequest
}

// RemovedPeer is a peer as it was before it was taken out of the mesh.
type RemovedPeer struct {
	scheduler.PeerState
	// Wipe: it has been told to erase itself, or is at its next contact.
	Wipe bool `json:"wipe"`
}

func (c *Control) removePeer(r *http.Request) (RemovedPeer, error) {
	var q RemovePeerRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return RemovedPeer{}, err
	}
	found, id, err := c.findMember(q.Name)
	if out, no := peer.Decode(q.Name); err != nil && no == nil && q.Wipe { // Of one that is out already.
		gone := scheduler.PeerState{ID: out.String(), Name: c.Members.NameOf(out), State: string(liveness.Gone),
			Labels: map[string]string{}, Devices: []scheduler.Device{}, Link: scheduler.LinkState{Path: "none"}}
		return RemovedPeer{gone, true}, c.Members.Revoke(out, true)
	}
	if err != nil {
		return RemovedPeer{}, err
	}
	if err := c.mayWipe(q.WipeRequest, found.ID); err != nil {
		return RemovedPeer{}, err
	}
	if err := c.Members.Revoke(id, q.Wipe); err != nil || !q.Wipe {
		return RemovedPeer{PeerState: found}, err
	}
	if err := c.Members.KeepName(id, found.Name); err != nil { // It is out all the same.
		c.Log.Warn("the name of a machine that was taken out is not kept", "error", err)
	}
	return RemovedPeer{found, true}, nil
}

func (c *Control) leave(r *http.Request) (struct{}, error) {
	var q WipeRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return struct{}{}, err
	}
	if err := c.mayWipe(q, c.Mesh.Self().String()); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, c.Leave(q.Wipe)
}

// mayWipe refuses to erase the last whole copy of a model unasked.
func (c *Control) mayWipe(q WipeRequest, id string) error {
	if !q.Wipe || q.LastCopy {
		return nil
	}
	if models := c.Scheduler.LastCopies(id); len(models) > 0 {
		return scheduler.Errorf(scheduler.NotAllowed, "no other peer that is up has a whole copy of %s: pull it elsewhere first, or say --last-copy to have it erased all the same",
			strings.Join(models, ", "))
	}
	return nil
}

// findMember finds a member by name, id or a unique prefix of either.
func (c *Control) findMember(name string) (scheduler.PeerState, peer.ID, error) {
	found, err := findPeer(c.Scheduler.Peers(), name)
	if err != nil {
		return found, "", err
	}
	id, err := peer.Decode(found.ID)
	return found, id, err
}

func (c *Control) recover(r *http.Request) (struct{}, error) {
	var q CodeRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return struct{}{}, err
	}
	key, err := membership.MeshKeyFromCode(q.Code)
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, c.Members.Recover(key)
}

func (c *Control) invites() []InviteShown {
	list := []InviteShown{}
	now := time.Now()
	for _, i := range c.Members.Invites() {
		shown := InviteShown{ID: i.ID, Label: i.Issue.Label, Role: i.Issue.Role, Trust: i.Issue.Trust, Uses: i.Issue.Uses, Used: i.Used,
			Expires: time.UnixMilli(i.Issue.Expires), State: "good"}
		if err := i.Issue.Usable(i.Revoked, i.Used, now); err != nil {
			shown.State = strings.TrimPrefix(string(scheduler.ReasonOf(err)), "invite_")
		}
		list = append(list, shown)
	}
	return list
}

// revokeInvite takes the id of an invite, a unique prefix of it, its label, or
// its whole text.
func (c *Control) revokeInvite(r *http.Request) (InviteShown, error) {
	var q NameRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return InviteShown{}, err
	}
	name := q.Name
	if invite, err := membership.ParseInvite(name); err == nil {
		name = invite.ID()
	}
	found := slices.DeleteFunc(c.invites(), func(i InviteShown) bool {
		return name == "" || !strings.HasPrefix(i.ID, name) && i.Label != name
	})
	switch {
	case len(found) == 0:
		return InviteShown{}, scheduler.Errorf(scheduler.NotFound, "no invite %.80q in this mesh (relay peer invites)", q.Name)
	case len(found) > 1:
		var ids []string
		for _, i := range found {
			ids = append(ids, i.ID)
		}
		return InviteShown{}, scheduler.Errorf(scheduler.InvalidRequest, "%q could mean %s: say more of it", q.Name, strings.Join(ids, ", "))
	case found[0].State == "revoked":
		return found[0], nil
	}
	return found[0], c.Members.RevokeInvite(found[0].ID)
}
