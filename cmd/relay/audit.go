package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/store/audit"
)

const (
	// followEvery is how often the doors are asked for what is new, and followSoon after
	// how long where one had more than it could say at once.
	followEvery = time.Second
	followSoon  = 20 * time.Millisecond
)

func newAudit() *cobra.Command {
	return group("audit", "Requests that the doors of the mesh have answered", newAuditTail())
}

func newAuditTail() *cobra.Command {
	var q api.AuditRequest
	var goOn bool
	cmd := &cobra.Command{
		Use: "tail", Short: "The last requests across the mesh",
		Long: "The last requests across the mesh: when, with which key, for which model, where it ran, the tokens\nof prompt and completion, how long it took, how it ended, and whether another machine had to go on\nwith the answer. Never what was said. Rows are kept for 30 days by the machine whose door was asked.",
		Args: exactly(0, "no arguments"),
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON; with --follow a line for each request")
	cmd.Flags().IntVarP(&q.Last, "last", "n", 20, fmt.Sprintf("how many, 1 to %d", audit.MostRows))
	cmd.Flags().BoolVarP(&goOn, "follow", "f", false, "go on with those that end from now on, until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.Last < 1 || q.Last > audit.MostRows {
			return &usageError{fmt.Sprintf("-n %d: 1 to %d are possible", q.Last, audit.MostRows)}
		}
		a, err := ask[api.AuditAnswer](cmd.Context(), http.MethodPost, "/v0/audit", q)
		out := cmd.OutOrStdout()
		switch {
		case err != nil:
			return err
		case goOn:
			return followAudit(cmd, a, *asJSON)
		case *asJSON:
			return printJSON(out, a)
		}
		printAuditHeader(out)
		for _, row := range a.Rows {
			printAuditRow(out, row, time.Now())
		}
		printUnanswered(out, a.Unanswered)
		return nil
	}
	return cmd
}

// followAudit prints what there is, and what comes, until the command is ended. Who
// does not answer is said once on standard error, and what it had since it last did is
// shown when it answers again.
func followAudit(cmd *cobra.Command, a api.AuditAnswer, asJSON bool) error {
	out := cmd.OutOrStdout()
	if !asJSON {
		printAuditHeader(out)
	}
	next := time.NewTimer(followEvery)
	defer next.Stop()
	ended := &interrupted{"stopped following"}
	for silent := ""; ; {
		for _, row := range a.Rows {
			if !asJSON {
				printAuditRow(out, row, time.Now())
			} else if err := json.NewEncoder(out).Encode(row); err != nil {
				return err
			}
		}
		var missing strings.Builder
		printUnanswered(&missing, a.Unanswered)
		if now := missing.String(); now != silent {
			silent = now
			fmt.Fprint(cmd.ErrOrStderr(), now)
		}
		wait := followEvery
		if a.More {
			wait = followSoon
		}
		next.Reset(wait)
		select {
		case <-next.C:
		case <-cmd.Context().Done():
			return ended
		}
		var err error
		if a, err = ask[api.AuditAnswer](cmd.Context(), http.MethodPost, "/v0/audit", api.AuditRequest{Last: audit.MostRows, After: a.Next}); err != nil {
			return orInterrupted(cmd, err, ended.text)
		}
	}
}

const auditFormat = "%-14s  %-12s  %-16s  %-18s  %7s  %10s  %8s  %-22s  %-9s  %s\n"

func printAuditHeader(w io.Writer) {
	fmt.Fprintf(w, auditFormat, "TIME", "KEY", "MODEL", "RAN ON", "PROMPT", "COMPLETION", "LATENCY", "STATUS", "CONTINUED", "REQUEST")
}

// modelText is what was asked for, and what answered where that has another name.
func modelText(r api.AuditRow) string {
	if r.Served != "" && r.Served != r.Model {
		return r.Model + " → " + r.Served
	}
	return cmp.Or(r.Model, "-")
}

func printAuditRow(w io.Writer, r api.AuditRow, now time.Time) {
	at := r.Time.Local()
	when := at.Format(time.TimeOnly)
	if at.Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		when = at.Format("01-02 15:04:05")
	}
	fmt.Fprintf(w, auditFormat, when, keyText(r), modelText(r), ranText(r), tokenText(r.Prompt), tokenText(r.Completion), tookText(r.TotalMS), statusText(r), continuedText(r), r.ID)
}

func keyText(r api.AuditRow) string { return cmp.Or(r.KeyName, r.Key, "-") }

// ranText is where a request ran, as its door reached that peer.
func ranText(r api.AuditRow) string {
	if r.Peer == "" {
		return "-"
	}
	text := cmp.Or(r.PeerName, r.Peer[max(0, len(r.Peer)-8):])
	if r.Path != "" {
		text += " (" + r.Path + ")"
	}
	return text
}

func tokenText(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func tookText(milliseconds float64) string {
	switch {
	case milliseconds < 10:
		return fmt.Sprintf("%.1f ms", milliseconds)
	case milliseconds < 1000:
		return fmt.Sprintf("%.0f ms", milliseconds)
	}
	return fmt.Sprintf("%.1f s", milliseconds/1000)
}

func statusText(r api.AuditRow) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, r.Reason))
}

func continuedText(r api.AuditRow) string {
	if r.Continued == 0 {
		return "no"
	}
	return fmt.Sprintf("%d×", r.Continued)
}

// printUnanswered says whose rows are missing, and why.
func printUnanswered(w io.Writer, list []api.Unanswered) {
	for _, u := range list {
		fmt.Fprintf(w, "without the requests of %s: %s\n", u.Name, u.Why)
	}
}
