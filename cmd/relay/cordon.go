package main

import (
	"github.com/spf13/cobra"

	"relay/api"
)

// newPeerSwitch is a command that sets one thing of a machine to yes or no.
func newPeerSwitch(use, short, long string, set func(*api.SetRequest)) *cobra.Command {
	cmd := &cobra.Command{Use: use + " PEER", Short: short, Long: long, Args: exactly(1, "the name or id of a machine")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := api.SetRequest{Peer: args[0]}
		set(&q)
		return setPeer(cmd, q, *asJSON)
	}
	return cmd
}

func newPeerSwitches() []*cobra.Command {
	yes, no := true, false
	return []*cobra.Command{
		newPeerSwitch("cordon", "Place nothing new on a machine",
			"Place nothing new on a machine. What runs there stays, and is started again there if it\nfalls; the machine may still lead.",
			func(q *api.SetRequest) { q.Cordon = &yes }),
		newPeerSwitch("uncordon", "Place models on a machine again", "Place models on a machine again.", func(q *api.SetRequest) { q.Cordon = &no }),
		newPeerSwitch("drain", "Move away what runs on a machine",
			"Move away what runs on a machine, and place nothing there. It serves until others are ready\n"+
				"in its stead, for two minutes at most, and then finishes its requests. What nobody else can\ntake stops then all the same; relay status says so. It leads no models meanwhile.",
			func(q *api.SetRequest) { q.Drain = &yes }),
		newPeerSwitch("undrain", "Let a machine run models again", "Let a machine run models again. What has moved away stays where it is.",
			func(q *api.SetRequest) { q.Drain = &no }),
	}
}
