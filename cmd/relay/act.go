package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/scheduler"
)

// newModelActs are the commands that ask something of the leader of a model.
func newModelActs() []*cobra.Command {
	return []*cobra.Command{
		newModelWaits("load", "Have a model loaded now",
			"Have a model loaded now, and wait until it serves or it is clear that it will not. Models\nthat are idle may be unloaded for it; where all are in use it waits for its turn, for as\nlong as a load may take. Ctrl-C only ends the waiting.",
			"return at once; it loads all the same"),
		newModelAsks("unload", "Unload a model until somebody asks for it",
			"Unload a model: its replicas finish their requests and end. It is loaded again as soon as\nsomebody asks for it."),
		newModelWaits("restart", "Start a model's engines anew",
			"Start a model's engines anew, one after another, and wait until that is done. Where there is\nroom it serves all the while. Ctrl-C only ends the waiting.",
			"return at once; it is restarted all the same"),
		newModelAsks("retry", "Try a model again where its engine failed",
			"Try a model again where its engine failed: now, and also where it is parked because it failed\nagain and again."),
	}
}

func newModelAsks(act, short, long string) *cobra.Command {
	cmd := &cobra.Command{Use: act + " NAME", Short: short, Long: long + "\nOnly an admin's machine may do this.", Args: exactly(1, "the name of a model")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := ask[scheduler.Acted](cmd.Context(), http.MethodPost, "/v0/model/"+act, api.NameRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), a)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", a.Model.Name, a.Text)
		return nil
	}
	return cmd
}

func newModelWaits(act, short, long, noWait string) *cobra.Command {
	var q api.WaitRequest
	cmd := &cobra.Command{Use: act + " NAME", Short: short, Long: long + "\nOnly an admin's machine may do this.", Args: exactly(1, "the name of a model")}
	asJSON := linesFlag(cmd)
	cmd.Flags().BoolVar(&q.NoWait, "no-wait", false, noWait)
	if act == "load" {
		cmd.Flags().BoolVar(&q.Force, "force", false, "run it on several machines together, also where one alone could or where that would be slow")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name = args[0]
		a, err := work[scheduler.Acted](cmd, *asJSON, act+" "+q.Name, "/v0/model/"+act, q,
			fmt.Sprintf("stopped waiting; the %s of %s goes on (relay status)", act, q.Name))
		if err != nil || *asJSON {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", a.Model.Name, a.Text)
		if q.NoWait {
			return nil
		}
		peers, err := ask[[]scheduler.PeerState](cmd.Context(), http.MethodGet, "/v0/peers?ask=no", nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", a.Model.Name, servesText(a.Model, peerNames(peers)))
		return nil
	}
	return cmd
}

// servesText says where a model serves.
func servesText(m scheduler.ModelState, names map[string]string) string {
	var on []string
	for _, r := range m.Replicas {
		if r.State == scheduler.StateReady {
			on = append(on, fmt.Sprintf("%s (%s)", peersText(r, names), wayText(r)))
		}
	}
	if len(on) == 0 {
		return "it does not run now"
	}
	return "serves on " + strings.Join(on, ", ")
}
