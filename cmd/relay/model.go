package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/llama"
	"relay/scheduler"
)

func newModel() *cobra.Command {
	g := group("model", "The models of the mesh", newModelAdd(), newModelList(), newModelShow(), newModelPull(), newModelSet(), newModelRemove(), newModelPlan())
	g.AddCommand(newModelActs()...)
	return g
}

func newModelAdd() *cobra.Command {
	var o scheduler.AddOptions
	cmd := &cobra.Command{
		Use: "add NAME PATH…", Short: "Register a GGUF file where it lies; `demo` needs no path",
		Long: "Register a GGUF file under a name. Its blocks refer to the file where it lies: nothing is\ncopied. Of a model that is split into parts, one is enough: the others are found beside it.\n" +
			"A model whose file was moved is added again under its name, from where it lies now.\n" +
			"`relay model add demo` registers the small model that relay carries.\n\n" +
			"An --engine-arg is one word, such as --engine-arg --temp=0.6. There is:\n" + wrapped(llama.ArgNames(), 96),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "demo" || len(args) >= 2 {
				return nil
			}
			return &usageError{"relay model add takes a name and the path of a GGUF file, or just `demo`"}
		},
	}
	asJSON := linesFlag(cmd)
	f := cmd.Flags()
	projector := f.String("mmproj", "", "the `PATH` of the projector by which the model reads images")
	f.IntVar(&o.Context, "ctx", 0, "tokens of context that one slot holds (default what the model was made for, at most 8192)")
	f.IntVar(&o.Slots, "slots", 0, "requests that one replica serves at a time (default 2)")
	f.StringVar(&o.Kind, "kind", "", "chat, embed or rerank (default what the header says)")
	f.StringArrayVar(&o.Aliases, "alias", nil, "a further `NAME` of it; repeatable")
	f.StringArrayVar(&o.Args, "engine-arg", nil, "a further argument for the engine, from the allow-list; repeatable")
	f.StringArrayVar(&o.Env, "engine-env", nil, "a setting for the engine's environment, `NAME=VALUE`, from the allow-list; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Name = args[0]
		for _, entry := range o.Env {
			if name, _, ok := strings.Cut(entry, "="); !ok || name == "" {
				return &usageError{fmt.Sprintf("--engine-env %q: it is NAME=VALUE", entry)}
			}
		}
		if f.Changed("mmproj") && *projector == "" {
			return &usageError{"--mmproj wants a path"}
		}
		for _, given := range args[1:] {
			path, err := filepath.Abs(given)
			if err != nil {
				return err
			}
			o.Paths = append(o.Paths, path)
		}
		if *projector != "" {
			path, err := filepath.Abs(*projector)
			if err != nil {
				return err
			}
			o.Projector = path
		}
		m, err := work[scheduler.Outcome](cmd, *asJSON, "add "+o.Name, "/v0/model/add", o, "stopped; "+o.Name+" is not added")
		if err != nil || *asJSON {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "added %s  %s  %s\n", m.Name, size(uint64(m.Size())), m.CID)
		warn(cmd.ErrOrStderr(), m.Warnings)
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
		disk, err := ask[scheduler.DiskUse](cmd.Context(), http.MethodGet, "/v0/disk", nil)
		if err != nil {
			return err
		}
		printModels(cmd.OutOrStdout(), models, peerNames(peers), true)
		printUnfinished(cmd.OutOrStdout(), disk.Unfinished)
		return nil
	}
	return cmd
}

func newModelShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Show one model", Args: exactly(1, "the name of a model")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := ask[api.ModelShown](cmd.Context(), http.MethodGet, "/v0/model?name="+url.QueryEscape(args[0]), nil)
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

func printModel(w io.Writer, m api.ModelShown, names map[string]string) {
	say := func(label, text string) { fmt.Fprintf(w, "%-12s %s\n", label, text) }
	say("name", m.Name)
	say("uid", m.UID)
	say("cid", m.CID)
	say("size", size(uint64(m.Size())))
	if m.Projector != nil {
		say("projector", fmt.Sprintf("%s  %s", size(uint64(m.Projector.Bytes)), m.Projector.CID))
	}
	say("header", fmt.Sprintf("%s, %d layers, %d parameters, made for %d tokens", m.Arch, m.Layers, m.Parameters, m.TrainContext))
	say("served as", fmt.Sprintf("%s, %d slots of %d tokens, %s of memory", m.Kind, m.Slots, m.Context, size(m.Need)))
	say("can", canText(m.Can))
	if aliases := aliasText(m.ModelState); aliases != "" {
		say("aliases", aliases)
	}
	if m.Fallback != "" {
		say("fallback", fallbackText(m.ModelState))
	}
	if len(m.Args) > 0 {
		say("engine args", strings.Join(m.Args, " "))
	}
	if m.Leader != nil {
		say("leader", fmt.Sprintf("%s, epoch %d", names[m.Leader.Peer], m.Leader.Epoch))
	}
	say("replicas", wantedText(m.ModelState, names))
	for i, text := range runLines(m, names) {
		label := ""
		if i == 0 {
			label = "runs on"
		}
		say(label, text)
	}
	for _, p := range m.Parked {
		say("parked", fmt.Sprintf("on %s: %s; relay model retry %s tries again", names[p.Peer], p.Text, m.Name))
	}
	say("held by", heldText(m.ModelState, names))
	if m.Pinned {
		say("pinned", "yes: no copy is deleted to make room, and one replica is kept loaded")
	}
	for _, p := range m.Pulls {
		say("pull here", pullText(p))
	}
	if m.Placed != "" {
		say("why", m.Placed)
	}
}

// canText is what the headers of a model's files let it do.
func canText(can *scheduler.Can) string {
	if can == nil {
		return "not known: it was added by an older relay (add it again, with its projector, to have it looked at)"
	}
	var list []string
	for _, what := range []struct {
		can  bool
		name string
	}{{can.Tools, "tools"}, {can.Images, "images"}, {can.Audio, "audio"}} {
		if what.can {
			list = append(list, what.name)
		}
	}
	return join(list, "no tools, no images")
}

// aliasText lists a model's aliases, and what became of those that it has lost.
func aliasText(m scheduler.ModelState) string {
	list := slices.Clone(m.Aliases)
	for _, alias := range slices.Sorted(maps.Keys(m.LostAliases)) {
		list = append(list, fmt.Sprintf("%s (lost: it means %s)", alias, m.LostAliases[alias]))
	}
	return strings.Join(list, ", ")
}

// fallbackText names the model that may answer in a model's stead.
func fallbackText(m scheduler.ModelState) string {
	if m.FallbackGone {
		return m.Fallback + " (gone)"
	}
	return m.Fallback
}

// wantedText is how many replicas are asked for, where, and for how long.
func wantedText(m scheduler.ModelState, names map[string]string) string {
	text := "on demand"
	if m.Min > 0 {
		text = fmt.Sprintf("%d or more", m.Min)
	}
	if m.Max > 0 {
		text += fmt.Sprintf(", %d at most", m.Max)
	}
	if m.Only != "" {
		name := names[m.Only]
		if name == "" {
			name = m.Only // It is out of the mesh.
		}
		text += ", only on " + name
	}
	if m.IdleUnload > 0 {
		text += fmt.Sprintf(", unloaded after %s without a request", time.Duration(m.IdleUnload)*time.Second)
	}
	return text
}

// runLines says of each replica what is known of it.
func runLines(m api.ModelShown, names map[string]string) []string {
	if len(m.Replicas) == 0 {
		if m.Asleep {
			return []string{"nowhere: asleep, and loaded when somebody asks for it"}
		}
		return []string{"nowhere"}
	}
	var lines []string
	for _, r := range m.Replicas {
		text := fmt.Sprintf("%s: %s", peersText(r, names), replicaText(r))
		if r.Message != "" && !parkedOn(m.ModelState, r.Peer) {
			text += ": " + r.Message
		}
		if r.State == scheduler.StateReady && r.Waiting != nil {
			served := "never served"
			if r.LastServed != nil {
				served = "last served " + ago(*r.LastServed)
			}
			text += fmt.Sprintf(", %d waiting, %s, resident %s", *r.Waiting, served, residentText(r))
		}
		if slices.Contains(m.Unanswered, r.Peer) {
			text += ", did not answer"
		}
		if len(r.Memory) > 0 {
			text += "; " + spreadText(r, names, func(m []scheduler.DeviceMemory) string { return memoryText(m, nil) })
		}
		if r.Way != "" && r.Device != "" {
			text += "; computes on " + r.Device
		}
		lines = append(lines, text)
	}
	return lines
}

func newModelRemove() *cobra.Command {
	var q api.RemoveRequest
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Take a model out of the mesh; its files stay unless --files",
		Long: "Take a model out of the mesh; its files stay unless --files. An alias is not taken for a name here.",
		Args: exactly(1, "the name of a model"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().BoolVar(&q.Files, "files", false, "delete this machine's pulled files as well (never those registered in place)")
	cmd.Flags().BoolVar(&q.LastCopy, "last-copy", false, "with --files: also where it may be the last whole copy in the mesh")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name = args[0]
		if q.LastCopy && !q.Files {
			return &usageError{"--last-copy goes with --files: without it no file is deleted"}
		}
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
		warn(cmd.ErrOrStderr(), m.Warnings)
		return nil
	}
	return cmd
}
