package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"relay/api"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token --api", Short: "Show or rotate the mesh's default API key",
		Long: "Show the mesh's default API key, on the machine where it was made; on another one, which that\n" +
			"is. With --rotate it gets another secret, which is then kept on this machine; the one that it\nhad is out at once (relay key rotate default --overlap 1h leaves it good for a while).",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	ofAPI := cmd.Flags().Bool("api", false, "the API key; nothing else can be shown")
	rotate := cmd.Flags().Bool("rotate", false, "give it another secret; only an admin's machine may")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*ofAPI {
			return &usageError{"relay token wants --api"}
		}
		d, err := ask[api.DefaultKey](cmd.Context(), http.MethodGet, "/v0/keys/default", nil)
		if err != nil {
			return err
		}
		if *rotate {
			made, err := ask[api.KeyMade](cmd.Context(), http.MethodPost, "/v0/keys/rotate", api.RotateKeyRequest{Name: d.ID})
			if err != nil {
				return err
			}
			// From the answer, as it may be kept nowhere.
			d = api.DefaultKey{KeyShown: made.KeyShown, Secret: made.Secret, Environment: d.Environment}
			defer warn(cmd.ErrOrStderr(), made.Warnings)
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), d)
		}
		return printToken(cmd.OutOrStdout(), cmd.ErrOrStderr(), d)
	}
	return cmd
}

// printToken prints the secret alone, for scripts, and what there is to know beside it.
func printToken(w, beside io.Writer, d api.DefaultKey) error {
	if d.Secret == "" {
		text := fmt.Sprintf("the secret of the default key is not kept here: ask on %s, where it was made, or have another one made here (relay token --api --rotate)", d.KeptOn)
		if d.Environment {
			text += "; on this machine RELAY_API_KEY opens the door, too"
		}
		return errors.New(text)
	}
	fmt.Fprintln(w, d.Secret)
	if d.State == "expired" {
		fmt.Fprintln(beside, "relay: it has expired: take it back (relay key rm default) and make another one")
	}
	if d.Environment {
		fmt.Fprintln(beside, "relay: on this machine RELAY_API_KEY opens the door, too, so this one may not be needed here")
	}
	return nil
}
