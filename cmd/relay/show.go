package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/scheduler"
)

func newPeerShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show PEER", Short: "All of one machine", Args: exactly(1, "the name or id of a machine")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := ask[api.PeerShown](cmd.Context(), http.MethodGet, "/v0/peer?name="+url.QueryEscape(args[0]), nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), p)
		}
		printPeer(cmd.OutOrStdout(), p)
		return nil
	}
	return cmd
}

func printPeer(w io.Writer, p api.PeerShown) {
	say := func(label, text string) { fmt.Fprintf(w, "%-10s %s\n", label, text) }
	say("peer", p.Name)
	say("id", p.ID)
	say("role", p.Role)
	say("trust", p.Trust)
	say("labels", join(labelList(p.Labels), "none"))
	say("state", stateText(p.PeerState))
	say("last seen", seenText(p.PeerState))
	say("in step", stepText(p.PeerState))
	say("link", linkText(p.Link))
	for i, a := range p.Addresses {
		label := ""
		if i == 0 {
			label = "addresses"
		}
		say(label, a)
	}
	say("memory", fmt.Sprintf("%s in all, %s", size(p.Memory.Total), lendText(p.PeerState)))
	say("disk", fmt.Sprintf("%s in all, %s free", size(p.Disk.Total), size(p.Disk.Free)))
	cores := fmt.Sprint(p.Cores)
	if p.CoresLent > 0 {
		cores += fmt.Sprintf(", %d of them lent", p.CoresLent)
	}
	say("cores", cores)
	if p.Paused != "" {
		say("paused", p.Paused)
	}
	for i, d := range p.Devices {
		label := ""
		if i == 0 {
			label = "devices"
		}
		text := fmt.Sprintf("%s  %s  %s", d.ID, d.Kind, d.Name)
		if d.Known {
			text += fmt.Sprintf("  %s, %s free", size(d.Total), size(d.Free))
		} else {
			text += "  its memory is not known"
		}
		if d.Lent > 0 {
			text += fmt.Sprintf(", lends %s, %s of it free", size(d.Lent), size(d.Room))
		}
		if d.Busy != "" {
			text += ", busy: " + d.Busy
		}
		say(label, text)
	}
	if p.NoEngine == "" {
		say("engine", fmt.Sprintf("llama.cpp %s (%s), RPC %s", p.Engine.Version, p.Engine.Commit, p.Engine.RPC))
	} else {
		say("engine", "none: "+p.NoEngine)
	}
	say("holds", join(p.Holds, "nothing"))
	say("leads", join(p.Leads, "nothing"))
	var runs []string
	for _, r := range p.Runs {
		runs = append(runs, r.Model+": "+replicaText(r.ReplicaState))
	}
	for _, s := range p.Takes {
		runs = append(runs, fmt.Sprintf("%s: layers of it (%s), %s", s.Model, layersText(s.Memory), cmp.Or(s.State, "not heard of yet")))
	}
	say("runs", join(runs, "nothing"))
}

func lendText(p scheduler.PeerState) string {
	if p.NoEngine != "" || p.Memory.Lent == 0 {
		return "lends nothing"
	}
	return fmt.Sprintf("lends %s, %s of it free", size(p.Memory.Lent), size(p.Memory.Free))
}
