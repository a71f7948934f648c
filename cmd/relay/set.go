package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/p2p/membership"
	"relay/scheduler"
)

func newPeerSet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set PEER", Short: "Change what a machine may see and decide, what it is called, its labels",
		Long: "Change what a machine may see and decide, what it is called, and its labels. All of it is\n" +
			"checked before anything is changed. A machine whose trust is lowered stops at once what it\n" +
			"may no longer run, and is sent no more requests. Only an admin's machine may do this.",
		Args: exactly(1, "the name or id of a machine"),
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	trust := f.String("trust", "", "replicas (runs whole models and sees prompts), shard-only, or client")
	role := f.String("role", "", "admin or member")
	name := f.String("name", "", "what it is called in the mesh; empty for what it calls itself")
	labels := f.StringArray("label", nil, "`KEY=VALUE`, repeatable; KEY= takes a label away")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := api.SetRequest{Peer: args[0], Trust: membership.Trust(*trust), Role: membership.Role(*role)}
		for _, flag := range []string{"trust", "role"} {
			if f.Changed(flag) && f.Lookup(flag).Value.String() == "" {
				return &usageError{"--" + flag + " wants a value"}
			}
		}
		if f.Changed("name") {
			q.Name = name
		}
		for _, label := range *labels {
			key, value, ok := strings.Cut(label, "=")
			if !ok || key == "" {
				return &usageError{fmt.Sprintf("--label %q: it is KEY=VALUE, or KEY= to take it away", label)}
			}
			if q.Labels == nil {
				q.Labels = map[string]string{}
			}
			if _, twice := q.Labels[key]; twice {
				return &usageError{fmt.Sprintf("--label %s is there twice", key)}
			}
			q.Labels[key] = value
		}
		if q.Trust == "" && q.Role == "" && q.Name == nil && q.Labels == nil {
			return &usageError{"relay peer set wants at least one of --trust, --role, --name and --label"}
		}
		return setPeer(cmd, q, *asJSON)
	}
	return cmd
}

func newModelSet() *cobra.Command {
	var q api.ModelSetRequest
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Change how a model is treated",
		Long: "Change how a model is treated. Of one that is pinned no copy is deleted to make room, on no\nmachine, and one replica stays loaded. " +
			"Where nothing is said, a model is loaded when somebody\nasks for it. An alias means its model for clients and for what only shows or loads it, not here. Only\nan admin's machine may do this.",
		Args: exactly(1, "the name of a model"),
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	pinned := f.Bool("pinned", false, "keep its copies, and one replica loaded; =false no longer")
	only := f.String("only", "", "the one `PEER` it may run on, even if that makes it unavailable; empty for any")
	least := f.Int("min", 0, "replicas that are loaded at all times; 0 for none in particular")
	most := f.Int("max", 0, "replicas that load may bring about; 0 for one on each machine that has the file")
	idle := f.Duration("idle-unload", 0, "unload a replica after that long without a request, half a minute after it was loaded at the earliest; 0 for never")
	aliases := f.StringArray("alias", nil, "a further `NAME` that it gets; repeatable; '' takes away those that it has")
	fallback := f.String("fallback", "", "the `MODEL` that may answer in its stead where it cannot; empty for none")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name = args[0]
		if f.Changed("alias") {
			q.Aliases = aliases
		}
		if f.Changed("fallback") {
			q.Fallback = fallback
		}
		if f.Changed("pinned") {
			q.Pinned = pinned
		}
		if f.Changed("only") {
			q.Only = only
		}
		if f.Changed("min") {
			q.Min = least
		}
		if f.Changed("max") {
			q.Max = most
		}
		if f.Changed("idle-unload") {
			seconds := int64(*idle / time.Second)
			q.IdleUnload = &seconds
		}
		if err := checkModelSet(q, *idle); err != nil {
			return err
		}
		a, err := ask[api.ModelSetAnswer](cmd.Context(), http.MethodPost, "/v0/model/set", q)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), a)
		}
		printChanges(cmd.OutOrStdout(), a.Model.Name, a.Changed)
		warn(cmd.ErrOrStderr(), a.Warnings)
		return nil
	}
	return cmd
}

// checkModelSet names the flag of `relay model set` that is used wrongly.
func checkModelSet(q api.ModelSetRequest, idle time.Duration) error {
	for _, flag := range []struct {
		name  string
		given *int
	}{{"min", q.Min}, {"max", q.Max}} {
		if flag.given != nil && (*flag.given < 0 || *flag.given > api.MaxReplicas) {
			return &usageError{fmt.Sprintf("--%s takes 0 to %d", flag.name, api.MaxReplicas)}
		}
	}
	switch {
	case q.SetOptions == (scheduler.SetOptions{}):
		return &usageError{"relay model set wants at least one of --pinned, --only, --min, --max, --idle-unload, --alias and --fallback"}
	case q.Min != nil && q.Max != nil && *q.Max > 0 && *q.Min > *q.Max:
		return &usageError{fmt.Sprintf("--min %d is more than --max %d", *q.Min, *q.Max)}
	case idle < 0 || idle > api.MaxIdleUnload || idle%time.Second != 0:
		return &usageError{fmt.Sprintf("--idle-unload takes whole seconds such as 90s or 10m, up to %dh, or 0 for never", int(api.MaxIdleUnload.Hours()))}
	}
	return nil
}

func setPeer(cmd *cobra.Command, q api.SetRequest, asJSON bool) error {
	a, err := ask[api.SetAnswer](cmd.Context(), http.MethodPost, "/v0/peer/set", q)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), a)
	}
	printChanges(cmd.OutOrStdout(), a.Peer.Name, a.Changed)
	return nil
}

// printChanges says what is another now of a machine or a model.
func printChanges(w io.Writer, name string, changed []string) {
	if len(changed) == 0 {
		fmt.Fprintf(w, "%s: it was so already\n", name)
	}
	for _, change := range changed {
		fmt.Fprintf(w, "%s: %s\n", name, change)
	}
}
