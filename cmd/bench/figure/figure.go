// Package figure is what the programs that print figures have in common: they
// run the parts that were asked for, one line to stdout per figure, and say to
// stderr what they do meanwhile.
package figure

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

// Part is one of the measurements of a program.
type Part struct {
	// Name is what -only calls it.
	Name string
	// Prints are the names of its figures, for people.
	Prints  string
	Measure func(context.Context) error
}

// Main runs the parts that the flag -only names, all without it, until one
// fails or the program is interrupted, and ends the program. It parses the flags.
func Main(parts []Part) {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
	}
	only := flag.String("only", "", "the figures to measure, separated by commas: "+strings.Join(names, " "))
	flag.Parse()
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			fmt.Fprintf(os.Stderr, "bench: -only %s: there is %s\n", w, strings.Join(names, " "))
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, p := range parts {
		if len(wanted) > 0 && !slices.Contains(wanted, p.Name) {
			continue
		}
		Say("%s: %s", p.Name, p.Prints)
		began := time.Now()
		if err := p.Measure(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.Name, err)
			os.Exit(1)
		}
		Say("%s took %.0f s", p.Name, time.Since(began).Seconds())
	}
}
