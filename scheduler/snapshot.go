package scheduler

import (
	"slices"
	"time"

	"relay/scheduler/placement"
	"relay/scheduler/setback"
	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// snapshot is what placement decides from.
func (l *leading) snapshot(v *view, m *modelView, now time.Time) placement.Snapshot {
	s := v.snapshot(m, l.s.self)
	grace := moveTime
	if slices.ContainsFunc(m.replicas, func(r replicaView) bool {
		return r.State == StateLoading && !v.peer[r.peer].Draining && v.peer[r.peer].alive()
	}) {
		grace = max(grace, m.budget()) // It serves until that one is ready.
	}
	for i := range s.Peers {
		p := &s.Peers[i]
		p.Grace = now.Sub(l.drained[p.ID]) < grace
		look := func(way string) setback.State {
			return l.setbacks.Look(setback.Key{Peer: p.ID, UID: m.uid, Way: way}, v.peer[p.ID].advert.Engine.Commit, now)
		}
		p.Parked, p.Failed, p.FailedText = false, "", "" // It is this leader's to know.
		if state := look(""); state.Blocked || state.Parked {
			p.Failed, p.FailedText, p.Parked = state.Reason, state.Text, state.Parked
		}
		p.Machine.Blocked = nil
		soft := l.soft[replicaKey{p.ID, m.uid}]
		for _, kind := range []ways.Kind{ways.OneGPU, ways.GPUs, ways.Hybrid, ways.CPU, ways.Shards} {
			if state := look(string(kind)); state.Blocked || state.Parked {
				p.Machine.Blocked = append(p.Machine.Blocked, ways.Block{Kind: kind, Parked: state.Parked, Reason: state.Reason, Text: state.Text})
			} else if kind != ways.CPU && kind != ways.Shards && now.Before(soft.offGPU) {
				p.Machine.Blocked = append(p.Machine.Blocked, ways.Block{Kind: kind, Reason: string(DeviceBusy), Text: "it had to leave a GPU there for another program a short while ago"})
			}
		}
		if now.Before(soft.until) {
			p.Failed, p.FailedText = soft.reason, soft.text
		}
	}
	return s
}

// snapshot is what every peer can see of whole replicas; what failed where is its leader's
// to know, but for where it is parked.
func (v *view) snapshot(m *modelView, self string) placement.Snapshot {
	var s placement.Snapshot
	holders := v.wholeHolders(m)
	current := v.placements[m.uid]
	for i := range v.peers {
		p := &v.peers[i]
		view := placement.Peer{
			ID: p.id, Name: p.Name, Alive: !p.gone(), Draining: p.advert.Draining, Trust: string(p.Trust),
			Drained: p.Draining, Cordoned: p.Cordoned,
			Engine: p.adverts && p.advert.NoEngine == "", NoEngine: p.advert.NoEngine,
			Machine: v.machine(p, m.uid), Holds: slices.Contains(holders, p.id), Gone: v.gone(p.id, m), Paused: p.advert.Paused,
			DiskFree: p.advert.DiskFree, DiskKnown: p.advert.DiskTotal > 0, FetchRate: p.advert.FetchRate,
			Build: shards.Build{Commit: p.advert.Engine.Commit, RPC: p.advert.Engine.RPC}, RTT: p.rtts(), Own: m.ownOf(p.id),
		}
		// An order stands until it is answered.
		// What fell where it ran still belongs there; what sleeps belongs nowhere.
		view.Was = slices.Contains(last(current.Placement), p.id)
		view.Placed = view.Was && (len(current.Peers) > 0 || !current.Asleep)
		ordered := slices.Contains(current.Peers, p.id) && current.way(p.id, m.Model).Group == nil // As a whole replica.
		view.Runs = ordered && current.leader == self
		for _, r := range m.replicas {
			if r.peer != p.id || r.Group != "" {
				continue
			}
			switch r.State {
			case StateReady, StateLoading:
				view.Runs, view.Ready = true, r.State == StateReady
				// It may not have come to run as it was ordered; while it changes, it will.
				if r.State == StateReady && r.Stage == "" && r.Way != "" && len(r.Parts) > 0 {
					view.Way = &ways.Way{Kind: ways.Kind(r.Way), Parts: r.Parts, CPUExperts: r.CPUExperts}
				}
			case StateFailed, StateRefused, StateDraining:
				view.Runs = false
			}
		}
		if view.Way == nil && ordered {
			way := current.way(p.id, m.Model)
			view.Way = &way
		}
		for _, k := range current.Parked {
			switch {
			case k.Peer != p.id:
			case k.Way == "":
				view.Parked, view.Failed, view.FailedText = true, k.Reason, k.Text
			default:
				view.Machine.Blocked = append(view.Machine.Blocked, ways.Block{Kind: ways.Kind(k.Way), Parked: true, Reason: k.Reason, Text: k.Text})
			}
		}
		s.Peers = append(s.Peers, view)
	}
	return s
}

// rtts are a peer's round trips to others, as it told them.
func (p *peerView) rtts() map[string]time.Duration {
	if len(p.advert.RTT) == 0 {
		return nil
	}
	list := make(map[string]time.Duration, len(p.advert.RTT))
	for id, micros := range p.advert.RTT {
		list[id] = time.Duration(micros) * time.Microsecond
	}
	return list
}

// ownOf is what a peer has reserved for a group of the model, in bytes by device.
func (m *modelView) ownOf(peer string) map[string]uint64 {
	own := map[string]uint64{}
	add := func(parts []ways.Part) {
		for _, part := range parts {
			own[part.Device] += part.Bytes
		}
	}
	for _, r := range m.replicas {
		if r.peer == peer && r.Group != "" && r.State != StateFailed && r.State != StateRefused {
			add(r.Parts)
		}
	}
	for _, s := range m.shares {
		if s.peer == peer && s.State != StateFailed && s.State != StateRefused {
			add(s.Parts)
		}
	}
	return own
}
