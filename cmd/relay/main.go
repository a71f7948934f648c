// Command relay is the one program of a mesh: `relay up` is a peer, every other
// command talks to the peer that runs on this machine.
//
// This package parses, calls and prints. What a peer is made of is wired in one
// file, parts.go; what is decided is decided in the packages it imports.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/llama"
)

// Exit codes, as the README lists them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitInterrupted is that of a command that Ctrl-C ended.
	exitInterrupted = 130
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "engine-shim" { // Not a command: what engines are started through.
		os.Exit(llama.ShimMain(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program but for the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the program at once. SIGTERM does not: `relay down`
	// sends it, and may do so again to a peer that is stopping.
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch usage, ended := (*usageError)(nil), (*interrupted)(nil); {
	case err == nil:
		return exitDone
	case errors.Is(err, errSilent):
		return exitFailed
	case errors.Is(err, errUnknown):
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "relay: %v\n", err)
		return exitUsage
	case errors.As(err, &ended):
		fmt.Fprintf(stderr, "relay: %v\n", err)
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "relay: %v\n", sentence(err))
		return exitFailed
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// errSilent fails a command whose output has said everything.
var errSilent = errors.New("failed")

// errUnknown ends a command that there is none of, of which everything is said.
var errUnknown = errors.New("unknown command")

// unknownCommand says so, and then which ones there are.
func unknownCommand(cmd *cobra.Command, name string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "relay: unknown command %q\n", name)
	return errors.Join(errUnknown, cmd.Help())
}

// sentence is an error on one line.
func sentence(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "relay",
		Short: "Pool the memory of your machines and serve language models over them behind one API",
		Long: "relay pools the GPU and plain memory of machines that trust one another, and serves\n" +
			"language models over them behind one OpenAI-compatible API that every peer answers.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Sprintf("%s (relay %s --help)", flagFault(err), strings.TrimPrefix(cmd.CommandPath(), "relay "))}
	})
	var version bool
	root.Flags().BoolVarP(&version, "version", "v", false, "print the version")
	root.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if version {
			fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			cmd.RunE = func(*cobra.Command, []string) error { return nil }
		}
		return nil
	}
	root.AddCommand(newUp(), newDown(), newPeer(), newModel(), newKey(), newToken(), newCache(), newAudit(), newRequest(), newStatus(), newDevices(), newVersion(), newSimEngine())
	return root
}

// flagFault says what is wrong with a flag, and of a number or a length of time what it
// takes.
func flagFault(err error) string {
	bad := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &bad) {
		return err.Error()
	}
	takes := ""
	switch bad.GetFlag().Value.Type() {
	case "int", "int64":
		takes = "a whole number"
	case "duration":
		takes = "a length of time such as 90s or 10m"
	default:
		return err.Error()
	}
	return fmt.Sprintf("--%s %s: it takes %s", bad.GetFlag().Name, bad.GetValue(), takes)
}

// exactly wants that many arguments, and says what they are.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return &usageError{fmt.Sprintf("%s takes %s", cmd.CommandPath(), what)}
		}
		return nil
	}
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, cmd.CommandPath()+" "+args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.AddCommand(commands...)
	return g
}
