package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"relay/llama/sim"
)

func newSimEngine() *cobra.Command {
	var o sim.Options
	var faults []string
	var quiet bool
	cmd := &cobra.Command{
		Use: "sim-engine", Short: "A stand-in for llama-server, for tests and load",
		Long: "A stand-in for llama-server with the same HTTP surface, for tests and load. It computes\nnothing: the next token is a function of the tokens so far and the seed.",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range faults {
				f, err := sim.ParseFault(text)
				if err != nil {
					return &usageError{fmt.Sprintf("--fault %s: %v", text, err)}
				}
				o.Faults = append(o.Faults, f)
			}
			if !quiet {
				o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			}
			s, err := sim.New(o)
			if err != nil {
				return &usageError{err.Error()}
			}
			go func() {
				<-s.Ready()
				fmt.Fprintf(cmd.OutOrStdout(), "listening on %s\n", s.Addr())
			}()
			return s.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "", "host:port, or the path of a unix socket that ends in .sock (default a free port of 127.0.0.1)")
	f.StringVar(&o.Model, "model", "", "the name it answers with (default sim)")
	f.IntVar(&o.Slots, "slots", 0, "requests computed at a time (default 1)")
	f.IntVar(&o.Context, "ctx", 0, "tokens of context of one slot (default 4096)")
	f.Float64Var(&o.PrefillRate, "prefill", 0, "tokens of a prompt read per second (default at once)")
	f.Float64Var(&o.DecodeRate, "decode", 0, "tokens written per second (default at once)")
	f.Uint64Var(&o.Seed, "seed", 0, "what the tokens follow from")
	f.StringArrayVar(&faults, "fault", nil, "a fault to have from the start, such as die:5; repeatable")
	f.BoolVar(&quiet, "quiet", false, "no line per request")
	return cmd
}
