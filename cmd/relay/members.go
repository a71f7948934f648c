package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"relay/api"
)

func newPeerInvites() *cobra.Command {
	cmd := &cobra.Command{Use: "invites", Short: "List the invites: good, spent, expired, revoked", Args: exactly(0, "no arguments")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		invites, err := ask[[]api.InviteShown](cmd.Context(), http.MethodGet, "/v0/invites", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), invites)
		}
		var rows [][]string
		for _, i := range invites {
			rows = append(rows, []string{i.ID, i.Label, string(i.Role), string(i.Trust), fmt.Sprintf("%d of %d", i.Used, i.Uses),
				i.Expires.Local().Format("2006-01-02 15:04"), i.State})
		}
		printTable(cmd.OutOrStdout(), []string{"INVITE", "LABEL", "ROLE", "TRUST", "USED", "EXPIRES", "STATE"}, rows)
		return nil
	}
	return cmd
}

func newPeerRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke INVITE", Short: "Take an invite back; who has joined by it stays",
		Args: exactly(1, "an invite, its id, a unique prefix of that, or its label"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i, err := ask[api.InviteShown](cmd.Context(), http.MethodPost, "/v0/invite/revoke", api.NameRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), i)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "invite %s is good for nothing any more (it was used %d of %d times)\n", i.ID, i.Used, i.Uses)
		return nil
	}
	return cmd
}

func newPeerRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm PEER", Short: "Take a machine out of the mesh for ever",
		Long: "Take a machine out of the mesh for ever. What it had registered stays, in this machine's\nname, and so do the machines that it had let in. Nothing that it signs counts any more.\n" +
			"With --wipe it erases its pulled models, caches and records of the mesh, at its next contact\nif it is away; never a file that its owner registered in place.",
		Args: exactly(1, "the name or id of a machine"),
	}
	asJSON := jsonFlag(cmd)
	wipe := wipeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := api.RemovePeerRequest{Name: args[0], WipeRequest: *wipe}
		p, err := ask[api.RemovedPeer](cmd.Context(), http.MethodPost, "/v0/peer/rm", q)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), p)
		}
		text := fmt.Sprintf("%s is out of the mesh (%s)", p.Name, p.ID)
		switch away := p.Link.Path == "none"; {
		case p.Wipe && away:
			text += "; it is to erase itself at its next contact"
		case p.Wipe:
			text += "; it has been told to erase itself"
		}
		fmt.Fprintln(cmd.OutOrStdout(), text)
		return nil
	}
	return cmd
}

// wipeFlags adds --wipe and what goes with it.
func wipeFlags(cmd *cobra.Command) *api.WipeRequest {
	var q api.WipeRequest
	cmd.Flags().BoolVar(&q.Wipe, "wipe", false, "erase the models it pulled, its caches and its records; never a file registered in place")
	cmd.Flags().BoolVar(&q.LastCopy, "last-copy", false, "with --wipe: also the last whole copy of a model that can be reached")
	return &q
}

func newPeerLeave() *cobra.Command {
	cmd := &cobra.Command{
		Use: "leave", Short: "Take this machine out of its mesh for good, and stop it",
		Long: "Take this machine out of its mesh for good, and stop it. With --wipe it then erases the models\nthat it pulled, its caches and its records of the mesh; never a file registered in place.",
		Args: exactly(0, "no arguments"),
	}
	wipe := wipeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := ask[struct{}](cmd.Context(), http.MethodPost, "/v0/peer/leave", *wipe); err != nil {
			return err
		}
		text := "this machine has left its mesh and stops"
		if wipe.Wipe {
			text += ", then erases what it had of it"
		}
		fmt.Fprintln(cmd.OutOrStdout(), text+"; `relay up` founds one of its own")
		return nil
	}
	return cmd
}

func newPeerRecover() *cobra.Command {
	return &cobra.Command{
		Use: "recover CODE", Short: "Make this machine an admin with the mesh's recovery code (- reads it from standard input)",
		Args: exactly(1, "the recovery code, or - to read it from standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			code := args[0]
			if code == "-" { // Not in the list of processes, nor in the shell's history.
				line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadString('\n')
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				code = strings.TrimSpace(line)
			}
			if _, err := ask[struct{}](cmd.Context(), http.MethodPost, "/v0/peer/recover", api.CodeRequest{Code: code}); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "this machine is an admin of its mesh")
			return nil
		},
	}
}
