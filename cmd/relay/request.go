package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
)

func newRequest() *cobra.Command {
	cmd := &cobra.Command{
		Use: "request ID", Short: "One request, from any machine of the mesh",
		Long: "One request, by the id in its x-request-id header, from any machine of the mesh. Clients may give\nseveral requests the same id; then it is all of them.",
		Args: exactly(1, "the id of a request"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := ask[api.AuditAnswer](cmd.Context(), http.MethodGet, "/v0/request?id="+url.QueryEscape(args[0]), nil)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		switch {
		case *asJSON:
			if err := printJSON(out, a); err != nil || len(a.Rows) > 0 {
				return err
			}
			return errSilent
		case len(a.Rows) == 0:
			printUnanswered(cmd.ErrOrStderr(), a.Unanswered)
			return errors.New(notFoundText(args[0], a))
		}
		for i, row := range a.Rows {
			if i > 0 {
				fmt.Fprintln(out)
			}
			printRequest(out, row)
		}
		printUnanswered(cmd.ErrOrStderr(), a.Unanswered)
		return nil
	}
	return cmd
}

func notFoundText(id string, a api.AuditAnswer) string {
	if len(a.Unanswered) == 0 {
		return fmt.Sprintf("no door of the mesh has answered a request %q, or not within the time that rows are kept", id)
	}
	return fmt.Sprintf("no door of those that could be asked has answered a request %q", id)
}

func printRequest(w io.Writer, r api.AuditRow) {
	say := func(label, text string) { fmt.Fprintf(w, "%-11s %s\n", label, text) }
	say("request", r.ID)
	say("time", r.Time.Local().Format(time.DateTime))
	say("door", cmp.Or(r.EntranceName, r.Entrance))
	say("asked", r.Method+" "+cmp.Or(r.Route, "for no route that there is"))
	say("key", keyText(r))
	model := cmp.Or(r.Model, "-")
	if r.Served != "" && r.Served != r.Model {
		model += ", answered by " + r.Served
	}
	say("model", model)
	say("ran on", ranText(r))
	say("attempts", fmt.Sprint(r.Attempts))
	prompt := fmt.Sprintf("%d tokens", r.Prompt)
	if r.Cached > 0 {
		prompt += fmt.Sprintf(", %d of them cached", r.Cached)
	}
	say("prompt", prompt)
	say("completion", fmt.Sprintf("%d tokens", r.Completion))
	latency := tookText(r.TotalMS)
	if r.FirstMS > 0 {
		latency += fmt.Sprintf(" in all, first data after %s, %s of waiting for a replica", tookText(r.FirstMS), tookText(r.QueueMS))
	}
	say("latency", latency)
	say("status", statusText(r))
	say("continued", continuedText(r))
}
