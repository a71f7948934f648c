package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"relay/llama"
	"relay/llama/sim"
)

// A simEngine is the stand-in's command line: its own options, and those by
// which relay starts a llama-server.
type simEngine struct {
	sim.Options
	faults []string
	script string
	quiet  bool

	// As llama-server.
	alias, host                   string
	port, parallel, contextOfAll  int
	version, listDevices, metrics bool
	projector                     string
	load                          simLoad

	// How the pretended program goes wrong.
	refuse            string
	dieAfter, growMiB int
	commit            string
}

const simEngineHelp = `A stand-in for llama-server with the same HTTP surface, for tests and load. It computes
nothing: the next token is a function of the tokens so far and the seed.

A script named llama-server takes its place for "relay up --sandbox off", here with options
that every engine of that peer shall have:

  #!/bin/sh
  exec relay sim-engine --decode 50 --script /tmp/turns.json "$@"

It understands the options by which relay starts an engine, passes over all others, and with
--sim-device says of layers and memory what the engine would.

--script FILE has it say in chats what a model would that uses tools. The file is a JSON list
of at most 64 scripts, 1 MiB in all, of which the first counts whose "match" is a part of the
user's last message (no match: any). Turn k, from 0, is given when the assistant has called
tools k times since that message; past the end it answers as without a script:

  [{"match": "weather in Rome",
    "turns": [
      {"reasoning_content": "I must look.", "content": "One moment.",
       "tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}},
                      {"name": "get_time", "arguments": "{not JSON"}],
       "finish_reason": "tool_calls"},
      {"content": "It is sunny."}]}]

Every part of a turn but one may be left out. Of a turn that is begun the rest is given. A turn with tool_calls is given only where the
request has tools and its tool_choice is not none; a tool that is not among them is refused.
Arguments in quotes are passed on as they are. finish_reason is stop, length or tool_calls.

Without a script, tool_choice required calls one of the tools with arguments that fit its
schema, and a JSON schema for the answer is kept to; as llama-server, it takes no notice of a
tool_choice that names a function, nor of response_format json_object without a schema.

/sim/state tells what it has done, POST /sim/faults with a list such as ["die:5*1"] sets faults:
refuse, drop, error, stall, die, wrong, end, each with :TOKENS and *REQUESTS.`

func newSimEngine() *cobra.Command {
	var e simEngine
	cmd := &cobra.Command{
		Use: "sim-engine", Short: "A stand-in for llama-server, for tests and load",
		Long: simEngineHelp,
		Args: exactly(0, "no arguments"),
		// llama-server has some hundred options more.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE:               func(cmd *cobra.Command, _ []string) error { return e.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&e.Listen, "listen", "", "host:port, or the path of a unix socket that ends in .sock (default a free port of 127.0.0.1)")
	f.StringVar(&e.Model, "model", "", "the name it answers with (default sim); with --alias, the model's file")
	f.IntVar(&e.Slots, "slots", 0, "requests computed at a time (default 1)")
	f.IntVar(&e.Context, "ctx", 0, "tokens of context of one slot (default 4096)")
	f.Float64Var(&e.PrefillRate, "prefill", 0, "tokens of a prompt read per second (default at once)")
	f.Float64Var(&e.DecodeRate, "decode", 0, "tokens written per second (default at once)")
	f.Float64Var(&e.Slowdown, "slowdown", 0, "how much longer a slot takes for each other one that is busy, 0 to 1 (default 0: none)")
	f.Uint64Var(&e.Seed, "seed", 0, "what the tokens follow from")
	f.StringArrayVar(&e.faults, "fault", nil, "a fault to have from the start, such as die:5; repeatable")
	f.StringVar(&e.script, "script", "", "a file of what it says in chats, see above")
	f.IntVar(&e.Width, "sim-width", 0, "values of an embedding (default 64)")
	f.BoolVar(&e.Bytewise, "sim-bytewise", false, "answer with many characters of several bytes, a token for each byte")
	f.BoolVar(&e.Images, "sim-images", false, "take images, as with --mmproj; each costs "+strconv.Itoa(sim.ImageTokens)+" tokens")
	f.BoolVar(&e.quiet, "quiet", false, "no line per request")
	f.StringVar(&e.refuse, "sim-refuse", "", "say this error and exit, as an engine that cannot load its model")
	f.IntVar(&e.dieAfter, "sim-die-after", 0, "end as by a crash when one request more than so many comes (the first that relay sends is its own)")
	f.IntVar(&e.growMiB, "sim-grow", 0, "take so many MiB more with each request")
	f.StringArrayVar(&e.load.devices, "sim-device", nil, "a pretended GPU, as ID:NAME:MIB; repeatable")
	f.StringVar(&e.commit, "sim-commit", sim.Commit, "the llama.cpp commit that it says it is built from")

	f.StringVar(&e.alias, "alias", "", "llama-server: the name it answers with")
	f.StringVar(&e.host, "host", "", "llama-server: the address or socket to listen on")
	f.IntVar(&e.port, "port", 8080, "llama-server: the port to listen on")
	f.IntVar(&e.contextOfAll, "ctx-size", 0, "llama-server: tokens of context of all slots together")
	f.IntVar(&e.parallel, "parallel", 1, "llama-server: requests computed at a time")
	f.IntVar(&e.Batch, "batch-size", 0, "llama-server: tokens of a prompt read at a time (default 2048)")
	f.IntVar(&e.MaxInput, "ubatch-size", 0, "llama-server: tokens of a text that is embedded or ranked (default 512)")
	f.BoolVar(&e.Embeddings, "embeddings", false, "llama-server: give embeddings")
	f.BoolVar(&e.Reranking, "reranking", false, "llama-server: rank documents")
	f.StringVar(&e.projector, "mmproj", "", "llama-server: take images")
	f.Int("threads", 0, "llama-server: threads, of which it needs none")
	f.BoolVar(&e.metrics, "metrics", false, "llama-server: tell counters at /metrics")
	f.BoolVar(&e.version, "version", false, "llama-server: print the version it stands in for, and exit")
	f.BoolVar(&e.listDevices, "list-devices", false, "llama-server: list the pretended GPUs, and exit")
	f.StringVar(&e.load.use, "device", "none", "llama-server: the pretended GPUs to use")
	f.IntVar(&e.load.layers, "n-gpu-layers", 0, "llama-server: layers to put on them")
	f.StringVar(&e.load.split, "tensor-split", "", "llama-server: how they share the layers")
	f.String("split-mode", "layer", "llama-server: the way to split, which is always by layers")
	f.IntVar(&e.load.cpuExperts, "n-cpu-moe", 0, "llama-server: the layers that keep their experts in host memory")
	for _, name := range passedOver {
		f.String(name, "", "")
		_ = f.MarkHidden(name) // it is there
	}
	for _, name := range passedOverBare {
		f.Bool(name, false, "")
		_ = f.MarkHidden(name)
	}
	cmd.SetHelpFunc(e.help)
	return cmd
}

// passedOver and passedOverBare are options of llama-server, with a value and
// without, that relay gives where a build has them, and that mean nothing here.
var (
	passedOver     = []string{"fit", "cache-ram", "ctx-checkpoints", "threads-http", "load-mode", "log-colors", "verbosity"}
	passedOverBare = []string{"no-kv-unified", "no-slots", "no-ui", "jinja", "offline", "log-prefix", "log-timestamps"}
)

// help is the help, with llama-server's options in its own form behind it: relay
// looks there for what a build can do.
func (e *simEngine) help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s\n\n%s\nOptions of llama-server:\n", cmd.Long, cmd.UsageString())
	own := []string{"model", "alias", "host", "port", "ctx-size", "parallel", "threads", "batch-size", "ubatch-size",
		"embeddings", "reranking", "mmproj", "metrics", "list-devices", "device", "n-gpu-layers",
		"split-mode", "tensor-split", "n-cpu-moe"}
	for _, name := range slices.Concat(own, passedOver, passedOverBare) {
		fmt.Fprintf(out, "--%s\n", name)
	}
	fmt.Fprintln(out, strings.Join(llama.ArgNames(), ", "))
}

func (e *simEngine) run(cmd *cobra.Command) error {
	out, log := cmd.OutOrStdout(), cmd.ErrOrStderr()
	devices, err := e.load.parse()
	if err != nil {
		return &usageError{err.Error()}
	}
	switch {
	case e.version:
		fmt.Fprintf(out, "version: %s (build 1, commit %s)\nbuilt as relay's stand-in\n", sim.Version, e.commit)
		return nil
	case e.listDevices:
		fmt.Fprintln(out, "Available devices:")
		for _, d := range devices {
			fmt.Fprintf(out, "  %s: %s (%d MiB, %d MiB free)\n", d.id, d.name, d.mib, d.mib)
		}
		return nil
	case e.refuse != "":
		fmt.Fprintf(log, "0.00.001.000 E srv    load_model: %s\n", e.refuse)
		return errSilent
	}
	for _, text := range e.faults {
		f, err := sim.ParseFault(text)
		if err != nil {
			return &usageError{fmt.Sprintf("--fault %s: %v", text, err)}
		}
		e.Faults = append(e.Faults, f)
	}
	if e.script != "" {
		if e.Scripts, err = readScripts(e.script); err != nil {
			return &usageError{fmt.Sprintf("--script: %v", err)}
		}
	}
	e.Metrics, e.Images = e.metrics, e.Images || e.projector != ""
	if e.alias != "" {
		if err := e.asServer(); err != nil {
			return &usageError{err.Error()}
		}
		if err := e.load.say(log); err != nil {
			return errSilent
		}
	}
	if !e.quiet {
		e.Log = slog.New(slog.NewTextHandler(log, nil))
	}
	s, err := sim.New(e.Options)
	if err != nil {
		return &usageError{err.Error()}
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var crash error
	all.Go(func() {
		select {
		case <-s.Ready():
			fmt.Fprintf(out, "listening on %s\n", s.Addr())
		case <-ctx.Done():
		}
	})
	all.Go(func() {
		if crash = e.worsen(ctx, s); crash != nil {
			fmt.Fprintf(log, "/sim/engine.cpp:1: GGML_ASSERT(%v) failed\n", crash)
			cancel()
		}
	})
	err = s.Run(ctx)
	cancel()
	all.Wait()
	if crash != nil {
		return errSilent
	}
	return err
}

func readScripts(path string) ([]sim.Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, sim.MaxScriptBytes+1))
	if err != nil {
		return nil, err
	}
	return sim.ParseScripts(b)
}

// asServer takes llama-server's options for its own.
func (e *simEngine) asServer() error {
	e.load.file, e.Model = e.Model, e.alias
	if e.parallel < 1 || e.contextOfAll < 0 {
		return errors.New("--parallel and --ctx-size are at least 1")
	}
	e.Slots = e.parallel
	if e.Context = e.contextOfAll / e.parallel; e.contextOfAll == 0 {
		e.Context = 4096
	}
	e.load.context, e.load.slots = e.Context, e.Slots
	if e.Listen = e.host; !strings.HasSuffix(e.host, ".sock") {
		e.Listen = net.JoinHostPort(e.host, strconv.Itoa(e.port))
	}
	return nil
}

// worsen grows with each request, and returns an error when it is time to crash.
func (e *simEngine) worsen(ctx context.Context, s *sim.Server) error {
	if e.dieAfter == 0 && e.growMiB == 0 {
		return nil
	}
	var taken [][]byte
	defer func() { runtime.KeepAlive(taken) }()
	for n := 1; ; n++ {
		if s.Wait(ctx, func(st sim.State) bool { return st.Requests >= n }) != nil {
			return nil // it ends anyway
		}
		if e.dieAfter > 0 && n > e.dieAfter {
			return fmt.Errorf("requests <= %d", e.dieAfter)
		}
		if e.growMiB > 0 {
			more := make([]byte, e.growMiB<<20)
			for i := 0; i < len(more); i += 4096 {
				more[i] = 1 // else it would not be there
			}
			taken = append(taken, more)
		}
	}
}
