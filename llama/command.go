package llama

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"relay/llama/gguf"
)

// An endpoint is where an engine listens: on a socket, or where there are none
// on a port of the loopback address, guarded by a key. In a network of the engine's
// own there is a port without a key, which dial reaches.
type endpoint struct {
	socket  string
	port    int
	keyFile string
	key     string
	dial    func(context.Context) (net.Conn, error)
}

// checkpoints is how many states of sliding-window and recurrent memory a slot
// keeps to go back to. llama.cpp's own default of 32 can take more memory than
// the model.
const checkpoints = 4

// arguments is the command line of an engine. Nothing that matters is left to
// the engine's defaults: they change, and some of them take memory. remotePorts are
// those of Remotes.
func (e Engine) arguments(s Spec, at endpoint, remotePorts []int) ([]string, error) {
	own, err := splitArgs(s.Args)
	if err != nil {
		return nil, err
	}
	for _, a := range own {
		if !e.flags[a.name] {
			return nil, fmt.Errorf("%w: this engine, %v, has no %s", ErrArgument, e, a.name)
		}
	}
	var args []string
	add := func(words ...string) { args = append(args, words...) }
	// where is like add for options that not every build has.
	where := func(words ...string) bool {
		if e.flags[words[0]] {
			add(words...)
		}
		return e.flags[words[0]]
	}
	slots := max(1, s.Slots)
	add("--model", s.Model, "--alias", s.Name)
	if s.Projector != "" {
		add("--mmproj", s.Projector)
	}
	if at.socket != "" {
		add("--host", at.socket)
	} else {
		add("--host", "127.0.0.1", "--port", strconv.Itoa(at.port))
		if at.keyFile != "" {
			add("--api-key-file", at.keyFile)
		}
	}
	add("--ctx-size", strconv.Itoa(s.Context*slots), "--parallel", strconv.Itoa(slots))
	where("--fit", "off")
	where("--cache-ram", "0")
	where("--ctx-checkpoints", strconv.Itoa(checkpoints))
	if unmapped(s) {
		_ = where("--load-mode", "none") || where("--no-mmap")
	}
	where("--threads-http", strconv.Itoa(connections(slots)))
	where("--no-kv-unified") // each slot has its whole context to itself
	where("--no-slots")
	where("--metrics")
	_ = where("--no-ui") || where("--no-webui")
	where("--jinja")
	where("--offline")
	where("--log-colors", "off")
	where("--log-prefix")
	where("--log-timestamps")
	if e.trace {
		add("--verbosity", "4") // so that it says where layers and buffers go
	}
	threads := s.Threads
	if threads == 0 {
		threads = defaultThreads()
	}
	add("--threads", strconv.Itoa(threads))
	if len(s.Remotes) > 0 {
		e.remotePlacement(s, remotePorts, add)
	} else if len(s.Devices) > 0 {
		if err := e.placement(s, add); err != nil {
			return nil, err
		}
	} else {
		where("--device", "none")
		where("--n-gpu-layers", "0")
	}
	switch s.Kind {
	case KindEmbed:
		add("--embeddings")
	case KindRerank:
		add("--reranking")
	}
	for _, a := range own {
		add(a.words()...)
	}
	if s.Kind == KindEmbed || s.Kind == KindRerank { // The last one counts.
		batch, ubatch := gguf.Batch(gguf.Kind(s.Kind), s.Context, s.Args)
		add("--batch-size", strconv.Itoa(batch), "--ubatch-size", strconv.Itoa(ubatch))
	}
	return args, nil
}

// placement adds what says where layers go, with Devices. The split is in whole
// layers, the output layer counted, and adds up to those that are offloaded:
// then llama.cpp's fractions of it come out even.
func (e Engine) placement(s Spec, add func(...string)) error {
	layers := s.GPULayers
	if layers < 0 {
		layers = maxLayers // builds without "all" take it too
	}
	add("--device", strings.Join(s.Devices, ","), "--n-gpu-layers", strconv.Itoa(layers))
	mode := "layer"
	if len(s.Devices) == 1 {
		mode = "none" // and nothing on any other
	}
	add("--split-mode", mode)
	if len(s.Split) > 1 {
		parts := make([]string, len(s.Split))
		for i, n := range s.Split {
			parts[i] = strconv.Itoa(n)
		}
		add("--tensor-split", strings.Join(parts, ","))
	}
	if s.CPUExperts > 0 {
		const name = "--n-cpu-moe"
		if !e.flags[name] {
			return fmt.Errorf("%w: this engine, %v, cannot keep experts in host memory: it has no %s", ErrSpec, e, name)
		}
		add(name, strconv.Itoa(s.CPUExperts))
	}
	return nil
}
