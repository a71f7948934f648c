package scheduler

import (
	"fmt"
	"maps"
	"slices"

	"relay/p2p/liveness"
)

// PeerState is one peer as people and programs are shown it.
type PeerState struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Role  string `json:"role"`
	Trust string `json:"trust"`
	// State is alive, draining (alive, and it takes nothing new), suspect or gone.
	State string `json:"state"`
	// Cordoned: an admin has nothing placed there that does not run there.
	// Draining: an admin has what runs there moved away.
	Cordoned bool `json:"cordoned"`
	Draining bool `json:"draining"`
	// Labels are what admins have written beside it.
	Labels  map[string]string `json:"labels"`
	Self    bool              `json:"self"`
	Memory  MemoryState       `json:"memory"`
	Disk    DiskState         `json:"disk"`
	Cores   int               `json:"cores"`
	Devices []Device          `json:"devices"`
	Engine  Build             `json:"engine"`
	// NoEngine is why the peer lends nothing, in a sentence.
	NoEngine string `json:"no_engine,omitempty"`
	// CoresLent are those that models may keep busy; Paused says why its owner has it
	// lend nothing for now.
	CoresLent int       `json:"cores_lent"`
	Paused    string    `json:"paused,omitempty"`
	Link      LinkState `json:"link"`
	// LastSeen is the seconds since the peer last answered; null if it never did.
	LastSeen *float64 `json:"last_seen_s"`
	// Behind is how many records the peer lacked or had older when it was asked;
	// null where it was not asked or did not answer. It has them now.
	Behind *int `json:"behind"`
}

// MemoryState is in bytes: what the machine has, what is free for models, and
// what is lent in all.
type MemoryState struct {
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
	Lent  uint64 `json:"lent"`
}

// DiskState is the disk of the folder for models, in bytes.
type DiskState struct {
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
}

// LinkState is how this peer reaches another.
type LinkState struct {
	// Path is self, direct, relay, or none.
	Path string `json:"path"`
	// Transport is tcp or quic; empty where there is no connection.
	Transport string `json:"transport"`
	// RTTMS is null while it is not known.
	RTTMS *float64 `json:"rtt_ms"`
}

// ModelState is one model and where it runs.
type ModelState struct {
	UID          string         `json:"uid"`
	Name         string         `json:"name"`
	CID          string         `json:"cid"`
	Bytes        int64          `json:"bytes"`
	Kind         string         `json:"kind"`
	Context      int            `json:"context"`
	Slots        int            `json:"slots"`
	Need         uint64         `json:"need"`
	Args         []string       `json:"args"`
	Arch         string         `json:"arch"`
	Parameters   uint64         `json:"parameters"`
	Layers       int            `json:"layers"`
	TrainContext int            `json:"train_context"`
	Leader       *LeaderState   `json:"leader"`
	Replicas     []ReplicaState `json:"replicas"`
	// Projector is the content by which the model reads images, where it has one.
	Projector *RootState `json:"projector,omitempty"`
	// Pinned: relay deletes no copy of it to make room.
	Pinned bool `json:"pinned"`
	// Holders are the ids of the peers that hold all its files whole, Partly of those
	// that have something of them.
	Holders []string `json:"holders"`
	Partly  []string `json:"partly"`
	// Pulls are the unfinished pulls of its files on this machine.
	Pulls []PullState `json:"pulls,omitempty"`
	// Min and Max are the replicas that were asked for, 0 where nothing was said;
	// Only is the id of the one peer it may run on, or empty; IdleUnload the seconds
	// without a request after which a replica is unloaded, 0 for never.
	Min        int    `json:"min"`
	Max        int    `json:"max"`
	Only       string `json:"only,omitempty"`
	IdleUnload int64  `json:"idle_unload_s"`
	// Asleep: it is unloaded, and is loaded when somebody asks for it.
	Asleep bool          `json:"asleep"`
	Parked []ParkedState `json:"parked,omitempty"`
	// Placed says why the model runs where it does, or does not run; Reason is the
	// word for that where it does not.
	Placed string `json:"placed"`
	Reason string `json:"reason,omitempty"`
	// Final: nothing but a person changes that it runs nowhere.
	Final bool `json:"final,omitempty"`
	// Spread: somebody wants it on several peers, even where one holds it.
	Spread bool `json:"spread,omitempty"`
	// Warning is what is wrong although it runs, in a sentence.
	Warning string `json:"warning,omitempty"`
	// Aliases are the further names that mean it and no other; LostAliases those that
	// were given to it and mean another model, by the name of that one.
	Aliases     []string          `json:"aliases"`
	LostAliases map[string]string `json:"lost_aliases,omitempty"`
	// Fallback is the name of the model that may answer in its stead, or empty; its uid
	// where FallbackGone: there is no such model of its kind any more.
	Fallback     string `json:"fallback,omitempty"`
	FallbackGone bool   `json:"fallback_gone,omitempty"`
	// Can is what the headers of its files let it do; null where nobody has looked.
	Can *Can `json:"can"`
	// Later: it runs nowhere now, and is placed once what runs elsewhere has ended or
	// a device is no longer busy.
	Later bool `json:"later,omitempty"`
}

// RootState is one further content of a model.
type RootState struct {
	CID   string `json:"cid"`
	Bytes int64  `json:"bytes"`
}

// Size is the length of all files of the model, in bytes.
func (m ModelState) Size() int64 {
	if m.Projector == nil {
		return m.Bytes
	}
	return m.Bytes + m.Projector.Bytes
}

// LeaderState is who leads a model.
type LeaderState struct {
	Peer  string `json:"peer"`
	Epoch uint64 `json:"epoch"`
}

// ReplicaState is one replica.
type ReplicaState struct {
	Peer   string `json:"peer"`
	State  string `json:"state"`
	Device string `json:"device"`
	// InFlight is the requests on it; null where its peer was not asked or did
	// not answer.
	InFlight *int   `json:"inflight"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	LoadMS   int64  `json:"load_ms,omitempty"`
	// Way is how it runs: gpu, gpus, gpu+ram or cpu, and Memory what is reserved for
	// it, by device.
	Way    string         `json:"way,omitempty"`
	Memory []DeviceMemory `json:"memory,omitempty"`
	// Stage is what it is at while it loads: fetching or starting, with Done of Total
	// bytes where it fetches.
	Stage string `json:"stage,omitempty"`
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
	// Waiting, LastServed and Resident are as in Workload; null where its peer was
	// not asked or did not answer.
	Waiting    *int     `json:"waiting"`
	LastServed *float64 `json:"last_served_s"`
	Resident   *float64 `json:"resident_s"`
	// Shares are what other peers take of it, where it runs on several: this replica's
	// peer coordinates. Layers are counted from 0 there; those before the first share, the
	// ones behind the last, and the output are the coordinator's.
	Shares []ShareState `json:"shares,omitempty"`
}

// ShareState is what one peer takes of a model that another one coordinates.
type ShareState struct {
	Peer string `json:"peer"`
	// From is its first layer, Layers how many there are.
	From   int            `json:"from"`
	Layers int            `json:"layers"`
	Memory []DeviceMemory `json:"memory"`
	// State and what follows are as of a replica; empty where the peer says nothing yet.
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Stage   string `json:"stage,omitempty"`
	Done    int64  `json:"done,omitempty"`
	Total   int64  `json:"total,omitempty"`
	// Link is what has gone to it and back; null where the coordinator was not asked or
	// did not answer.
	Link *LinkUse `json:"link"`
}

// linked says of shares what their coordinator says of the ways to them.
func (r *ReplicaState) linked(links []LinkUse) {
	for i := range r.Shares {
		if at := slices.IndexFunc(links, func(l LinkUse) bool { return l.Peer == r.Shares[i].Peer }); at >= 0 {
			r.Shares[i].Link = &links[at]
		}
	}
}

// Measured takes in what a replica's own peer says of it.
func (r *ReplicaState) Measured(w Workload) {
	r.InFlight, r.Waiting, r.LastServed, r.Resident = &w.InFlight, &w.Waiting, w.LastServed, w.Resident
	r.linked(w.Links)
}

// ParkedState is a peer on which the engine failed for a model again and again:
// it is not tried there until somebody says so.
type ParkedState struct {
	Peer string `json:"peer"`
	// Way is the one way that failed; empty is all of them.
	Way  string `json:"way,omitempty"`
	Text string `json:"text"`
}

// Peers lists the members of the mesh, by name.
func (s *Scheduler) Peers() []PeerState {
	v := s.newView()
	list := make([]PeerState, 0, len(v.peers))
	for i := range v.peers {
		list = append(list, peerState(&v.peers[i]))
	}
	return list
}

func peerState(p *peerView) PeerState {
	state := PeerState{
		ID: p.id, Name: p.Name, Role: string(p.Role), Trust: string(p.Trust), State: string(p.State), Self: p.Self,
		Memory: MemoryState{p.advert.Total, p.advert.Room, p.advert.Lent}, Disk: DiskState{p.advert.DiskTotal, p.advert.DiskFree},
		Cores: p.advert.Cores, CoresLent: p.advert.CoresLent, Paused: p.advert.Paused, Devices: append([]Device{}, p.advert.Devices...), Engine: p.advert.Engine, NoEngine: p.advert.NoEngine,
		Link:     LinkState{Path: "none", Transport: p.Transport},
		Cordoned: p.Cordoned, Draining: p.Draining, Labels: map[string]string{},
	}
	maps.Copy(state.Labels, p.Labels)
	if (p.advert.Draining || p.Draining) && p.State == liveness.Alive {
		state.State = "draining"
	}
	switch {
	case p.Self:
		state.Link.Path = "self"
	case p.Relayed:
		state.Link.Path = "relay"
	case p.Transport != "":
		state.Link.Path = "direct"
	}
	if p.RTT > 0 {
		rtt := float64(p.RTT.Microseconds()) / 1000
		state.Link.RTTMS = &rtt
	}
	if p.Silence >= 0 {
		seconds := p.Silence.Seconds()
		state.LastSeen = &seconds
	}
	return state
}

// ModelStates lists the models of the mesh, by name.
func (s *Scheduler) ModelStates() []ModelState {
	v := s.newView()
	list, pulls := make([]ModelState, 0, len(v.models)), s.unfinished(v)
	for _, m := range v.models {
		list = append(list, s.modelState(v, m, pulls))
	}
	return list
}

// Model shows one model, named by name, uid, CID or alias.
func (s *Scheduler) Model(name string) (ModelState, error) {
	v := s.newView()
	m := v.resolve(name)
	if m == nil {
		return ModelState{}, v.unknown(name)
	}
	return s.modelState(v, m, s.unfinished(v)), nil
}

func (s *Scheduler) modelState(v *view, m *modelView, pulls []PullState) ModelState {
	pulls = slices.DeleteFunc(slices.Clone(pulls), func(p PullState) bool { return !m.has(p.CID) })
	state := ModelState{
		UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.Bytes, Kind: m.Kind, Context: m.Context, Slots: m.Slots, Need: m.Need,
		Args: append([]string{}, m.Args...), Arch: m.Arch, Parameters: m.Parameters, Layers: m.Layers, TrainContext: m.TrainContext,
		Replicas: []ReplicaState{}, Holders: append([]string{}, v.wholeHolders(m)...),
		Partly: append([]string{}, v.partHolders(m)...), Pinned: m.Pinned, Pulls: pulls,
		Min: m.Min, Max: m.Max, Only: m.Only, IdleUnload: m.IdleUnload,
	}
	state.Aliases, state.LostAliases = v.aliasesOf(m)
	state.Can = m.Can
	if other := v.fallback(m); other != nil {
		state.Fallback = other.shown
	} else if m.Fallback != "" {
		state.Fallback, state.FallbackGone = m.Fallback, true
	}
	slices.Sort(state.Holders)
	slices.Sort(state.Partly)
	if m.Projector.CID != "" {
		state.Projector = &RootState{m.Projector.CID, m.Projector.Bytes}
	}
	switch p, ok := v.placements[m.uid]; {
	case ok && v.inForce(p):
		state.Leader = &LeaderState{p.leader, p.version[0]}
		state.Placed, state.Reason, state.Final, state.Later = p.Text, p.Reason, p.Final, p.Later
		state.Asleep, state.Spread = p.Asleep && len(p.Peers) == 0, p.Spread
		for _, k := range p.Parked {
			state.Parked = append(state.Parked, ParkedState{k.Peer, k.Way, k.Text})
		}
	case ok:
		state.Placed = fmt.Sprintf("model %q: nobody leads it; its last leader may lead no more", m.shown)
	}
	state.Warning = v.copiesWarning(m)
	for _, r := range m.replicas {
		if !v.peer[r.peer].alive() {
			continue // Its last word, which nobody can rely on any more.
		}
		state.Replicas = append(state.Replicas, ReplicaState{
			Peer: r.peer, State: r.State, Device: r.Device, Reason: r.Reason, Message: r.Message, LoadMS: r.LoadMS,
			Way: r.Way, Memory: memoryOf(r.Parts), Stage: r.Stage, Done: r.Done, Total: r.Total, Shares: v.sharesOf(m, r),
		})
	}
	for _, l := range s.Workload() {
		for i := range state.Replicas {
			if r := &state.Replicas[i]; r.Peer == s.self && l.UID == m.uid {
				r.Measured(l)
			}
		}
	}
	return state
}

// sharesOf are the shares of the group that a replica coordinates.
func (v *view) sharesOf(m *modelView, r replicaView) (list []ShareState) {
	if r.Group == "" {
		return nil
	}
	g := v.placements[m.uid].way(r.peer, m.Model).Group
	if g == nil || g.ID != r.Group {
		return nil
	}
	for _, take := range g.Shares {
		s := ShareState{Peer: take.Peer, From: take.From, Layers: take.Layers(), Memory: memoryOf(take.Parts)}
		if is := v.shareState(take.Peer, m.uid); is != nil && is.Group == g.ID {
			s.Memory, s.State, s.Reason, s.Message, s.Stage, s.Done, s.Total = memoryOf(is.Parts), is.State, is.Reason, is.Message, is.Stage, is.Done, is.Total
		}
		list = append(list, s)
	}
	return list
}
