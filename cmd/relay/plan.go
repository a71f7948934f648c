package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"relay/scheduler"
)

func newModelPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan NAME", Short: "Every way in which a model could run, and why it runs where it does",
		Long: "Every way in which a model could run: what it would take, how fast it would be, how long\nfetching its file would take, and why it is chosen or refused. Speeds are tokens a second of one\nrequest; " +
			"~ stands before those of devices whose own speed is not known yet. The output layer counts as one. What was measured\nwhen it ran that way stands beside what is predicted.",
		Args: exactly(1, "the name of a model"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := ask[scheduler.PlanState](cmd.Context(), http.MethodGet, "/v0/model/plan?name="+url.QueryEscape(args[0]), nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), p)
		}
		printPlan(cmd.OutOrStdout(), p)
		return nil
	}
	return cmd
}

func printPlan(w io.Writer, p scheduler.PlanState) {
	if len(p.Ways) > 0 {
		printTable(w, []string{"", "PEER", "WAY", "MEMORY", "PREFILL t/s", "DECODE t/s", "FETCH", "VERDICT"}, planRows(p.Ways))
		fmt.Fprintln(w)
	}
	if len(p.Refused) > 0 {
		for _, r := range p.Refused {
			fmt.Fprintf(w, "not on %s: %s\n", r.Name, r.Text)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, p.Text)
	if p.Model.Warning != "" {
		fmt.Fprintf(w, "warning: %s\n", p.Model.Warning)
	}
}

// planRows are the ways, a row each; those of a peer that can never be for the same
// reason share one.
func planRows(ways []scheduler.PlannedWay) (rows [][]string) {
	const nameCell, verdictCell = 2, 7
	type never struct{ peer, text string }
	shared := map[never][]string{}
	for _, way := range ways {
		mark := ""
		if way.Chosen {
			mark = "*"
		}
		measured := scheduler.MeasuredWay{}
		if way.Measured != nil {
			measured = *way.Measured
		}
		row := []string{mark, way.Name, way.Way, wayMemory(way, measured.Memory),
			predictedSpeed(way.Prefill, measured.Prefill, way.Guessed), predictedSpeed(way.Decode, measured.Decode, way.Guessed),
			fetchText(way), verdictText(way)}
		if way.Verdict == "never" && !way.Runs {
			key := never{way.Peer, row[verdictCell]}
			if first := shared[key]; first != nil {
				first[nameCell] += ", " + way.Way
				for i := nameCell + 1; i < verdictCell; i++ {
					if first[i] != row[i] { // What is so of one of them only.
						first[i] = "-"
					}
				}
				continue
			}
			shared[key] = row
		}
		rows = append(rows, row)
	}
	return rows
}

// wayMemory is what a way takes where: of one over several peers with their names.
func wayMemory(way scheduler.PlannedWay, measured []scheduler.DeviceMemory) string {
	text := memoryText(way.Memory, measured)
	if len(way.Shares) == 0 {
		return text
	}
	text = way.Name + " " + text
	for _, s := range way.Shares {
		text += "; " + s.Name + " " + memoryText(s.Memory, nil)
	}
	return text
}

// memoryText is memory by device, with what was measured beside it.
func memoryText(memory, measured []scheduler.DeviceMemory) string {
	taken := map[string]uint64{}
	for _, d := range measured {
		taken[d.Device] = d.Bytes
	}
	var parts []string
	for _, d := range memory {
		text := d.Device
		if d.Layers > 0 {
			text += " " + plural(d.Layers, "layer")
		}
		text += " " + size(d.Bytes)
		if was, ok := taken[d.Device]; ok {
			text += fmt.Sprintf(" (measured %s)", size(was))
		}
		parts = append(parts, text)
	}
	return join(parts, "-")
}

// predictedSpeed is tokens a second, with what was measured beside them.
func predictedSpeed(predicted, measured float64, guessed bool) string {
	if predicted <= 0 {
		return "-"
	}
	text := speedText(predicted)
	if guessed {
		text = "~" + text
	}
	if measured > 0 {
		text += fmt.Sprintf(" (measured %s)", speedText(measured))
	}
	return text
}

func speedText(perSecond float64) string {
	if perSecond >= 100 {
		return fmt.Sprintf("%.0f", perSecond)
	}
	return fmt.Sprintf("%.1f", perSecond)
}

// fetchText is how long a peer would fetch the file.
func fetchText(way scheduler.PlannedWay) string {
	switch {
	case way.Holds:
		return "has it"
	case way.Fetch == nil:
		return "?"
	}
	return lasting(*way.Fetch)
}

// verdictText says whether a way is open, and why it is not.
func verdictText(way scheduler.PlannedWay) string {
	text := way.Verdict
	if way.Runs {
		text = "runs"
	}
	if way.Text == "" || way.Runs || way.Text == text {
		return text
	}
	return text + ": " + strings.TrimSuffix(way.Text, ".")
}
