package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/scheduler"
)

// MemberSettings is what the control API needs of the mesh to change what is
// said of a member, and what it may.
type MemberSettings interface {
	// CheckSettings says whether SetName and SetLabel would be refused.
	CheckSettings(target peer.ID, name *string, labels map[string]string) error
	SetName(target peer.ID, name string) error
	SetLabel(target peer.ID, key, value string) error
	Cordon(target peer.ID, on bool) error
	Drain(target peer.ID, on bool) error
	// SetPolicy changes role and trust; an empty one stays as it is.
	SetPolicy(target peer.ID, role membership.Role, trust membership.Trust) error
}

// SetRequest says what is to be changed of a peer; what is left out stays.
type SetRequest struct {
	Peer  string           `json:"peer"`
	Role  membership.Role  `json:"role,omitempty"`
	Trust membership.Trust `json:"trust,omitempty"`
	// Name is another name, or, empty, the one that the machine calls itself by.
	Name *string `json:"name,omitempty"`
	// Labels are written beside it; an empty value takes one away.
	Labels map[string]string `json:"labels,omitempty"`
	Cordon *bool             `json:"cordon,omitempty"`
	Drain  *bool             `json:"drain,omitempty"`
}

func (q SetRequest) empty() bool {
	return q.Role == "" && q.Trust == "" && q.Name == nil && len(q.Labels) == 0 && q.Cordon == nil && q.Drain == nil
}

// SetAnswer is the peer after a change, and what changed, each in words.
type SetAnswer struct {
	Peer    scheduler.PeerState `json:"peer"`
	Changed []string            `json:"changed"`
}

// PeerShown is all that is known of one peer.
type PeerShown struct {
	scheduler.PeerState
	// Addresses are the multiaddrs at which it says that it can be dialled.
	Addresses []string `json:"addresses"`
	// Holds and Leads name models whose file it has whole, and which it leads.
	Holds []string `json:"holds"`
	Leads []string `json:"leads"`
	// Runs are its replicas, Takes the layers that it has of models which others
	// coordinate.
	Runs  []PeerRun  `json:"runs"`
	Takes []PeerTake `json:"takes"`
}

// PeerTake is a peer's share of a model.
type PeerTake struct {
	Model string `json:"model"`
	// Coordinator is the id of the peer that answers for the model.
	Coordinator string `json:"coordinator"`
	scheduler.ShareState
}

// PeerRun is one replica of a peer.
type PeerRun struct {
	Model string `json:"model"`
	scheduler.ReplicaState
}

func (c *Control) routeSettings(mux *http.ServeMux) {
	mux.HandleFunc("GET /v0/peer", atOnce(c, c.showPeer))
	mux.HandleFunc("POST /v0/peer/set", atOnce(c, c.setPeer))
}

// setPeer checks everything before it writes anything.
func (c *Control) setPeer(r *http.Request) (SetAnswer, error) {
	var q SetRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return SetAnswer{}, err
	}
	if q.empty() {
		return SetAnswer{}, scheduler.Errorf(scheduler.InvalidRequest, "say what is to be changed")
	}
	before, id, err := c.findMember(q.Peer)
	if err != nil {
		return SetAnswer{}, err
	}
	if err := checkRights(q.Role, q.Trust); err != nil {
		return SetAnswer{}, err
	}
	if err := c.Members.CheckSettings(id, q.Name, q.Labels); err != nil {
		return SetAnswer{}, err
	}
	if q.Role != "" || q.Trust != "" { // First: it may still be refused.
		if err := c.Members.SetPolicy(id, q.Role, q.Trust); err != nil {
			return SetAnswer{}, err
		}
	}
	if err := c.setSettings(id, q); err != nil {
		return SetAnswer{}, err
	}
	after, _, err := c.findMember(before.ID)
	return SetAnswer{after, changes(before, after)}, err
}

func (c *Control) setSettings(id peer.ID, q SetRequest) error {
	if q.Name != nil {
		if err := c.Members.SetName(id, *q.Name); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(q.Labels)) {
		if err := c.Members.SetLabel(id, key, q.Labels[key]); err != nil {
			return err
		}
	}
	if q.Cordon != nil {
		if err := c.Members.Cordon(id, *q.Cordon); err != nil {
			return err
		}
	}
	if q.Drain != nil {
		return c.Members.Drain(id, *q.Drain)
	}
	return nil
}

// changes lists what is another now, in words.
func changes(before, after scheduler.PeerState) []string {
	list := []string{}
	for _, p := range []struct{ what, before, after string }{
		{"name", before.Name, after.Name}, {"role", before.Role, after.Role}, {"trust", before.Trust, after.Trust},
	} {
		if p.before != p.after {
			list = append(list, fmt.Sprintf("%s is %s (was %s)", p.what, p.after, p.before))
		}
	}
	keys := maps.Clone(before.Labels)
	maps.Copy(keys, after.Labels)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, had := before.Labels[key]
		now, has := after.Labels[key]
		switch {
		case !has:
			list = append(list, fmt.Sprintf("label %s is gone (was %s)", key, old))
		case !had:
			list = append(list, fmt.Sprintf("label %s is %s", key, now))
		case old != now:
			list = append(list, fmt.Sprintf("label %s is %s (was %s)", key, now, old))
		}
	}
	for _, p := range []struct {
		before, after bool
		yes, no       string
	}{
		{before.Cordoned, after.Cordoned, "cordoned: nothing that does not run there is placed there", "not cordoned any more"},
		{before.Draining, after.Draining, "draining: what runs there moves away", "not draining any more"},
	} {
		switch {
		case p.after && !p.before:
			list = append(list, p.yes)
		case p.before && !p.after:
			list = append(list, p.no)
		}
	}
	return list
}

func (c *Control) showPeer(r *http.Request) (PeerShown, error) {
	found, id, err := c.findMember(r.URL.Query().Get("name"))
	if err != nil {
		return PeerShown{}, err
	}
	return c.shown(r.Context(), found, id), nil
}

func (c *Control) shown(ctx context.Context, found scheduler.PeerState, id peer.ID) PeerShown {
	one := []scheduler.PeerState{found}
	answers := c.askAll(ctx, one)
	shown := PeerShown{PeerState: one[0], Addresses: []string{}, Holds: []string{}, Leads: []string{}, Runs: []PeerRun{}, Takes: []PeerTake{}}
	for _, contact := range c.Mesh.Contacts() {
		if contact.ID == id {
			for _, a := range contact.Addrs {
				shown.Addresses = append(shown.Addresses, a.String())
			}
		}
	}
	for _, m := range c.Scheduler.ModelStates() {
		fillIn(&m, answers)
		if slices.Contains(m.Holders, found.ID) {
			shown.Holds = append(shown.Holds, m.Name)
		}
		if m.Leader != nil && m.Leader.Peer == found.ID {
			shown.Leads = append(shown.Leads, m.Name)
		}
		for _, run := range m.Replicas {
			if run.Peer == found.ID {
				shown.Runs = append(shown.Runs, PeerRun{m.Name, run})
			}
			for _, s := range run.Shares {
				if s.Peer == found.ID {
					shown.Takes = append(shown.Takes, PeerTake{m.Name, run.Peer, s})
				}
			}
		}
	}
	return shown
}
