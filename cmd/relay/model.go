package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"relay/api"
	"relay/scheduler"
)

func newModel() *cobra.Command {
	return group("model", "The models of the mesh", newModelAdd(), newModelList(), newModelShow(), newModelPull(), newModelRemove())
}

func newModelAdd() *cobra.Command {
	var o scheduler.AddOptions
	cmd := &cobra.Command{
		Use: "add NAME PATH", Short: "Register a GGUF file where it lies; `demo` needs no path",
		Long: "Register a GGUF file under a name. Its blocks refer to the file where it lies: nothing is\ncopied. `relay model add demo` registers the small model that relay carries.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "demo" || len(args) == 2 {
				return nil
			}
			return &usageError{"relay model add takes a name and the path of a GGUF file, or just `demo`"}
		},
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.IntVar(&o.Context, "ctx", 0, "tokens of context that one slot holds (default what the model was made for, at most 8192)")
	f.IntVar(&o.Slots, "slots", 0, "requests that one replica serves at a time (default 2)")
	f.StringVar(&o.Kind, "kind", "", "chat, embed or rerank (default what the header says)")
	f.StringArrayVar(&o.Args, "engine-arg", nil, "a further argument for the engine, from the allow-list; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Name = args[0]
		if len(args) == 2 {
			path, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			o.Path = path
		}
		m, err := work[scheduler.ModelState](cmd, "hash "+o.Name, "/v0/model/add", o)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), m)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "added %s  %s  %s\n", m.Name, size(uint64(m.Bytes)), m.CID)
		return nil
	}
	return cmd
}

func newModelList() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the models of the mesh", Args: exactly(0, "no arguments")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		models, err := ask[[]scheduler.ModelState](cmd.Context(), http.MethodGet, "/v0/models", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), models)
		}
		peers, err := ask[[]scheduler.PeerState](cmd.Context(), http.MethodGet, "/v0/peers", nil)
		if err != nil {
			return err
		}
		printModels(cmd.OutOrStdout(), models, peerNames(peers))
		return nil
	}
	return cmd
}

func newModelShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Show one model", Args: exactly(1, "the name of a model")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := ask[scheduler.ModelState](cmd.Context(), http.MethodGet, "/v0/model?name="+url.QueryEscape(args[0]), nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), m)
		}
		peers, err := ask[[]scheduler.PeerState](cmd.Context(), http.MethodGet, "/v0/peers", nil)
		if err != nil {
			return err
		}
		printModel(cmd.OutOrStdout(), m, peerNames(peers))
		return nil
	}
	return cmd
}

func printModel(w io.Writer, m scheduler.ModelState, names map[string]string) {
	say := func(label, text string) { fmt.Fprintf(w, "%-12s %s\n", label, text) }
	var held []string
	for _, id := range m.Holders {
		held = append(held, names[id])
	}
	say("name", m.Name)
	say("uid", m.UID)
	say("cid", m.CID)
	say("size", size(uint64(m.Bytes)))
	say("header", fmt.Sprintf("%s, %d layers, %d parameters, made for %d tokens", m.Arch, m.Layers, m.Parameters, m.TrainContext))
	say("served as", fmt.Sprintf("%s, %d slots of %d tokens, %s of memory", m.Kind, m.Slots, m.Context, size(m.Need)))
	if len(m.Args) > 0 {
		say("engine args", strings.Join(m.Args, " "))
	}
	if m.Leader != nil {
		say("leader", fmt.Sprintf("%s, epoch %d", names[m.Leader.Peer], m.Leader.Epoch))
	}
	say("runs on", runsText(m, names))
	say("held by", join(held, "nobody"))
	if m.Placed != "" {
		say("why", m.Placed)
	}
}

func newModelPull() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "pull NAME", Short: "Bring a model here, or to another peer, from the peers that hold it",
		Args: exactly(1, "the name or CID of a model"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the `PEER` to bring it to (default this one)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := work[scheduler.ModelState](cmd, "pull "+args[0], "/v0/model/pull", api.PullRequest{Name: args[0], To: to})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), m)
		}
		where := "here"
		if to != "" {
			where = "on " + to
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is %s  %s  %s\n", m.Name, where, size(uint64(m.Bytes)), m.CID)
		return nil
	}
	return cmd
}

func newModelRemove() *cobra.Command {
	var q api.RemoveRequest
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Take a model out of the mesh; its files stay unless --files",
		Args: exactly(1, "the name of a model"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().BoolVar(&q.Files, "files", false, "delete this machine's pulled file as well (never one registered in place)")
	cmd.Flags().BoolVar(&q.LastCopy, "last-copy", false, "with --files: also where it is the last whole copy in the mesh")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name = args[0]
		m, err := ask[scheduler.Removed](cmd.Context(), http.MethodPost, "/v0/model/rm", q)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), m)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", m.Name)
		if m.FileKept != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "its file stays: %s\n", m.FileKept)
		}
		return nil
	}
	return cmd
}

// work follows long work with a bar on a terminal; elsewhere only its outcome shows.
func work[T any](cmd *cobra.Command, what, path string, body any) (T, error) {
	if !isTerminal(cmd.ErrOrStderr()) {
		return follow[T](cmd.Context(), path, body, nil)
	}
	bars := mpb.NewWithContext(cmd.Context(), mpb.WithOutput(cmd.ErrOrStderr()), mpb.WithWidth(40))
	phase := ""
	bar := bars.AddBar(0,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(what+"  "), decor.Any(func(decor.Statistics) string { return phase })),
		mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Name("  "), decor.AverageSpeed(decor.SizeB1024(0), "% .1f")))
	result, err := follow[T](cmd.Context(), path, body, func(p api.ProgressLine) {
		phase = p.Phase
		if p.Total > 0 {
			bar.SetTotal(p.Total, false)
			bar.SetCurrent(p.Done)
		}
	})
	bar.Abort(true)
	bars.Wait()
	return result, err
}
