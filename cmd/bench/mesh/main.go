//go:build linux

// Command mesh prints the figures of the mesh, measured with the real binary in
// network namespaces: `make bench-mesh` runs it, as root. One line per figure;
// what it does goes to stderr.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// figures are the parts of the run, and what each prints.
var figures = []struct {
	name    string
	prints  string
	measure func(context.Context) error
}{
	{"join", "join_to_first_answer_s", joining},
	{"converge", "converge_p99_s_50", converging},
	{"sync", "sync_bytes_per_change", comparing},
	{"idle", "idle_bytes_s_10|25|50 memory_mib_10|25|50", idling},
	{"sim", "idle_bytes_s_200_sim", simulating},
	{"silence", "suspect_s gone_s, each also _kill _freeze _cut", silences},
	{"false", "false_suspects_per_hour", falseSuspects},
}

func main() {
	only := flag.String("only", "", "the figures to measure, separated by commas: "+names())
	flag.Parse()
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, w := range wanted {
		if !strings.Contains(" "+names()+" ", " "+w+" ") {
			fmt.Fprintf(os.Stderr, "bench: -only %s: there is %s\n", w, names())
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, f := range figures {
		if len(wanted) > 0 && !slices.Contains(wanted, f.name) {
			continue
		}
		say("%s: %s", f.name, f.prints)
		began := time.Now()
		if err := f.measure(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", f.name, err)
			os.Exit(1)
		}
		say("%s took %.0f s", f.name, time.Since(began).Seconds())
	}
}

func names() string {
	var list []string
	for _, f := range figures {
		list = append(list, f.name)
	}
	return strings.Join(list, " ")
}

// say tells what is done, and under which load of the machine.
func say(format string, args ...any) {
	load, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(load) + " ? ? ?")
	fmt.Fprintf(os.Stderr, "%s  load %s %s  %s\n", time.Now().Format("15:04:05"), fields[0], fields[1], fmt.Sprintf(format, args...))
}

func value(name string, v float64, unit string) {
	fmt.Printf("BENCH name=%s value=%.4g unit=%s\n", name, v, unit)
}

func median(list []float64) float64 { return rank(list, 0.5) }

// p99 is the smallest value that 99 of 100 do not exceed: of 20, the largest.
func p99(list []float64) float64 { return rank(list, 0.99) }

func rank(list []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
