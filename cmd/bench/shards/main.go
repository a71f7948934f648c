// Command shards prints the figures of models that run on several peers: how fast
// they are beside one peer and beside plain TCP, what crosses the links while they
// load, and how soon they are served again when a peer dies. `make bench-shards` runs
// it. One line per figure, the median of several; what it does goes to stderr.
package main

import "relay/cmd/bench/figure"

// rounds is how often each thing is measured.
const rounds = 5

func main() {
	figure.Main([]figure.Part{
		{Name: "round", Prints: "tunnel_added_us", Measure: roundTrips},
		{Name: "speed", Prints: "prefill and decode of solo, shards2 and shards3, turns per token; tunnel_vs_tcp", Measure: speeds},
		{Name: "load", Prints: "rpc_load_excess shards_load_s", Measure: loading},
		{Name: "replan", Prints: "replan_s, and of _worker and _coordinator, each also _detect _plan _engine_load", Measure: replanning},
	})
}
