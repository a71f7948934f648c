package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"relay/p2p/record"
	"relay/scheduler"
)

func newCache() *cobra.Command {
	return group("cache", "What relay keeps on this machine's disk and may delete", newCachePrune())
}

func newCachePrune() *cobra.Command {
	var q scheduler.PruneOptions
	var limit string
	cmd := &cobra.Command{
		Use: "prune", Short: "Free disk: pulled models that may go, unfinished pulls, and layers that are not used",
		Long: "Free disk: layers of models that no group uses any more, unfinished pulls that do not run, and\npulled models that are not pinned, do not run here, and of which another machine has a whole copy. " +
			"What is used least goes first.\nFiles registered in place are never deleted. Where no peer runs here nobody can be asked\n" +
			"for another copy: then of pulled models only those go that the mesh does not know any more.",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&limit, "max-size", "", "keep that `SIZE` of what may go, such as 500MB or 1.5TiB (default nothing)")
	f.BoolVar(&q.DryRun, "dry-run", false, "only say what would be done")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.Changed("max-size") {
			n, err := parseSize("--max-size", limit)
			if err != nil {
				return err
			}
			q.MaxSize = &n
		}
		p, err := ask[scheduler.Pruned](cmd.Context(), http.MethodPost, "/v0/cache/prune", q)
		if errors.Is(err, errNoPeer) {
			p, err = pruneOffline(cmd, q)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), p)
		}
		printPruned(cmd.OutOrStdout(), p)
		return nil
	}
	return cmd
}

// pruneOffline frees disk where no peer runs here.
func pruneOffline(cmd *cobra.Command, q scheduler.PruneOptions) (scheduler.Pruned, error) {
	m, err := stopped(cmd)
	if err != nil {
		return scheduler.Pruned{}, err
	}
	defer m.close()
	id, err := m.mesh()
	if err != nil {
		return scheduler.Pruned{}, err
	}
	var table *record.Table
	if id != "" {
		node, err := m.openNode(id, nil) // As they are: nothing is written.
		if err != nil {
			return scheduler.Pruned{}, err
		}
		defer node.Close()
		table = node.Table()
	}
	coming, err := m.coming()
	if err != nil {
		return scheduler.Pruned{}, err
	}
	return scheduler.PruneOffline(m.content, m.tensors, table, coming, q)
}

func printPruned(w io.Writer, p scheduler.Pruned) {
	done, all := "freed", "freed"
	if p.DryRun {
		done, all = "would free", "would be freed"
	}
	for _, f := range p.Freed {
		fmt.Fprintf(w, "%s  %s  %s\n", done, pieceText(f), size(f.Bytes))
	}
	printKept(w, p.Kept)
	fmt.Fprintf(w, "%s %s, %s kept\n", size(p.FreedBytes), all, size(p.KeptBytes))
	if p.Offline {
		fmt.Fprintln(w, "no peer runs here: nobody could be asked for other copies of what the mesh knows")
	}
}

func printKept(w io.Writer, list []scheduler.Piece) {
	for _, k := range list {
		fmt.Fprintf(w, "kept  %s  %s  %s\n", pieceText(k), size(k.Bytes), k.Why)
	}
}

func pieceText(p scheduler.Piece) string {
	if p.Unfinished {
		return "unfinished pull of " + p.Name
	}
	return p.Name
}
