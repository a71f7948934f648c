package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"relay/api"
	"relay/scheduler"
)

// work follows long work to its outcome. With asJSON it prints a line of JSON for
// each progress and one for the outcome; else it shows a bar, where there is a
// terminal, or a line each time that what is under way is another. stopped says what is left of it after Ctrl-C.
func work[T any](cmd *cobra.Command, asJSON bool, what, path string, body any, stopped string) (T, error) {
	switch {
	case asJSON:
		return workInLines[T](cmd, path, body, stopped)
	case !isTerminal(cmd.ErrOrStderr()):
		result, err := follow[T](cmd.Context(), path, body, sayWhy(cmd.ErrOrStderr(), what))
		return result, orInterrupted(cmd, err, stopped)
	}
	var latest atomic.Pointer[api.ProgressLine]
	latest.Store(&api.ProgressLine{Total: -1})
	bars := mpb.NewWithContext(cmd.Context(), mpb.WithOutput(cmd.ErrOrStderr()), mpb.WithWidth(24))
	bar := bars.AddBar(0, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(what+"  ")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return progressText(*latest.Load()) })))
	result, err := follow[T](cmd.Context(), path, body, func(p api.ProgressLine) {
		latest.Store(&p)
		if p.Total > 0 {
			bar.SetTotal(p.Total, false)
			bar.SetCurrent(p.Done)
		}
	})
	bar.Abort(true)
	bars.Wait()
	return result, orInterrupted(cmd, err, stopped)
}

// sayWhy prints what long work waits for or is at, once each.
func sayWhy(w io.Writer, what string) func(api.ProgressLine) {
	var said string
	return func(p api.ProgressLine) {
		if p.Why == "" || p.Why == said {
			return
		}
		said = p.Why
		fmt.Fprintf(w, "%s: %s\n", what, strings.Join(strings.Fields(p.Why), " "))
	}
}

// interrupted is the end of a command that somebody ended.
type interrupted struct{ text string }

func (e *interrupted) Error() string { return e.text }

// orInterrupted is what a command failed with, in words of its own where that is
// because somebody ended it.
func orInterrupted(cmd *cobra.Command, err error, text string) error {
	if err != nil && cmd.Context().Err() != nil {
		return &interrupted{text}
	}
	return err
}

// workInLines prints what a program follows: NDJSON, ending in a result or an
// error.
func workInLines[T any](cmd *cobra.Command, path string, body any, stopped string) (T, error) {
	encoder := json.NewEncoder(cmd.OutOrStdout())
	result, err := follow[T](cmd.Context(), path, body, func(p api.ProgressLine) { _ = encoder.Encode(api.Line[T]{Progress: &p}) })
	if err = orInterrupted(cmd, err, stopped); err != nil {
		_ = encoder.Encode(api.Line[T]{Error: &api.ControlError{Why: string(scheduler.ReasonOf(err)), Message: sentence(err)}})
		return result, err
	}
	return result, encoder.Encode(api.Line[T]{Result: &result})
}

const (
	// shownSources bounds the peers that a bar names, shownWhy the characters of
	// what it waits for.
	shownSources = 2
	shownWhy     = 100
)

// progressText is what stands beside a bar.
func progressText(p api.ProgressLine) string {
	switch {
	case p.Phase == "wait" && p.Why != "":
		return "waiting: " + shortened(p.Why)
	case p.Phase == "start":
		return shortened(p.Why)
	}
	parts := []string{p.Phase}
	if p.Total >= 0 {
		parts = append(parts, fmt.Sprintf("%s / %s", size(uint64(p.Done)), size(uint64(p.Total))))
	}
	if p.Rate > 0 {
		parts = append(parts, size(uint64(p.Rate))+"/s")
	}
	if p.Left != nil {
		parts = append(parts, lasting(*p.Left)+" left")
	}
	var from []string
	for _, f := range p.From {
		if f.Name != "" && f.Bytes > 0 {
			from = append(from, f.Name)
		}
	}
	if more := len(from) - shownSources; more > 0 {
		from = append(from[:shownSources], fmt.Sprintf("%d more", more))
	}
	if len(from) > 0 {
		parts = append(parts, "from "+strings.Join(from, ", "))
	}
	return strings.TrimSpace(strings.Join(parts, "  "))
}

// shortened is what fits beside a bar.
func shortened(text string) string {
	runes := []rune(text)
	if len(runes) > shownWhy {
		runes = append(runes[:shownWhy-1], '…')
	}
	return string(runes)
}

// warn says what a command's outcome gives reason to warn of.
func warn(w io.Writer, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintf(w, "relay: warning: %s\n", text)
	}
}
