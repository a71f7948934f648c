// Command plan prints the figures of where models run: planning, leadership, who
// serves again after what, and engines that share cores. `make bench-plan` runs
// it. One line per figure, the median of several; what it does goes to stderr.
package main

import (
	"os"

	"relay/cmd/bench/figure"
	"relay/llama"
)

// rounds is how often each thing is done that takes seconds.
const rounds = 5

func main() {
	if len(os.Args) == 2 && os.Args[1] == "engine-shim" { // Started by this very program, for engines without a peer.
		os.Exit(llama.ShimMain(nil))
	}
	figure.Main([]figure.Part{
		{Name: "place", Prints: "plan_100x200_ms", Measure: placing},
		{Name: "serve", Prints: "serve_again_s, and _peer _leader_serving _load _engine, each also _asking _detection _decision _load", Measure: servingAgain},
		{Name: "lead", Prints: "leader_again_s leader_again_failed", Measure: leadingAgain},
		{Name: "handover", Prints: "handover_s handover_serve_s handover_failed", Measure: handingOver},
		{Name: "cores", Prints: "two_cpu_replicas_ratio two_cpu_engines_without_turns_ratio", Measure: sharing},
	})
}
