package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"relay/llama/gguf"
)

// A simLoad is how the stand-in pretends to load a model onto GPUs.
type simLoad struct {
	devices            []string // as ID:NAME:MIB
	use, split         string
	layers, cpuExperts int
	file               string
	context, slots     int
}

// A simDevice is a pretended GPU.
type simDevice struct {
	id, name string
	mib      uint64
}

func (l simLoad) parse() ([]simDevice, error) {
	var list []simDevice
	for _, text := range l.devices {
		id, rest, _ := strings.Cut(text, ":")
		i := strings.LastIndexByte(rest, ':')
		if id == "" || i < 0 {
			return nil, fmt.Errorf("--sim-device %s: it is ID:NAME:MIB", text)
		}
		mib, err := strconv.ParseUint(rest[i+1:], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--sim-device %s: %s is no number of MiB", text, rest[i+1:])
		}
		list = append(list, simDevice{id, rest[:i], mib})
	}
	return list, nil
}

// simBuffers are what is put on one device, in bytes.
type simBuffers struct{ model, kv, compute uint64 }

// say writes the lines by which llama-server says what it puts where, and fails
// as it does where that is more than there is. Of a file that is no model it
// says nothing.
func (l simLoad) say(log io.Writer) error {
	used, err := l.used()
	if err != nil {
		fmt.Fprintf(log, "0.00.001.000 E srv    load_model: %v\n", err)
		return err
	}
	h, err := gguf.Read(l.file)
	if err != nil {
		return nil
	}
	shape, err := h.Shape(gguf.Serving{Context: l.context, Slots: l.slots})
	if err != nil {
		return nil
	}
	host, on, offloaded, layers, err := l.place(shape, used)
	if err != nil {
		fmt.Fprintf(log, "0.00.001.000 E srv    load_model: %v\n", err)
		return err
	}
	line := func(place, device, kind string, bytes uint64) {
		if bytes > 0 {
			fmt.Fprintf(log, "0.00.002.000 I %s: %10s %s buffer size = %8.2f MiB\n", place, device, kind, float64(bytes)/(1<<20))
		}
	}
	fmt.Fprintf(log, "0.00.001.000 I load_tensors: offloaded %d/%d layers to GPU\n", offloaded, layers)
	line("load_tensors", "CPU", "model", host.model)
	line("llama_kv_cache", "CPU", "KV", host.kv)
	line("sched_reserve", "CPU", "compute", host.compute)
	for i, d := range used {
		b := on[i]
		line("load_tensors", d.id, "model", b.model)
		line("llama_kv_cache", d.id, "KV", b.kv)
		line("sched_reserve", d.id, "compute", b.compute)
		if sum := b.model + b.kv + b.compute; sum > d.mib<<20 {
			fmt.Fprintf(log, "0.00.003.000 E ggml_backend_alloc: allocating %.2f MiB on device %s: out of memory\n", float64(sum)/(1<<20), d.id)
			return errors.New("out of memory")
		}
	}
	return nil
}

// used are the pretended GPUs that --device names, in its order.
func (l simLoad) used() ([]simDevice, error) {
	if l.use == "none" || l.layers == 0 {
		return nil, nil
	}
	all, err := l.parse()
	if err != nil {
		return nil, err
	}
	var list []simDevice
	for id := range strings.SplitSeq(l.use, ",") {
		i := slices.IndexFunc(all, func(d simDevice) bool { return d.id == id })
		if i < 0 {
			return nil, fmt.Errorf("invalid device: %s", id)
		}
		list = append(list, all[i])
	}
	return list, nil
}

// place shares a model out: the last layers go to the GPUs, by --tensor-split
// or else by how large they are, with llama.cpp's own arithmetic.
func (l simLoad) place(shape gguf.Shape, used []simDevice) (host simBuffers, on []simBuffers, offloaded, layers int, err error) {
	var each []gguf.Layers
	for _, run := range shape.Layers {
		each = append(each, slices.Repeat([]gguf.Layers{run}, run.Count)...)
	}
	layers = len(each) + 1
	if len(used) > 0 {
		offloaded = min(l.layers, layers)
	}
	first := layers - offloaded
	on = make([]simBuffers, len(used))
	shares := make([]float32, len(used))
	parts := strings.Split(l.split, ",")
	if l.split != "" && len(parts) != len(used) {
		return host, nil, 0, 0, fmt.Errorf("--tensor-split %s for %d devices", l.split, len(used))
	}
	var sum float32
	for i, d := range used {
		share := float64(d.mib)
		if l.split != "" {
			if share, err = strconv.ParseFloat(parts[i], 32); err != nil {
				return host, nil, 0, 0, fmt.Errorf("--tensor-split %s", l.split)
			}
		}
		sum += float32(share)
		shares[i] = sum
	}
	deviceOf := func(layer int) *simBuffers {
		if layer < first {
			return &host
		}
		x := float32(layer-first) / float32(offloaded)
		i := slices.IndexFunc(shares, func(s float32) bool { return s/sum > x })
		return &on[max(i, 0)]
	}
	host.model = shape.Input
	for i, layer := range each {
		b := deviceOf(i)
		b.kv += layer.KV
		b.model += layer.Weights
		if i < l.cpuExperts {
			b.model -= layer.Experts
			host.model += layer.Experts
		}
	}
	if b := deviceOf(len(each)); b != &host || !shape.Tied {
		b.model += shape.Output
	}
	for i := range on {
		if on[i].model > 0 {
			on[i].compute = shape.Compute
		}
	}
	if first > 0 || l.cpuExperts > 0 {
		host.compute = shape.Compute
	}
	return host, on, offloaded, layers, nil
}
