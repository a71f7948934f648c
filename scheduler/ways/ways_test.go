package ways_test

import (
	"testing"

	"relay/scheduler/ways"
)

const gib = 1 << 30

// dense is a model of so many layers of 1 GiB each, of which a tenth is KV cache.
func dense(layers int) ways.Shape {
	return ways.Shape{Input: gib, Output: gib, Compute: gib / 2, Host: gib / 4,
		Layers: []ways.Layers{{Count: layers, Weights: gib - gib/8, KV: gib / 8}}}
}

// mixed is a model of experts: of each layer of 1 GiB three quarters.
func mixed(layers int) ways.Shape {
	return ways.Shape{Input: gib, Output: gib, Compute: gib / 2, Host: gib / 4, Experts: 8, Used: 2,
		Layers: []ways.Layers{{Count: layers, Weights: gib, Experts: gib / 4 * 3}}}
}

func ram(lent, free float64) ways.Device {
	return ways.Device{ID: ways.HostID, Name: "RAM", Known: true, Lent: uint64(lent * gib), Free: uint64(free * gib)}
}

func gpu(id string, lent, free float64) ways.Device {
	return ways.Device{ID: id, Name: "a card", GPU: true, Known: true, Lent: uint64(lent * gib), Free: uint64(free * gib)}
}

func machine(host ways.Device, gpus ...ways.Device) ways.Machine {
	return ways.Machine{Name: "attic", Host: host, GPUs: gpus}
}

func TestSmoke(t *testing.T) {
	for _, m := range []ways.Machine{
		machine(ram(32, 20)), machine(ram(32, 20), gpu("CUDA0", 24, 24)), machine(ram(32, 20), gpu("CUDA0", 8, 8)), machine(ram(4, 4), gpu("CUDA0", 8, 8), gpu("CUDA1", 8, 6)),
	} {
		for _, s := range []ways.Shape{dense(10), mixed(10)} {
			for _, r := range ways.Ladder(s, m) {
				t.Logf("%+v", r)
			}
			w, v, ok := ways.Best(s, m, ways.Later)
			t.Log(w, v, ok)
		}
	}
}
