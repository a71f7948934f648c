package shards

import "relay/scheduler/ways"

// device is one that computes, with what it has for layers.
type device struct {
	id      string
	room    uint64  // Bytes, its buffer taken off.
	shared  bool    // It takes of the host's memory.
	perByte float64 // Seconds for each byte of weights that a token reads.
}

// side is one way to take part: on the GPUs of a peer, or in its RAM.
type side struct {
	devices []device
	left    uint64 // Host memory for those that take of it, in bytes.
}

// fastest is the time per byte of its fastest device.
func (s *side) fastest() float64 {
	perByte := inf
	for _, d := range s.devices {
		perByte = min(perByte, d.perByte)
	}
	return perByte
}

// worker is a member that could take a share.
type worker struct {
	*Member
	sides   []side
	perByte float64 // Of its fastest device.
}

func newWorker(m *Member, sides []side) *worker {
	w := &worker{m, sides, inf}
	for i := range sides {
		w.perByte = min(w.perByte, sides[i].fastest())
	}
	return w
}

// post is one way for a member to coordinate.
type post struct {
	*Member
	side                // Its GPUs; without one the output layer is in RAM.
	perByte     float64 // Of RAM.
	least, most int     // First layers in RAM.
}

// deviceFor is what a device has for layers; ok is false where that is nothing.
func (f *former) deviceFor(m *ways.Machine, d *ways.Device, id string, room uint64) (device, bool) {
	compute := f.pieces.Compute()
	if room <= compute {
		return device{}, false
	}
	return device{id: id, room: room - compute, shared: d.Unified, perByte: 1 / m.Rate(d)}, true
}

// gpus are those of a machine that can be used for the verdict.
func (f *former) gpus(m *ways.Machine, shared bool) (list []device) {
	for i := range m.GPUs {
		g := &m.GPUs[i]
		if room, ok := g.Room(f.verdict); ok && (shared || !g.Unified) {
			if d, ok := f.deviceFor(m, g, g.ID, room); ok {
				list = append(list, d)
			}
		}
	}
	return list
}

// sidesOf are the ways in which a member could work.
func (f *former) sidesOf(m *ways.Machine) (sides []side) {
	ram, ok := m.Host.Room(f.verdict)
	beside := f.pieces.Beside()
	if !ok || ram < beside {
		return nil
	}
	if gpus := f.gpus(m, true); len(gpus) > 0 {
		sides = append(sides, side{gpus, ram - beside})
	}
	if d, ok := f.deviceFor(m, &m.Host, ways.HostID, ram-beside); ok {
		sides = append(sides, side{devices: []device{d}})
	}
	return sides
}

// postsOf are the ways in which a member could coordinate.
func (f *former) postsOf(m *Member) (posts []post) {
	ram, ok := m.Machine.Host.Room(f.verdict)
	if !ok {
		return nil
	}
	add := func(gpus []device, least, most int) {
		for ; most >= least && f.pieces.Coordinating(most, gpus == nil) > ram; most-- {
		}
		if most >= least {
			left := ram - f.pieces.Coordinating(most, gpus == nil)
			posts = append(posts, post{m, side{gpus, left}, 1 / m.Machine.Rate(&m.Machine.Host), least, most})
		}
	}
	add(nil, 0, f.n-1)
	own, all := f.gpus(&m.Machine, false), f.gpus(&m.Machine, true)
	if len(own) > 0 {
		add(own, 0, f.n-1)
	}
	if len(all) > len(own) { // What is not in RAM is left to them.
		add(all, 0, 0)
		add(all, 1, 1)
	}
	return posts
}
