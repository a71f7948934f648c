//go:build linux

// Command models prints the figures of adding and pulling models, measured with
// the real binary on this machine's loopback and in its memory, with what they
// are held against in the same run: `make bench-models` runs it. One line per
// figure; what it does goes to stderr.
package main

import (
	"fmt"
	"os"

	"relay/cmd/bench/figure"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == sendArg {
		if err := send(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	// Peers run as people start them, not as whoever measures set up his shell.
	for _, name := range []string{"GOMEMLIMIT", "GOGC", "GOMAXPROCS", "GODEBUG"} {
		os.Unsetenv(name)
	}
	figure.Main([]figure.Part{
		{Name: "import", Prints: "import_vs_sha256", Measure: importing},
		{Name: "stream", Prints: "pull_vs_stream", Measure: versusStream},
		{Name: "kubo", Prints: "pull_vs_kubo", Measure: versusKubo},
		{Name: "rsync", Prints: "pull_vs_rsync pull_vs_rsync_gcm", Measure: versusRsync},
		{Name: "resume", Prints: "resume_refetched, also _early _half _late", Measure: resuming},
		{Name: "disk", Prints: "disk_amplification, also _holder _puller", Measure: disk},
		{Name: "rss", Prints: "pull_rss_mib, also _holder _puller", Measure: memory},
		{Name: "dag", Prints: "dag_400g", Measure: planning},
	})
}
