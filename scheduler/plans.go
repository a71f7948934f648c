package scheduler

import (
	"slices"

	"relay/scheduler/demand"
	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

// PlanState is every way in which a model could run, for people.
type PlanState struct {
	Model ModelState `json:"model"`
	// Text says where it runs or is to run and why, or why it runs nowhere.
	Text string       `json:"text"`
	Ways []PlannedWay `json:"ways"`
	// Refused are the peers that could not run it in any way, each with the reason.
	Refused []RefusedPeer `json:"refused"`
}

// PlannedWay is one way on one peer.
type PlannedWay struct {
	Peer string `json:"peer"`
	Name string `json:"name"`
	// Way is gpu, gpus, gpu+ram, shards or cpu.
	Way string `json:"way"`
	// Verdict is fits, evicts (idle models are unloaded for it), later (not while
	// what runs there now runs, or while the device is busy) or never.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Text    string `json:"text,omitempty"`
	Chosen  bool   `json:"chosen"`
	Runs    bool   `json:"runs"`
	// Memory is what it would take, by device.
	Memory []DeviceMemory `json:"memory"`
	// Prefill and Decode are the predicted tokens a second of one request; Guessed
	// says that the speed of a device is not known yet and that of its kind was taken.
	Prefill float64 `json:"prefill_tps"`
	Decode  float64 `json:"decode_tps"`
	Guessed bool    `json:"guessed"`
	// Measured is what it took and did when it last ran there that way.
	Measured *MeasuredWay `json:"measured,omitempty"`
	// Holds says that the peer has the file; else Fetch is how many seconds it would
	// take to fetch, by the rate of the peer's last pull; null where that is not known.
	Holds bool     `json:"holds"`
	Fetch *float64 `json:"fetch_s"`
	// Shares are what other peers would take, where the way is shards.
	Shares []PlannedShare `json:"shares,omitempty"`
}

// PlannedShare is what one peer would take of a model that another one coordinates.
type PlannedShare struct {
	Peer string `json:"peer"`
	Name string `json:"name"`
	// From is its first layer, counted from 0.
	From   int            `json:"from"`
	Memory []DeviceMemory `json:"memory"`
}

// DeviceMemory is memory on one device, in bytes, and the layers that lie there,
// the output layer counted.
type DeviceMemory struct {
	Device string `json:"device"`
	Layers int    `json:"layers"`
	Bytes  uint64 `json:"bytes"`
}

// MeasuredWay is what the engine took and did, by its own figures.
type MeasuredWay struct {
	Memory  []DeviceMemory `json:"memory"`
	Prefill float64        `json:"prefill_tps"`
	Decode  float64        `json:"decode_tps"`
	LoadMS  int64          `json:"load_ms"`
}

// RefusedPeer is why a peer cannot run a model, in one sentence.
type RefusedPeer struct {
	Peer   string `json:"peer"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Plan says how a model could run, and predicts. It is worked out by the peer that
// is asked, from what it knows of the others.
func (s *Scheduler) Plan(name string) (PlanState, error) {
	v := s.newView()
	m := v.resolve(name)
	if m == nil {
		return PlanState{}, v.unknown(name)
	}
	plan := PlanState{Model: s.modelState(v, m, s.unfinished(v)), Ways: []PlannedWay{}, Refused: []RefusedPeer{}}
	plan.Text = plan.Model.Placed
	current := v.placements[m.uid]
	snapshot := v.snapshot(m, current.leader)
	model := placement.Model{ // As its leader would have it; one that sleeps, if somebody asked for it.
		UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: max(1, m.Min, len(current.Peers)), Only: m.Only,
		Evict: current.Evict || current.Asleep || m.kept(), Fetch: mayFetch(m.Model, snapshot, demand.Want{}),
	}
	for _, o := range placement.Options(model, snapshot) {
		way := PlannedWay{
			Peer: o.Peer, Name: o.Name, Way: string(o.Kind), Verdict: o.Verdict.String(), Reason: o.Reason, Text: o.Text, Chosen: o.Chosen, Runs: o.Runs,
			Memory: memoryOf(o.Parts), Prefill: o.Prefill, Decode: o.Decode, Guessed: o.Guessed, Holds: o.Holds, Shares: v.plannedShares(o.Group),
		}
		if o.FetchSeconds >= 0 {
			way.Fetch = &o.FetchSeconds
		}
		if o.Measured != nil {
			way.Measured = &MeasuredWay{memoryOf(o.Measured.Parts), o.Measured.Prefill, o.Measured.Decode, o.Measured.LoadMS}
		}
		plan.Ways = append(plan.Ways, way)
	}
	plan.together(v, m, current)
	for _, r := range placement.Reject(model, snapshot) {
		plan.Refused = append(plan.Refused, RefusedPeer{r.Peer, v.peer[r.Peer].Name, r.Reason, r.Text})
	}
	return plan, nil
}

// together shows the group that a model is placed on as what is chosen.
func (p *PlanState) together(v *view, m *modelView, current placementView) {
	at := slices.IndexFunc(current.Ways, func(w ways.Way) bool { return w.Group != nil })
	if at < 0 {
		return
	}
	placed, coordinator := current.Ways[at], current.Peers[at]
	alone := len(current.Peers) == 1 // No whole replica is to take its place.
	for i := range p.Ways {
		way := &p.Ways[i]
		if way.Peer != coordinator || way.Way != string(ways.Shards) {
			way.Chosen = way.Chosen && !alone
			continue
		}
		way.Chosen, way.Verdict, way.Reason, way.Text = true, ways.Fits.String(), "", ""
		way.Memory, way.Decode, way.Prefill, way.Guessed, way.Shares = memoryOf(placed.Parts), placed.Decode, placed.Prefill, placed.Guessed, v.plannedShares(placed.Group)
		way.Runs = slices.ContainsFunc(m.replicas, func(r replicaView) bool {
			return r.peer == coordinator && r.Group == placed.Group.ID && r.State == StateReady
		})
	}
	slices.SortStableFunc(p.Ways, func(a, b PlannedWay) int { return boolCompare(b.Chosen, a.Chosen) })
}

// plannedShares are the shares of a group, for people.
func (v *view) plannedShares(g *ways.Group) (list []PlannedShare) {
	if g == nil {
		return nil
	}
	for _, s := range g.Shares {
		name := s.Peer
		if p := v.peer[s.Peer]; p != nil {
			name = p.Name
		}
		list = append(list, PlannedShare{s.Peer, name, s.From, memoryOf(s.Parts)})
	}
	return list
}

// memoryOf is what is reserved, by device.
func memoryOf(parts []ways.Part) []DeviceMemory {
	list := []DeviceMemory{}
	for _, p := range parts {
		list = append(list, DeviceMemory(p))
	}
	return list
}

// Workload is one of this peer's own replicas.
type Workload struct {
	UID   string `json:"uid"`
	State string `json:"state"`
	// InFlight are the requests that run there, Waiting those above its slots or
	// waiting for the cores.
	InFlight int `json:"inflight"`
	Waiting  int `json:"waiting"`
	// LastServed is the seconds since a request last ended; null if none has.
	LastServed *float64 `json:"last_served_s"`
	// Resident is the seconds since it was ready; null while it is not.
	Resident *float64 `json:"resident_s"`
	// Links are what has gone to the workers of its group and back.
	Links []LinkUse `json:"links,omitempty"`
}

// LinkUse is what has gone through the connections of a coordinator's engine to one
// worker, since the engine was started.
type LinkUse struct {
	Peer string `json:"peer"`
	// Out and In are bytes to the worker and from it, Turns the round trips.
	Out   uint64 `json:"out"`
	In    uint64 `json:"in"`
	Turns uint64 `json:"turns"`
}
