package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/liveness"
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
	Door   string                 `json:"door"`
	Keys   string                 `json:"keys"`
	Peers  []scheduler.PeerState  `json:"peers"`
	Models []scheduler.ModelState `json:"models"`
	// Lend is what the owner of the machine of the peer that was asked has it lend.
	Lend *LendStatus `json:"lend"`
	// Disk is what models take on the machine of the peer that was asked.
	Disk      scheduler.DiskUse    `json:"disk"`
	Decisions []scheduler.Decision `json:"decisions"`
	// Unanswered names the peers that were asked and did not answer in time.
	Unanswered []string `json:"unanswered"`
	// Wiping are the peers that were taken out of the mesh and are to erase
	// themselves when they are next seen.
	Wiping   []PeerName `json:"wiping"`
	Warnings []string   `json:"warnings"`
	// Serving is false when a model of the mesh cannot be served right now.
	Serving bool `json:"serving"`
}

// MeshStatus names the mesh. Admins are peer ids.
type MeshStatus struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Admins []string `json:"admins"`
}

// LendStatus is in bytes. None: nothing is lent; else what is free less Reserve, or
// VRAMReserve of each GPU, and no more than Most of each where that is not 0.
type LendStatus struct {
	None        bool   `json:"none"`
	Most        uint64 `json:"most"`
	Reserve     uint64 `json:"reserve"`
	VRAMReserve uint64 `json:"vram_reserve"`
}

// PeerName is a peer by its id and what it is called.
type PeerName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// askPatience bounds a question to another peer that status waits for.
const askPatience = time.Second

// Status gathers what this peer knows, and asks the others how busy they are and
// whether they are in step.
func (c *Control) Status(ctx context.Context) Status {
	s := Status{
		Schema: 1, Self: c.Mesh.Self().String(), Version: c.Version, Door: c.Door, Keys: c.Keys.Text(),
		Mesh:  MeshStatus{ID: string(c.MeshID), Name: c.meshName(), Admins: []string{}},
		Peers: c.Scheduler.Peers(), Models: c.Scheduler.ModelStates(), Disk: c.Scheduler.DiskUse(), Decisions: c.Scheduler.Decisions(),
		Lend:       &LendStatus{c.Lend.None, c.Lend.Bytes, c.Lend.Reserve, c.Lend.VRAMReserve},
		Unanswered: []string{}, Wiping: []PeerName{}, Warnings: []string{}, Serving: true,
	}
	for _, m := range c.Mesh.Roster().Members() {
		if m.Role == membership.RoleAdmin {
			s.Mesh.Admins = append(s.Mesh.Admins, m.ID.String())
		}
	}
	for _, id := range c.Members.Wiping() {
		s.Wiping = append(s.Wiping, PeerName{id.String(), c.Members.NameOf(id)})
	}
	c.askOthers(ctx, &s)
	for _, m := range s.Models {
		s.Serving = s.Serving && asItShould(m, s.Peers)
		if text := tooFew(m); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
	}
	if len(s.Mesh.Admins) == 1 && len(s.Peers) > 1 {
		s.Warnings = append(s.Warnings, "there is one admin: if that machine is lost, only the recovery code makes a new one (relay peer invite --admin)")
	}
	for _, b := range c.Mesh.Blamed() {
		s.Warnings = append(s.Warnings, blameText(c.Members.NameOf(b.Peer), b))
	}
	if text := c.Keys.Warning(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	s.Warnings = append(s.Warnings, s.Disk.Warnings()...)
	for _, m := range s.Models {
		if m.Warning != "" {
			s.Warnings = append(s.Warnings, m.Warning)
		}
	}
	for _, p := range s.Peers {
		if p.Self && p.NoEngine != "" {
			s.Warnings = append(s.Warnings, "this machine lends nothing: "+p.NoEngine)
		}
	}
	return s
}

// asItShould says whether a model serves, or, being asleep, may when somebody asks
// for it: a peer that holds it is there, and so is the one that it may run on only,
// and it is not parked there.
func asItShould(m scheduler.ModelState, peers []scheduler.PeerState) bool {
	may := func(id string) bool {
		return slices.ContainsFunc(peers, func(p scheduler.PeerState) bool { return p.ID == id && p.State != string(liveness.Gone) }) &&
			!slices.ContainsFunc(m.Parked, func(p scheduler.ParkedState) bool { return p.Peer == id })
	}
	return serves(m) || m.Asleep && slices.ContainsFunc(m.Holders, may) && (m.Only == "" || may(m.Only))
}

// tooFew is the sentence about a model of which fewer replicas serve than were asked
// for; "" where there are enough.
func tooFew(m scheduler.ModelState) string {
	n := Ready(m)
	if n >= m.Min {
		return ""
	}
	return fmt.Sprintf("%d of the %d replicas of %s that are wanted at least serve now (relay model plan %s says why)", n, m.Min, m.Name, m.Name)
}

// blameText is the sentence about a member that sent what no honest one sends.
func blameText(name string, b p2p.Blame) string {
	text := fmt.Sprintf("%s sent %d things that no honest peer sends; they were dropped", name, b.Dropped)
	if b.Until > 0 {
		text += fmt.Sprintf(", and it is kept out for %s more", b.Until.Round(time.Second))
	}
	return text + " (relay peer rm takes it out of the mesh)"
}

// askOthers fills in what the replicas do, and whether the peers are in step.
func (c *Control) askOthers(ctx context.Context, s *Status) {
	answers := c.askAll(ctx, s.Peers)
	for _, p := range s.Peers {
		if _, ok := answers[p.ID]; !ok || p.Behind == nil {
			s.Unanswered = append(s.Unanswered, p.ID)
		}
	}
	slices.Sort(s.Unanswered)
	for i := range s.Models {
		fillIn(&s.Models[i], answers)
	}
}

// askAll asks the peers what their replicas do, and meanwhile fills in how far behind
// they are.
func (c *Control) askAll(ctx context.Context, peers []scheduler.PeerState) (answers map[string]workload) {
	var asking sync.WaitGroup
	same := slices.Clone(peers)
	asking.Go(func() { answers = c.askWorkloads(ctx, same) })
	c.askInStep(ctx, peers)
	asking.Wait()
	return answers
}

// askInStep fills in how far behind each peer is. A peer is in step with itself.
func (c *Control) askInStep(ctx context.Context, peers []scheduler.PeerState) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var asking sync.WaitGroup
	for i := range peers {
		p := &peers[i]
		id, err := peer.Decode(p.ID)
		switch {
		case p.Self:
			p.Behind = new(int)
		case err == nil && asked(*p):
			asking.Go(func() {
				if behind, err := c.Mesh.InStep(ctx, id); err == nil {
					p.Behind = &behind
				}
			})
		}
	}
	asking.Wait()
}

// asked says whether it is worth waiting for an answer of a peer.
func asked(p scheduler.PeerState) bool {
	return !p.Self && p.State != string(liveness.Gone) && p.State != string(liveness.Suspect)
}

func (c *Control) meshName() string {
	var settings membership.Settings
	if r, ok := c.Mesh.Table().Get(membership.KindMesh, membership.SettingsID); ok && record.Unmarshal(r.Payload, &settings) == nil {
		return settings.Name
	}
	return string(c.MeshID)
}

// mayMean says whether a text stands for an id: a prefix of it, or its end as
// listings show it.
func mayMean(id, text string) bool {
	return text != "" && strings.HasPrefix(id, text) || len(text) >= 4 && strings.HasSuffix(id, text)
}

// findPeer names one peer by name, id or a unique prefix of either.
func findPeer(peers []scheduler.PeerState, name string) (scheduler.PeerState, error) {
	var found []scheduler.PeerState
	for _, p := range peers {
		switch {
		case p.ID == name:
			return p, nil
		case p.Name == name, name != "" && strings.HasPrefix(p.Name, name), mayMean(p.ID, name):
			found = append(found, p)
		}
	}
	exact := slices.DeleteFunc(slices.Clone(found), func(p scheduler.PeerState) bool { return p.Name != name })
	if len(exact) == 1 && !slices.ContainsFunc(found, func(p scheduler.PeerState) bool { return p.ID != exact[0].ID && mayMean(p.ID, name) }) {
		return exact[0], nil // But a machine that calls itself what stands for another's id is not taken for it.
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
