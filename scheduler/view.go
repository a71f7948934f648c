package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"relay/p2p"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler/leadership"
	"relay/scheduler/ways"
)

// view is the mesh as this peer sees it at one moment. It is not changed once
// it is made.
type view struct {
	peers      []peerView
	peer       map[string]*peerView
	models     []*modelView // By name.
	model      map[string]*modelView
	alias      map[string]*modelView    // Whose an alias is.
	holdings   map[string][]holdingView // By CID.
	placements map[string]placementView // By uid, also of models that are gone.
	seen       map[replicaKey][]ways.Seen
}

type peerView struct {
	p2p.Peer
	id      string
	advert  Advert
	adverts bool // An advert is there.
}

// alive: it may be sent requests. A peer that is not gone yet may only be
// suspect: it is routed away from, and nothing is planned anew.
func (p *peerView) alive() bool { return p.State == liveness.Alive }

func (p *peerView) gone() bool { return p.State == liveness.Gone }

// trusted says whether the peer may see prompts, lead, and run whole models.
func (p *peerView) trusted() bool { return p.Trust == membership.TrustReplicas }

// able says whether the peer may lead and have models placed on it.
func (p *peerView) able() bool { return p.ableButDrained() && !p.Draining }

// ableButDrained leaves out of account that an admin wants the peer empty.
func (p *peerView) ableButDrained() bool { return p.trusted() && p.adverts && !p.advert.Draining }

type modelView struct {
	Model
	uid      string
	version  record.Version
	shown    string // The name by which it is shown and asked for.
	replicas []replicaView
	shares   []shareView // By their first layer.
}

type replicaView struct {
	Replica
	peer    string
	version record.Version
}

type shareView struct {
	Share
	peer    string
	version record.Version
}

// shareState is what a peer says of its share of a model; nil where it says nothing.
func (v *view) shareState(peer, uid string) *shareView {
	m := v.model[uid]
	if m == nil {
		return nil
	}
	for i := range m.shares {
		if m.shares[i].peer == peer {
			return &m.shares[i]
		}
	}
	return nil
}

// inRAM is the host memory that is reserved for the replica, in bytes.
func (r replicaView) inRAM() uint64 {
	if i := slices.IndexFunc(r.Parts, func(p ways.Part) bool { return p.Device == ways.HostID }); i >= 0 {
		return r.Parts[i].Bytes
	}
	return 0
}

// mark names a replica as it is now.
func (r replicaView) mark() string { return r.peer + " " + r.version.String() }

type holdingView struct {
	Holding
	peer string
}

type placementView struct {
	Placement
	leader  string
	version record.Version
}

func (p placementView) fence() leadership.Fence {
	return leadership.Fence{Epoch: p.version[0], Rank: p.version[1]}
}

func (s *Scheduler) newView() *view {
	v := &view{peer: map[string]*peerView{}, model: map[string]*modelView{}, alias: map[string]*modelView{}, holdings: map[string][]holdingView{},
		placements: map[string]placementView{}, seen: map[replicaKey][]ways.Seen{}}
	table := s.Mesh.Table()
	for _, p := range s.Mesh.Peers() {
		v.peers = append(v.peers, peerView{Peer: p, id: p.ID.String()})
	}
	for i := range v.peers {
		v.peer[v.peers[i].id] = &v.peers[i]
	}
	for _, r := range table.List(KindAdvert) {
		if p := v.peer[r.ID]; p != nil {
			if a, err := decode[Advert](r.Record); err == nil {
				p.advert, p.adverts = a, true
			}
		}
	}
	for _, r := range table.List(KindModel) {
		if m, err := decode[Model](r.Record); err == nil {
			v.models = append(v.models, &modelView{Model: m, uid: r.ID, version: r.Version})
		}
	}
	v.nameModels()
	v.nameAliases()
	for _, r := range table.List(KindReplica) {
		owner, uid, _ := splitPair(r.ID)
		if m := v.model[uid]; m != nil && v.serves(owner) { // What others say counts for nothing.
			if state, err := decode[Replica](r.Record); err == nil {
				m.replicas = append(m.replicas, replicaView{state, owner, r.Version})
			}
		}
	}
	for _, r := range table.List(KindShare) {
		owner, uid, _ := splitPair(r.ID)
		if m := v.model[uid]; m != nil && v.peer[owner].takesShares() {
			if state, err := decode[Share](r.Record); err == nil {
				m.shares = append(m.shares, shareView{state, owner, r.Version})
			}
		}
	}
	for _, m := range v.models {
		slices.SortFunc(m.shares, func(a, b shareView) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.peer, b.peer)) })
	}
	for _, r := range table.List(KindHolding) {
		owner, c, _ := splitPair(r.ID)
		if v.peer[owner] == nil {
			continue
		}
		if h, err := decode[Holding](r.Record); err == nil {
			v.holdings[c] = append(v.holdings[c], holdingView{h, owner})
		}
	}
	for _, r := range table.List(KindMeasured) {
		owner, uid, _ := splitPair(r.ID)
		if m := v.model[uid]; m != nil && v.serves(owner) {
			if measured, err := decode[Measured](r.Record); err == nil && measured.Served == servedKey(m.Model) {
				v.seen[replicaKey{owner, uid}] = measured.Seen
			}
		}
	}
	for _, r := range table.List(KindPlacement) {
		if p, err := decode[Placement](r.Record); err == nil {
			v.placements[r.ID] = placementView{p, r.Author.String(), r.Version}
		}
	}
	return v
}

// serves says whether a peer is a member that may be sent requests, if it has a
// replica and is alive.
func (v *view) serves(id string) bool {
	p := v.peer[id]
	return p != nil && p.trusted()
}

// inForce says whether a placement is an order: its author may still lead.
func (v *view) inForce(p placementView) bool { return v.serves(p.leader) }

// nameModels gives every model the name it is asked for by. Where two have one
// name, made on two sides of a cut, the older record owns it; the other is
// reached as name~uid4 until somebody renames it.
func (v *view) nameModels() {
	slices.SortFunc(v.models, func(a, b *modelView) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.version.Compare(b.version), cmp.Compare(a.uid, b.uid))
	})
	for i, m := range v.models {
		v.model[m.uid] = m
		m.shown = m.Name
		if i > 0 && v.models[i-1].Name == m.Name {
			m.shown = m.Name + "~" + m.uid[:min(4, len(m.uid))]
		}
	}
}

// find looks a model up by the name it is shown under, its uid, or its CID.
func (v *view) find(name string) *modelView {
	for _, m := range v.models {
		if m.shown == name {
			return m
		}
	}
	if m := v.model[name]; m != nil {
		return m
	}
	for _, m := range v.models {
		if m.CID == name {
			return m
		}
	}
	return nil
}

// holding is what a peer says of one content; zero where it says nothing.
func (v *view) holding(peer, cid string) Holding {
	for _, h := range v.holdings[cid] {
		if h.peer == peer {
			return h.Holding
		}
	}
	return Holding{}
}

// wholeHolders lists the peers that hold all contents of a model whole, whatever
// their state.
func (v *view) wholeHolders(m *modelView) []string {
	var ids []string
	for _, h := range v.holdings[m.CID] {
		if h.Whole && (m.Projector.CID == "" || v.holding(h.peer, m.Projector.CID).Whole) {
			ids = append(ids, h.peer)
		}
	}
	return ids
}

// partHolders lists those that have something of a model and not all of it.
func (v *view) partHolders(m *modelView) []string {
	whole := v.wholeHolders(m)
	var ids []string
	for _, r := range m.roots() {
		for _, h := range v.holdings[r.CID] {
			if h.Gone == "" && !slices.Contains(whole, h.peer) && !slices.Contains(ids, h.peer) {
				ids = append(ids, h.peer)
			}
		}
	}
	return ids
}

// gone is why a peer no longer holds what it held whole of a model, or "".
func (v *view) gone(peer string, m *modelView) string {
	for _, r := range m.roots() {
		if h := v.holding(peer, r.CID); h.Gone != "" {
			return h.Gone
		}
	}
	return ""
}

// names lists the models that there are, for a sentence.
func (v *view) names() string {
	if len(v.models) == 0 {
		return "there are no models yet: relay model add demo"
	}
	var names []string
	for _, m := range v.models[:min(8, len(v.models))] {
		names = append(names, m.shown)
	}
	text := "there is " + strings.Join(names, ", ")
	if more := len(v.models) - len(names); more > 0 {
		text += " and more"
	}
	return text
}

// machine is what a peer has for a model.
func (v *view) machine(p *peerView, uid string) ways.Machine {
	m := ways.Machine{Name: p.Name, Seen: v.seen[replicaKey{p.id, uid}]}
	m.Host = ways.Device{ID: ways.HostID, Name: "host memory", Known: p.adverts, Lent: p.advert.Lent, Free: p.advert.Room}
	for _, d := range p.advert.Devices {
		device := ways.Device{ID: d.ID, Name: d.Name, GPU: d.Kind == "gpu", Known: d.Known,
			Unified: d.Unified, Lent: d.Lent, Free: d.Room, Evictable: d.Evictable, Busy: d.Busy, Decode: d.Decode, Prefill: d.Prefill}
		switch {
		case d.ID == ways.HostID: // Older peers say of it only what stands beside the devices.
			m.Host.Evictable, m.Host.Decode, m.Host.Prefill = d.Evictable, d.Decode, d.Prefill
		case device.GPU && d.Unusable == "":
			m.GPUs = append(m.GPUs, device)
		}
	}
	return m
}

// serves says whether some replica takes requests.
func (m *modelView) serves(v *view) bool {
	return slices.ContainsFunc(m.replicas, func(r replicaView) bool { return r.State == StateReady && v.peer[r.peer].alive() })
}

func (m Model) budget() time.Duration {
	return 5*time.Minute + time.Duration(m.size()>>30)*20*time.Second
}
