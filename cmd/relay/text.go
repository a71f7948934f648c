package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"relay/scheduler"
)

// jsonFlag adds --json to a command that lists or shows.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// linesFlag adds --json to a command that takes its time; see work.
func linesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print a line of JSON for each progress, and one for the outcome")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable prints rows under a header, without borders.
func printTable(w io.Writer, header []string, rows [][]string) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.Style{Box: table.BoxStyle{PaddingRight: "  "}, Options: table.OptionsNoBordersAndSeparators})
	t.AppendHeader(tableRow(header))
	for _, r := range rows {
		t.AppendRow(tableRow(r))
	}
	t.SuppressTrailingSpaces()
	t.Render()
}

func tableRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}

// size is bytes in binary units, as people read them.
func size(bytes uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 || value >= 100 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// ago is a time that passed, roughly.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h ago", int(d.Hours()))
}

// lasting is how long something takes or has lasted, roughly.
func lasting(seconds float64) string {
	const day = 24 * 60 * 60
	if seconds >= 100*day {
		return "months"
	}
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// clock is a moment that passed, with its date where that was another day.
func clock(t, now time.Time) string {
	if now.Sub(t) < 12*time.Hour || now.Format(time.DateOnly) == t.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

func lendSummary(p scheduler.PeerState) string {
	if p.NoEngine != "" {
		return "nothing: " + p.NoEngine
	}
	if p.Memory.Lent == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s of memory, %s of it free", size(p.Memory.Lent), size(p.Memory.Free))
}

func linkText(l scheduler.LinkState) string {
	switch {
	case l.Path == "self":
		return "this machine"
	case l.Path == "none":
		return "-"
	}
	text := l.Path + " " + l.Transport
	if l.RTTMS != nil {
		text += fmt.Sprintf(" %.1f ms", *l.RTTMS)
	}
	return text
}

func seenText(p scheduler.PeerState) string {
	if p.LastSeen == nil {
		return "never"
	}
	return ago(*p.LastSeen)
}

// wrapped are words on lines of at most that width.
func wrapped(words []string, width int) string {
	var b strings.Builder
	line := 0
	for _, word := range words {
		switch {
		case line > 0 && line+1+len(word) > width:
			b.WriteByte('\n')
			line = 0
		case line > 0:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}

// isTerminal says whether somebody watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func join(parts []string, none string) string {
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}
