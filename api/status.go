package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler"
)

// Status is the mesh at a glance: the answer of /v0/status and what
// `relay status --json` prints.
type Status struct {
	// Schema is 1 as long as no field changes its meaning.
	Schema int        `json:"schema"`
	Mesh   MeshStatus `json:"mesh"`
	// Self is the id of the peer that was asked.
	Self    string `json:"self"`
	Version string `json:"version"`
	// Door is where /v1 is on this peer, and Keys how it is secured.
	Door      string                 `json:"door"`
	Keys      string                 `json:"keys"`
	Peers     []scheduler.PeerState  `json:"peers"`
	Models    []scheduler.ModelState `json:"models"`
	Decisions []scheduler.Decision   `json:"decisions"`
	// Unanswered names the peers that were asked and did not answer in time.
	Unanswered []string `json:"unanswered"`
	Warnings   []string `json:"warnings"`
	// Serving is false when a model of the mesh cannot be served right now.
	Serving bool `json:"serving"`
}

// MeshStatus names the mesh. Admins are peer ids.
type MeshStatus struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Admins []string `json:"admins"`
}

// askPatience bounds a question to another peer that status waits for.
const askPatience = time.Second

// Status gathers what this peer knows, and asks the others how busy they are.
func (c *Control) Status(ctx context.Context) Status {
	s := Status{
		Schema: 1, Self: c.Mesh.Self().String(), Version: c.Version, Door: c.Door, Keys: c.KeysText(),
		Mesh:  MeshStatus{ID: string(c.MeshID), Name: c.meshName(), Admins: []string{}},
		Peers: c.Scheduler.Peers(), Models: c.Scheduler.ModelStates(), Decisions: c.Scheduler.Decisions(),
		Unanswered: []string{}, Warnings: []string{}, Serving: true,
	}
	for _, m := range c.Mesh.Roster().Members() {
		if m.Role == membership.RoleAdmin {
			s.Mesh.Admins = append(s.Mesh.Admins, m.ID.String())
		}
	}
	c.askLoads(ctx, &s)
	for _, m := range s.Models {
		if !slices.ContainsFunc(m.Replicas, func(r scheduler.ReplicaState) bool { return r.State == scheduler.StateReady }) {
			s.Serving = false
		}
	}
	if len(s.Mesh.Admins) == 1 && len(s.Peers) > 1 {
		s.Warnings = append(s.Warnings, "there is one admin: if that machine is lost, only the recovery code makes a new one (relay peer invite --admin)")
	}
	for _, p := range s.Peers {
		if p.Self && p.NoEngine != "" {
			s.Warnings = append(s.Warnings, "this machine lends nothing: "+p.NoEngine)
		}
	}
	return s
}

// askLoads fills in how many requests run on the replicas of other peers.
func (c *Control) askLoads(ctx context.Context, s *Status) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	loads := map[string]map[string]int{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range s.Peers {
		switch {
		case p.Self:
		case p.State == "gone" || p.State == "suspect":
			s.Unanswered = append(s.Unanswered, p.ID)
		default:
			asking.Go(func() {
				load, err := c.peers().load(ctx, p.ID)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					s.Unanswered = append(s.Unanswered, p.ID)
				} else {
					loads[p.ID] = load
				}
			})
		}
	}
	asking.Wait()
	slices.Sort(s.Unanswered)
	for i := range s.Models {
		for j := range s.Models[i].Replicas {
			r := &s.Models[i].Replicas[j]
			if load, ok := loads[r.Peer]; ok && r.InFlight == nil {
				n := load[s.Models[i].UID]
				r.InFlight = &n
			}
		}
	}
}

func (c *Control) meshName() string {
	var settings membership.Settings
	if r, ok := c.Mesh.Table().Get(membership.KindMesh, membership.SettingsID); ok && record.Unmarshal(r.Payload, &settings) == nil {
		return settings.Name
	}
	return string(c.MeshID)
}

// findPeer names one peer by name, id or a unique prefix of either.
func findPeer(peers []scheduler.PeerState, name string) (scheduler.PeerState, error) {
	var found []scheduler.PeerState
	for _, p := range peers {
		switch {
		case p.ID == name:
			return p, nil
		case p.Name == name, name != "" && (strings.HasPrefix(p.Name, name) || strings.HasPrefix(p.ID, name)):
			found = append(found, p)
		}
	}
	exact := slices.DeleteFunc(slices.Clone(found), func(p scheduler.PeerState) bool { return p.Name != name })
	if len(exact) == 1 {
		return exact[0], nil
	}
	switch len(found) {
	case 0:
		return scheduler.PeerState{}, scheduler.Errorf(scheduler.NotFound, "no peer %q in this mesh (relay peer ls)", name)
	case 1:
		return found[0], nil
	}
	slices.SortFunc(found, func(a, b scheduler.PeerState) int { return cmp.Compare(a.ID, b.ID) })
	var list []string
	for _, p := range found {
		list = append(list, p.Name+" ("+p.ID+")")
	}
	return scheduler.PeerState{}, scheduler.Errorf(scheduler.InvalidRequest, "%q could mean %s: say more of it", name, strings.Join(list, ", "))
}
