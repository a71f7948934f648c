package shards

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"relay/scheduler/ways"
)

// Plan is who runs the model together, and how.
type Plan struct {
	// Coordinator is a member's id.
	Coordinator string
	// Way is the coordinator's, of the kind Shards; its Group has the shares and no ID yet.
	Way ways.Way
	// Verdict is Fits, or Evicts where idle models have to go first on some of them.
	Verdict ways.Verdict
	// Load is about how long the coordinator takes to load: it reads and hashes the whole file.
	Load time.Duration
	// Text says why and where, with the predicted speed and who was left out why, in
	// one sentence that does not name the model; Layers is the part of it that says
	// where the layers are and how fast that is.
	Text, Layers string
}

// Refusal is why there is no plan.
type Refusal struct {
	// Reason is a word of the closed list in scheduler.
	Reason string
	// Text is one sentence that does not name the model.
	Text string
	// Verdict is Later where there would be a plan if nothing else ran anywhere, else Never.
	Verdict ways.Verdict
	// Decode is the predicted tokens/s of what was too slow to be planned, else 0.
	Decode float64
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }

// Form plans a group: the fewest peers, of these the closest, of these the fastest, with
// the layers shared out so that the slowest device is as fast as can be. Who makes it
// slower than is any use is left out of it. no is nil where there is a plan.
func Form(p Problem) (plan Plan, no *Refusal) {
	f := &former{p: &p, pieces: p.Pieces, turns: p.Turns}
	if f.turns <= 0 {
		f.turns = Turns
	}
	for i := range p.Members {
		f.members = append(f.members, &p.Members[i])
	}
	slices.SortFunc(f.members, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	if no = f.hopeless(); no != nil {
		return plan, no
	}
	var slow *line
	for v := ways.Fits; v <= min(p.Worst, ways.Evicts); v++ {
		f.look(v)
		l, usable := f.choose()
		if usable {
			return f.plan(l), nil
		}
		if l != nil && (slow == nil || l.seconds() < slow.seconds()) {
			slow = l
		}
	}
	f.look(ways.Later)
	later, usable := f.choose()
	if slow == nil && !usable {
		slow = later
	}
	no = &Refusal{Reason: noCapacity, Verdict: ways.Never}
	if usable {
		no.Verdict = ways.Later
	}
	if slow == nil {
		no.Text = f.lacks(usable)
		return plan, no
	}
	no.Decode = f.way(slow).Decode
	no.Text = f.tooSlow(slow, no.Decode)
	return plan, no
}

// plan is what comes of a group.
func (f *former) plan(l *line) Plan {
	w := f.way(l)
	p := Plan{Coordinator: l.post.ID, Way: w, Verdict: f.verdict, Load: time.Duration(float64(max(0, f.p.Bytes)) / loadRate * float64(time.Second))}
	p.Layers = fmt.Sprintf("%s; %s tokens/s are predicted", f.where(l), perSecond(w.Decode))
	p.Text = f.text(l, &p)
	return p
}

// loadRate is how many bytes of the file the engine's one thread reads and hashes per second.
const loadRate = 0.8e9

// way is the coordinator's way, with what everybody takes and how fast it is.
func (f *former) way(l *line) ways.Way {
	w := ways.Way{Kind: ways.Shards, Group: &ways.Group{}}
	at, d := l.takes[0], 1
	take := func(devices []device, need func(id string, from, layers int) uint64) (parts []ways.Part) {
		for _, device := range devices {
			if layers := l.takes[d]; layers > 0 {
				parts = append(parts, ways.Part{Device: device.id, Layers: layers, Bytes: need(device.id, at, layers)})
				at += layers
			}
			d++
		}
		return parts
	}
	machines := make(map[string]*worker)
	for i := range l.slots {
		s := &l.slots[i]
		share := ways.Share{Peer: s.ID, From: at}
		share.Parts = take(s.devices(), func(id string, from, layers int) uint64 {
			bytes := f.pieces.Memory(from, from+layers) + f.pieces.Compute()
			if id == ways.HostID {
				bytes += f.pieces.Beside()
			}
			return bytes
		})
		if share.Parts[0].Device != ways.HostID {
			share.Parts = append(share.Parts, ways.Part{Device: ways.HostID, Bytes: f.pieces.Beside()})
		}
		w.Group.Shares = append(w.Group.Shares, share)
		machines[s.ID] = s.worker
	}
	w.Parts = take(l.post.devices, func(_ string, from, layers int) uint64 {
		return f.pieces.Memory(from, from+layers) + f.pieces.Compute()
	})
	host := ways.Part{Device: ways.HostID, Layers: l.takes[0], Bytes: f.pieces.Coordinating(l.takes[0], w.Parts == nil)}
	if w.Parts == nil {
		host.Layers++ // The output layer.
	}
	w.Parts = append(w.Parts, host)
	return f.pieces.Together(&l.post.Machine, w, func(peer string) (*ways.Machine, float64) {
		m := machines[peer].Member
		return &m.Machine, f.turns * f.rtt(l.post.Member, m)
	})
}
