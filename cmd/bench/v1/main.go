//go:build linux

// Command v1 prints the figures of the door: what it adds to asking the engine
// itself, through the peer that serves and through another one, with nginx as a plain
// reverse proxy beside it. `make bench-v1` runs it. The engine is relay's stand-in,
// which takes no time to think; all is on loopback and shares this machine. One line
// per figure; what it does goes to stderr.
//
// A request takes one of four ways: "direct" to the engine's own socket, "nginx" to
// it through nginx, "local" through the door of the peer whose engine it is, "hop"
// through the door of a second peer, which has none. All of them open a connection to
// the engine for each request, as it ends one after every stream; clients keep
// theirs to nginx and the doors. The ways take turns within every round, and what a
// way adds is its figure less the direct one's of the same round, the median of the
// rounds.
package main

import (
	"os"

	"relay/cmd/bench/figure"
)

// rounds is how often each thing is measured.
const rounds = 5

func main() {
	if len(os.Args) > 1 && os.Args[1] == stampingEngine { // started by a peer in the engine's place
		os.Exit(stampEvents(os.Args[2:]))
	}
	figure.Main([]figure.Part{
		{Name: "first", Prints: "local_added_p50_ms hop_added_p50_ms nginx_added_p50_ms, each also p99 and _1k_1|_32k_1", Measure: firstBytes},
		{Name: "crowds", Prints: "the same _1k|_32k_16|_256", Measure: crowds},
		{Name: "events", Prints: "event_added_p50_ms, also p99, and each _local _hop _nginx", Measure: eventDelays},
		{Name: "streams", Prints: "streams_1000_failed, also _local _nginx; stream_kib, also _entrance _serving _nginx", Measure: manyStreams},
		{Name: "rate", Prints: "rps_per_core, also _hop _nginx", Measure: rates},
	})
}
