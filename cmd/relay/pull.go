package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/scheduler"
)

func newModelPull() *cobra.Command {
	var q api.PullRequest
	var limit string
	var pause, cancel bool
	cmd := &cobra.Command{
		Use: "pull NAME|CID", Short: "Bring a model here, or to another peer, from the peers that hold it",
		Long: "Bring a model here, or to another peer, from the peers that hold it. A pull that was cut\noff or paused goes on where it was. " +
			"Several pulls of one model to one machine are one pull,\nwith the limit of the first.",
		Args: exactly(1, "the name or CID of a model"),
	}
	asJSON := linesFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&q.To, "to", "", "the `PEER` to bring it to (default this one)")
	f.StringVar(&limit, "limit", "", "receive at most that much a second, such as 20MB or 1.5MiB (`RATE`)")
	f.BoolVar(&pause, "pause", false, "instead, stop the pull of that model that runs there, and keep what is there")
	f.BoolVar(&cancel, "cancel", false, "instead, stop it, and delete what is there of it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name = args[0]
		var err error
		switch {
		case pause && cancel, f.Changed("limit") && (pause || cancel):
			return &usageError{"--limit, --pause and --cancel exclude one another"}
		case f.Changed("limit"):
			if q.Limit, err = parseRate("--limit", limit); err != nil {
				return err
			}
		case pause || cancel:
			return stopPull(cmd, api.StopRequest{Name: q.Name, To: q.To, Cancel: cancel}, *asJSON)
		}
		m, err := work[scheduler.Outcome](cmd, *asJSON, "pull "+q.Name, "/v0/model/pull", q,
			fmt.Sprintf("stopped; what is %s is kept; relay model pull %s goes on", placeText(q.To), q.Name))
		if err != nil || *asJSON {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is %s  %s  %s\n", m.Name, placeText(q.To), size(uint64(m.Size())), m.CID)
		warn(cmd.ErrOrStderr(), m.Warnings)
		return nil
	}
	return cmd
}

func placeText(to string) string {
	if to == "" {
		return "here"
	}
	return "on " + to
}

// stopPull pauses or cancels a pull.
func stopPull(cmd *cobra.Command, q api.StopRequest, asJSON bool) error {
	stopped, err := ask[scheduler.Stopped](cmd.Context(), http.MethodPost, "/v0/model/stop", q)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), stopped)
	}
	text := fmt.Sprintf("the pull of %s %s is ", stopped.Name, placeText(q.To))
	switch {
	case stopped.Deleted && len(stopped.Kept) > 0:
		text += "cancelled, and what was there of it is deleted but for this:"
	case stopped.Deleted:
		text += "cancelled, and what was there of it is deleted"
	case stopped.Ran:
		text += "paused"
	default:
		text += "paused already"
	}
	if !stopped.Deleted {
		text += fmt.Sprintf(": %s; relay model pull %s goes on with it", doneText(stopped.Done, stopped.Bytes), stopped.Name)
	}
	fmt.Fprintln(cmd.OutOrStdout(), text)
	printKept(cmd.OutOrStdout(), stopped.Kept)
	return nil
}

// doneText is how much of something is there; its size may be unknown.
func doneText(done, bytes int64) string {
	if bytes <= 0 {
		return size(uint64(done)) + " are there"
	}
	return fmt.Sprintf("%s of %s (%d%%)", size(uint64(done)), size(uint64(bytes)), 100*done/bytes)
}

// pullText says how far an unfinished pull is, and how to go on or to remove it.
func pullText(p scheduler.PullState) string {
	text := doneText(p.Done, p.Bytes)
	if p.Running {
		return text + ", running"
	}
	if p.Model == "" {
		return fmt.Sprintf("%s, and no model of the mesh needs it any more: relay model pull %s --cancel removes it", text, p.Name)
	}
	return fmt.Sprintf("%s, not running: relay model pull %s goes on, with --cancel removes it", text, p.Model)
}

// printUnfinished lists the unfinished pulls of this machine, if there are any.
func printUnfinished(w io.Writer, list []scheduler.PullState) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, "\nUNFINISHED PULLS HERE")
	for _, p := range list {
		fmt.Fprintf(w, "  %s  %s\n", p.Name, pullText(p))
	}
}
