package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"relay/llama"
	"relay/p2p"
)

// version and commit are set when the binary is linked (see the Makefile).
var (
	version = "dev"
	commit  = ""
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit, protocol and engine pin",
		Args: exactly(0, "no arguments"),
		Run:  func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), versionLine()) },
	}
}

func versionLine() string {
	line := "relay " + released(version, commitID())
	line += fmt.Sprintf(", protocol %d", p2p.Version)
	if pins, err := llama.LoadPins(); err == nil {
		line += fmt.Sprintf(", engine llama.cpp %s (%.7s, RPC %s)", pins.Source.LlamaVersion, pins.Source.Commit, pins.Source.RPC)
	}
	return line
}

// released is a version with its commit, which the version names itself where it is no
// release's.
func released(version, commit string) string {
	if commit == "" || strings.Contains(version, commit[:min(7, len(commit))]) {
		return version
	}
	return version + " (" + commit + ")"
}

func commitID() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}
