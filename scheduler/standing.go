package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

// sleepReason finds in a placement's sentence why the model was unloaded.
func sleepReason(name, text string) string {
	text, ok := strings.CutSuffix(strings.TrimPrefix(text, fmt.Sprintf("model %q: ", name)), sleepText)
	if !ok {
		return ""
	}
	return text
}

// sleepText ends the sentence about a model that sleeps.
const sleepText = "; it is loaded when somebody asks for it"

// shortOnly says whether a model runs nowhere only because a peer had no memory free
// a moment ago.
func (l *leading) shortOnly(s placement.Snapshot, uid string, plan placement.Plan) bool {
	return len(plan.Orders) == 0 && !plan.Final && slices.ContainsFunc(s.Peers, func(p placement.Peer) bool {
		return p.Failed == string(NoCapacity) && l.soft[replicaKey{p.ID, uid}].reason == p.Failed
	})
}

// passes says whether what is in the way of a model may end by itself: not models
// that are kept.
func passes(v *view, m *modelView) bool {
	shape := m.shape()
	for i := range v.peers {
		p := &v.peers[i]
		if !p.alive() || m.Only != "" && m.Only != p.id {
			continue
		}
		machine := v.machine(p, m.uid)
		room := machine.Host.Free
		for _, d := range machine.GPUs {
			if !d.Unified {
				room += d.Free
			}
		}
		for _, o := range v.models {
			for _, r := range o.replicas {
				if o == m || r.peer != p.id || o.kept() {
					continue
				}
				for _, part := range o.placedAt(v, r) {
					room += part.Bytes
				}
			}
		}
		if room >= shape.CPU() || slices.ContainsFunc(machine.GPUs, func(d ways.Device) bool { return d.Busy != "" }) {
			return true
		}
	}
	return false
}

// placedAt is what a replica takes, by device.
func (m *modelView) placedAt(v *view, r replicaView) []ways.Part {
	if len(r.Parts) > 0 {
		return r.Parts
	}
	return v.placements[m.uid].way(r.peer, m.Model).Parts
}

// staying says which models are in the way of one that somebody waits for, where
// it would fit but for them.
func staying(v *view, m *modelView) string {
	shape := m.shape()
	need := shape.CPU()
	var texts []string
	for i := range v.peers {
		p := &v.peers[i]
		host := v.machine(p, m.uid).Host
		if !p.alive() || m.Only != "" && m.Only != p.id || host.Lent < need {
			continue
		}
		for _, o := range v.models {
			at := slices.IndexFunc(o.replicas, func(r replicaView) bool { return r.peer == p.id && r.State == StateReady })
			if o == m || at < 0 {
				continue
			}
			why := "is in use, or was loaded only just now"
			switch {
			case o.Pinned:
				why = "is pinned"
			case o.Min > 0:
				why = "is to have " + counted(o.Min, "replica") + " at least"
			case host.Evictable > 0 && o.replicas[at].inRAM() <= host.Evictable:
				why = "is in use, was loaded only just now, or would not make room enough"
			}
			texts = append(texts, fmt.Sprintf("%q stays on %s: it %s", o.shown, p.Name, why))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "; " + strings.Join(texts[:min(len(texts), 3)], "; ")
}

// sleep has a model be loaded only when it is asked for.
func (l *leading) sleep(uid, why string) {
	l.demand.Slept(uid)
	l.slept[uid] = why
}
