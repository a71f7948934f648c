// Package placementtest makes meshes and models for tests and figures of
// placement: machines as people have them, the same ones for the same seed.
package placementtest

import (
	"fmt"
	"math/rand/v2"

	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// Mesh is n peers, at most 1000, most of them up: laptops, desktops with a GPU,
// and machines with several. Some hold the file of the model that they are seen
// for, and none runs it; something else runs on each.
func Mesh(seed uint64, n int) placement.Snapshot {
	r := rand.New(rand.NewPCG(seed, 1))
	s := placement.Snapshot{Peers: make([]placement.Peer, n)}
	for i := range s.Peers {
		name := fmt.Sprintf("peer%03d", i)
		s.Peers[i] = placement.Peer{
			ID: fmt.Sprintf("id%03d", (i*7919)%1000), Name: name, Alive: r.IntN(20) > 0, Trust: "replicas", Engine: r.IntN(20) > 0,
			Holds: r.IntN(4) == 0, Drained: r.IntN(50) == 0, Cordoned: r.IntN(50) == 0,
			DiskKnown: true, DiskFree: uint64(r.IntN(200)) * gib, FetchRate: float64(r.IntN(100)) * mib,
			Machine: machine(r, name),
		}
	}
	return s
}

func machine(r *rand.Rand, name string) ways.Machine {
	m := ways.Machine{Name: name, Host: device(r, ways.HostID, 8<<r.IntN(5))}
	for i := range []int{0, 0, 1, 1, 1, 2, 4, 8}[r.IntN(8)] {
		g := device(r, fmt.Sprintf("CUDA%d", i), 8<<r.IntN(3))
		g.GPU, g.Known = true, r.IntN(20) > 0
		if r.IntN(10) == 0 {
			g.Busy = "another program uses it"
		}
		m.GPUs = append(m.GPUs, g)
	}
	return m
}

func device(r *rand.Rand, id string, size int) ways.Device {
	d := ways.Device{ID: id, Name: id, Known: true, Lent: uint64(size) * gib}
	d.Free = d.Lent - uint64(r.IntN(size))*gib
	d.Evictable = (d.Lent - d.Free) / uint64(1+r.IntN(3))
	if r.IntN(2) == 0 {
		d.Decode = 1e10 * (1 + 9*r.Float64())
		d.Prefill = 8 * d.Decode
	}
	return d
}

// Models are n models of 1 to some 60 GiB, each wanted once to three times.
func Models(seed uint64, n int) []placement.Model {
	r := rand.New(rand.NewPCG(seed, 2))
	models := make([]placement.Model, n)
	for i := range models {
		shape := Shape(r)
		models[i] = placement.Model{
			UID: fmt.Sprint("uid", i), Name: fmt.Sprint("model", i), CID: fmt.Sprint("cid", i), Bytes: int64(shape.CPU()), Shape: shape,
			Want: 1 + r.IntN(3), Evict: r.IntN(2) == 0, Fetch: r.IntN(2) == 0,
		}
	}
	return models
}

// Shape is what a model of 16 to 80 layers takes; every third one is of experts,
// and in every other layers with a small window alternate with full ones.
func Shape(r *rand.Rand) ways.Shape {
	layers, weights := 16+r.IntN(65), uint64(50+r.IntN(700))*mib
	s := ways.Shape{Input: weights, Output: weights, Tied: r.IntN(2) == 0, Compute: 300 * mib, Host: 200 * mib}
	l := ways.Layers{Count: layers, Weights: weights, KV: uint64(8+r.IntN(60)) * mib}
	if r.IntN(3) == 0 {
		s.Experts, s.Used, l.Experts = 64, 8, weights/10*9
	}
	if r.IntN(2) == 0 {
		s.Layers = []ways.Layers{l}
		return s
	}
	for at := 0; at < layers; at += 6 {
		narrow, full := l, l
		narrow.Count, narrow.KV, full.Count = 5, mib, 1
		s.Layers = append(s.Layers, narrow, full)
	}
	return s
}
