package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/p2p/keys"
)

func newKey() *cobra.Command {
	return group("key", "Keys that open /v1: list, make, take back, rotate", newKeyList(), newKeyAdd(), newKeyRemove(), newKeyRotate())
}

func newKeyList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List the keys, what they may and what they have used today",
		Long: "List the keys, what they may and what they have used since midnight UTC, at all peers\ntogether. Their secrets are not kept.",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := ask[api.KeyList](cmd.Context(), http.MethodGet, "/v0/keys", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), l)
		}
		printKeys(cmd.OutOrStdout(), l, time.Now())
		return nil
	}
	return cmd
}

func printKeys(w io.Writer, l api.KeyList, now time.Time) {
	if len(l.Keys) == 0 {
		fmt.Fprintln(w, "no keys yet")
	} else {
		var rows [][]string
		for _, k := range l.Keys {
			rows = append(rows, []string{k.Name, k.ID, join(k.Models, "all"), expiresText(k),
				limitText(int64(k.RequestsPerMinute)), limitText(k.TokensPerDay), limitText(int64(k.Concurrency)), string(k.Priority), useText(k.Today)})
		}
		printTable(w, []string{"KEY", "ID", "MODELS", "EXPIRES", "REQUESTS/MIN", "TOKENS/DAY", "AT ONCE", "PRIORITY", "USED TODAY"}, rows)
	}
	for _, k := range l.Keys {
		if k.FormerUntil != nil {
			fmt.Fprintf(w, "\nthe secret that %s had before is good for %s more\n", k.Name, lasting(k.FormerUntil.Sub(now).Seconds()))
		}
	}
	if l.Environment != nil {
		fmt.Fprintf(w, "\nthe key in RELAY_API_KEY opens this machine's door as well, without limits (used today: %s)\n", useText(*l.Environment))
	}
	if len(l.Away) > 0 {
		var names []string
		for _, p := range l.Away {
			names = append(names, p.Name)
		}
		fmt.Fprintf(w, "\nof %s, which cannot be reached, only what it told last is counted\n", strings.Join(names, ", "))
	}
}

func limitText(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func expiresText(k api.KeyShown) string {
	switch {
	case k.Expires == nil:
		return "never"
	case k.State == "expired":
		return "expired"
	}
	return k.Expires.Local().Format("2006-01-02 15:04")
}

// useText is requests and tokens, these as prompt and answer.
func useText(u api.KeyUse) string {
	if u == (api.KeyUse{}) {
		return "-"
	}
	return fmt.Sprintf("%s, %d + %d tokens", plural(int(u.Requests), "request"), u.Prompt, u.Completion)
}

func newKeyAdd() *cobra.Command {
	var q api.AddKeyRequest
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make a key; its secret is shown once",
		Long: "Make a key; its secret is shown once, and only its hash is kept. It opens the door of every\n" +
			"peer within two seconds. Its limits are for the whole mesh, however many peers are asked: how\n" +
			"far they can be overshot is in docs/security.md. Only an admin's machine may do this.",
		Args: exactly(1, "a name for the key"),
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&q.Models, "models", nil, "the `NAMES` of the models that it is for, with commas between (default all)")
	expires := f.String("expires", "", "how long it is good, such as 30d or 12h, or until when, such as 2027-01-31 (default for ever)")
	f.IntVar(&q.RequestsPerMinute, "requests-per-minute", 0, "requests within any minute")
	f.Int64Var(&q.TokensPerDay, "tokens-per-day", 0, "tokens of prompts and answers from midnight to midnight UTC")
	f.IntVar(&q.Concurrency, "max-concurrency", 0, "requests at once")
	f.StringVar((*string)(&q.Priority), "priority", string(keys.Normal), "normal, or batch for work that can wait: it gives way to the rest")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name = args[0]
		for _, flag := range []string{"requests-per-minute", "tokens-per-day", "max-concurrency"} {
			if f.Changed(flag) && (strings.HasPrefix(f.Lookup(flag).Value.String(), "-") || f.Lookup(flag).Value.String() == "0") {
				return &usageError{fmt.Sprintf("--%s takes a number from 1; leave it out for no limit", flag)}
			}
		}
		if f.Changed("models") && len(q.Models) == 0 {
			return &usageError{"--models wants a name; leave it out for all models"}
		}
		if f.Changed("expires") {
			at, err := parseExpires(*expires, time.Now())
			if err != nil {
				return err
			}
			q.Expires = at.Unix()
		}
		k, err := ask[api.KeyMade](cmd.Context(), http.MethodPost, "/v0/keys/add", q)
		if err != nil {
			return err
		}
		return printMade(cmd, k, *asJSON, "is made")
	}
	return cmd
}

// parseExpires reads a length of time from now, or a moment.
func parseExpires(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 100*366 {
			return now.AddDate(0, 0, n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, &usageError{fmt.Sprintf("--expires %q: it takes a length of time such as 30d or 12h, or a date such as 2027-01-31", text)}
}

func newKeyRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm KEY", Short: "Take a key back for ever",
		Long: "Take a key back for ever: within two seconds no door opens to it. Requests that are under way\nmay finish. Only an admin's machine may do this.",
		Args: exactly(1, "the whole name of a key, or its id"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := ask[api.KeyShown](cmd.Context(), http.MethodPost, "/v0/keys/rm", api.NameRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), k)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the key %s (%s) opens no door any more; requests under way may finish\n", k.Name, k.ID)
		if k.Default {
			fmt.Fprintln(cmd.OutOrStdout(), "it was the mesh's default key: whoever uses the one that was shown when the mesh was founded needs another now (relay key add NAME)")
		}
		return nil
	}
	return cmd
}

func newKeyRotate() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use: "rotate KEY", Short: "Give a key another secret, which is shown once",
		Long: "Give a key another secret, which is shown once. The key stays what it is, with its limits and\n" +
			"what it has used. With --overlap the secret that it had is good for a while more, for clients\nto be changed; without, it is out at once, and so is one from an earlier rotation in any case.\n" +
			"Only an admin's machine may do this.",
		Args: exactly(1, "the whole name of a key, or its id"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "for how long the secret that it had is good, such as 1h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if overlap < 0 || overlap > api.MaxOverlap || overlap%time.Second != 0 {
			return &usageError{fmt.Sprintf("--overlap takes whole seconds such as 90s or 1h, up to %dh", int(api.MaxOverlap.Hours()))}
		}
		q := api.RotateKeyRequest{Name: args[0], OverlapSeconds: int64(overlap / time.Second)}
		k, err := ask[api.KeyMade](cmd.Context(), http.MethodPost, "/v0/keys/rotate", q)
		if err != nil {
			return err
		}
		what := "has another secret; the one that it had is out"
		if overlap > 0 {
			what = fmt.Sprintf("has another secret; the one that it had is good for %s more", lasting(overlap.Seconds()))
		}
		return printMade(cmd, k, *asJSON, what)
	}
	return cmd
}

// printMade prints a key with its secret.
func printMade(cmd *cobra.Command, k api.KeyMade, asJSON bool, what string) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), k)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the key %s (%s) %s\n  secret  %s  (shown once)\n", k.Name, k.ID, what, k.Secret)
	warn(cmd.ErrOrStderr(), k.Warnings)
	return nil
}
