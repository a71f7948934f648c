package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/p2p/membership"
	"relay/scheduler"
	"relay/store"
)

func newPeer() *cobra.Command {
	commands := []*cobra.Command{newPeerInit(), newPeerInvite(), newPeerInvites(), newPeerRevoke(), newPeerJoin(), newPeerList(), newPeerShow(), newPeerSet(),
		newPeerRemove(), newPeerLeave(), newPeerRecover()}
	return group("peer", "The machines of the mesh", append(commands, newPeerSwitches()...)...)
}

// offline opens the machine for a command that needs no running peer.
func offline(cmd *cobra.Command) (*machine, error) {
	var s settings
	if err := s.fromEnvironment(); err != nil {
		return nil, err
	}
	log, closeLog, err := openLog(s, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	cobra.OnFinalize(closeLog)
	return openMachine(s, log)
}

func newPeerInit() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "init", Short: "Make the identity and found a mesh without starting it",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name != "" {
				if err := membership.CheckName(name); err != nil {
					return &usageError{fmt.Sprintf("--mesh-name %q: %v", name, err)}
				}
			}
			m, err := offline(cmd)
			if err != nil {
				return err
			}
			defer m.close()
			if id, err := m.mesh(); err != nil {
				return err
			} else if id != "" {
				return scheduler.Errorf(scheduler.InMesh, "this machine is in mesh %s already: start it with `relay up`", id)
			}
			if err := m.found(name); err != nil {
				return err
			}
			id, err := m.mesh()
			if err != nil {
				return err
			}
			node, err := m.newNode(id, nil) // Writes the first records.
			if err != nil {
				return err
			}
			node.Close()
			secrets, err := m.unshown(id)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("  mesh      %s\n  peer      %s  %s\n  recovery  %s  (keep it; shown once)\n", id, m.Name, node.Self(), secrets.recovery)
			if secrets.key != "" {
				text += fmt.Sprintf("  key       %s  (shown once)\n", secrets.key)
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), text+"  Next:     relay up\n"); err != nil {
				return err
			}
			return m.forget(keyUnshown)
		},
	}
	cmd.Flags().StringVar(&name, "mesh-name", "", "what the mesh is called (default after this machine)")
	return cmd
}

func newPeerInvite() *cobra.Command {
	var uses int
	var ttl time.Duration
	var label string
	var admin, client, shardOnly, asQR bool
	cmd := &cobra.Command{
		Use: "invite", Short: "Print the line to paste on the machine that is to join",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.IntVar(&uses, "uses", 1, "how many machines may join with it")
	f.DurationVar(&ttl, "ttl", membership.DefaultInviteTTL, "how long it holds")
	f.StringVar(&label, "label", "", "a note for yourself")
	f.BoolVar(&admin, "admin", false, "who joins becomes an admin")
	f.BoolVar(&shardOnly, "shard-only", false, "who joins gets parts of models only")
	f.BoolVar(&client, "client", false, "who joins uses the mesh, and holds and runs nothing")
	f.BoolVar(&asQR, "qr", false, "draw the invite as a QR code as well")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q := api.InviteRequest{Uses: uses, TTLSeconds: int64(ttl.Seconds()), Label: label}
		switch {
		case client && shardOnly || admin && (client || shardOnly):
			return &usageError{"--admin, --shard-only and --client exclude one another"}
		case asQR && *asJSON:
			return &usageError{"--qr and --json exclude one another"}
		case uses < 1 || uses > api.MaxInviteUses:
			return &usageError{fmt.Sprintf("--uses takes 1 or more, up to %d", api.MaxInviteUses)}
		case ttl < time.Second || ttl > api.MaxInviteTTL:
			return &usageError{fmt.Sprintf("--ttl takes a second or more, up to %dh", int(api.MaxInviteTTL.Hours()))}
		case admin:
			q.Role = membership.RoleAdmin
		case client:
			q.Trust = membership.TrustClient
		case shardOnly:
			q.Trust = membership.TrustShardOnly
		}
		a, err := ask[api.InviteAnswer](cmd.Context(), http.MethodPost, "/v0/invite", q)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), a)
		}
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "relay up --join %s\n", a.Invite)
		if asQR {
			code, err := qrCode(strings.ToUpper(a.Invite), colours(isTerminal(w))) // Its case does not matter.
			if err != nil {
				return err
			}
			fmt.Fprint(w, "\n"+code)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "\nPaste that on the other machine. It is good for %s until %s: whoever has it may join.\n",
			plural(a.Uses, "machine"), a.Expires.Local().Format("2006-01-02 15:04"))
		if a.LANOnly {
			fmt.Fprintln(cmd.ErrOrStderr(), "The addresses in it work only on this network.")
		}
		return nil
	}
	return cmd
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newPeerJoin() *cobra.Command {
	cmd := &cobra.Command{
		Use: "join INVITE", Short: "Join the mesh of an invite: now where a peer runs here, else with the next `relay up`",
	}
	forget := cmd.Flags().Bool("forget", false, "instead, drop the invite that was kept for the next start")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *forget {
			return exactly(0, "no invite with --forget")(cmd, args)
		}
		return exactly(1, "one invite")(cmd, args)
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *forget {
			return forgetInvite(cmd, *asJSON)
		}
		invite, err := membership.ParseInvite(args[0])
		if err != nil {
			return err
		}
		a, err := ask[api.JoinAnswer](cmd.Context(), http.MethodPost, "/v0/join", api.JoinRequest{Invite: args[0]})
		if errors.Is(err, errNoPeer) {
			a, err = keepInvite(cmd, args[0], invite)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), a)
		}
		w := cmd.OutOrStdout()
		switch {
		case a.Already:
			fmt.Fprintln(w, "this machine is in that mesh already; the invite was not used")
		case a.Pending:
			fmt.Fprintln(w, "the invite is kept; this machine joins with the next `relay up`")
		default:
			fmt.Fprintf(w, "joined mesh %s by way of %s\n", a.Mesh, a.Admitter)
		}
		return nil
	}
	return cmd
}

// forgetInvite drops the invite that was kept.
func forgetInvite(cmd *cobra.Command, asJSON bool) error {
	a, err := ask[api.JoinAnswer](cmd.Context(), http.MethodPost, "/v0/join", api.JoinRequest{Forget: true})
	if errors.Is(err, errNoPeer) {
		var m *machine
		if m, err = stopped(cmd); err == nil {
			defer m.close()
			a, err = api.JoinAnswer{Forgotten: true}, m.forget(keyPending)
		}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), a)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "no invite is kept")
	return nil
}

// stopped opens the machine where no peer runs.
func stopped(cmd *cobra.Command) (*machine, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	if _, held, err := store.Holder(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	} else if held {
		return nil, errors.New("a peer is starting or stopping here: try again in a moment")
	}
	return offline(cmd)
}

// keepInvite leaves an invite for the next start.
func keepInvite(cmd *cobra.Command, text string, invite membership.Invite) (api.JoinAnswer, error) {
	m, err := stopped(cmd)
	if err != nil {
		return api.JoinAnswer{}, err
	}
	defer m.close()
	current, err := m.mesh()
	if err != nil {
		return api.JoinAnswer{}, err
	}
	if current == invite.Mesh {
		return api.JoinAnswer{Mesh: string(current), Already: true}, nil
	}
	if current != "" {
		alone, _, err := m.alone(current)
		if err != nil {
			return api.JoinAnswer{}, err
		}
		if !alone {
			return api.JoinAnswer{}, errInMesh
		}
	}
	return api.JoinAnswer{Mesh: string(invite.Mesh), Pending: true}, m.save(keyPending, text)
}

func newPeerList() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the machines of the mesh", Args: exactly(0, "no arguments")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		peers, err := ask[[]scheduler.PeerState](cmd.Context(), http.MethodGet, "/v0/peers", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), peers)
		}
		if text := unansweredText(peers, withoutAnswer(peers), time.Now()); text != "" {
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		printPeers(cmd.OutOrStdout(), peers)
		return nil
	}
	return cmd
}
