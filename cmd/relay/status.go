package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/scheduler"
)

// shownDecisions bounds what the table prints; --json has them all.
const shownDecisions = 8

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "The mesh at a glance",
		Long: "The mesh at a glance: machines, models, where they run, and what was decided lately.\nExits 1 when the mesh cannot serve something that it should.",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	watch := cmd.Flags().Bool("watch", false, "show it anew every two seconds, until Ctrl-C; with --json a line each time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *watch {
			return watchStatus(cmd, *asJSON)
		}
		s, err := ask[api.Status](cmd.Context(), http.MethodGet, "/v0/status", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), s)
		} else {
			printStatus(cmd.OutOrStdout(), s, time.Now())
		}
		if err == nil && !s.Serving {
			return errSilent
		}
		return err
	}
	return cmd
}

// watchEvery is how often a status that is watched is shown anew.
const watchEvery = 2 * time.Second

// watchStatus shows the status until the command is ended. A peer that stops ends it,
// too.
func watchStatus(cmd *cobra.Command, asJSON bool) error {
	out := cmd.OutOrStdout()
	next := time.NewTicker(watchEvery)
	defer next.Stop()
	ended := &interrupted{"stopped watching"}
	for {
		s, err := ask[api.Status](cmd.Context(), http.MethodGet, "/v0/status", nil)
		if err != nil {
			return orInterrupted(cmd, err, ended.text)
		}
		if asJSON {
			if err := json.NewEncoder(out).Encode(s); err != nil {
				return err
			}
		} else {
			if isTerminal(out) {
				fmt.Fprint(out, "\x1b[H\x1b[2J") // To the top of an empty screen.
			} else {
				fmt.Fprintf(out, "%s\n", time.Now().Format(time.TimeOnly))
			}
			printStatus(out, s, time.Now())
		}
		select {
		case <-next.C:
		case <-cmd.Context().Done():
			return ended
		}
	}
}

func printStatus(w io.Writer, s api.Status, now time.Time) {
	names := peerNames(s.Peers)
	fmt.Fprintf(w, "mesh %s (%s)   /v1 %s   %s\n", s.Mesh.Name, s.Mesh.ID, s.Door, s.Keys)
	if text := unansweredText(s.Peers, s.Unanswered, now); text != "" {
		fmt.Fprintln(w, text)
	}
	fmt.Fprintln(w)
	printPeers(w, s.Peers)
	printHeldBack(w, s.Peers)
	for _, p := range s.Wiping {
		fmt.Fprintf(w, "\n%s is out of the mesh and is to erase itself when it is next seen (%s)\n", p.Name, p.ID)
	}
	fmt.Fprintln(w)
	printModels(w, s.Models, names, false)
	printWorkload(w, s.Models, names)
	printParked(w, s.Models, names)
	printUnfinished(w, s.Disk.Unfinished)
	fmt.Fprintf(w, "\ndisk here: %s\n", diskText(s.Disk))
	if len(s.Decisions) > 0 {
		fmt.Fprintln(w, "\nDECIDED LATELY")
		for _, d := range s.Decisions[:min(shownDecisions, len(s.Decisions))] {
			fmt.Fprintf(w, "  %s  %s\n", d.At.Local().Format("15:04:05"), d.Text)
		}
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", warning)
	}
	if next := nextSteps(s); len(next) > 0 {
		fmt.Fprintln(w)
		for _, line := range next {
			fmt.Fprintln(w, "next: ", line)
		}
	}
}

// nextSteps are the lines of the first start that are still to do.
func nextSteps(s api.Status) []string {
	lines := nextLines(s.Door)
	var todo []string
	if len(s.Models) == 0 {
		todo = append(todo, lines[0])
	}
	if len(s.Peers) == 1 {
		todo = append(todo, lines[1])
	}
	if len(s.Models) == 0 {
		todo = append(todo, lines[2])
	}
	return todo
}

func peerNames(peers []scheduler.PeerState) map[string]string {
	names := map[string]string{}
	for _, p := range peers {
		names[p.ID] = p.Name
	}
	return names
}

func printPeers(w io.Writer, peers []scheduler.PeerState) {
	var rows [][]string
	labels := false
	for _, p := range peers {
		lending := withGPUs(p.Memory.Lent, p.Devices, func(d scheduler.Device) uint64 { return d.Lent })
		switch {
		case p.NoEngine != "":
			lending = "nothing (no engine)"
		case p.Paused != "":
			lending = "nothing (paused)"
		}
		rows = append(rows, []string{p.Name, p.Role, p.Trust, gpuText(p.Devices), lending,
			withGPUs(p.Memory.Free, p.Devices, func(d scheduler.Device) uint64 { return d.Room }),
			size(p.Disk.Free), linkText(p.Link), stateText(p), stepText(p), seenText(p), p.ID[max(0, len(p.ID)-8):]})
		labels = labels || len(p.Labels) > 0
	}
	header := []string{"PEER", "ROLE", "TRUST", "GPU", "LENDING", "FREE", "DISK FREE", "LINK", "STATE", "IN STEP", "LAST SEEN", "ID"}
	if labels { // Most meshes have none.
		header = append(header, "LABELS")
		for i, p := range peers {
			rows[i] = append(rows[i], strings.Join(labelList(p.Labels), " "))
		}
	}
	printTable(w, header, rows)
}

// unansweredText says who did not answer, and since when; "" where all did.
func unansweredText(peers []scheduler.PeerState, unanswered []string, now time.Time) string {
	if len(unanswered) == 0 {
		return ""
	}
	var away []string
	for _, p := range peers {
		switch {
		case !slices.Contains(unanswered, p.ID):
		case p.LastSeen == nil:
			away = append(away, p.Name+" (never seen)")
		default:
			away = append(away, fmt.Sprintf("%s (not since %s)", p.Name, clock(now.Add(-time.Duration(*p.LastSeen*float64(time.Second))), now)))
		}
	}
	return fmt.Sprintf("%d of %d peers answered; not %s", len(peers)-len(unanswered), len(peers), strings.Join(away, ", "))
}

// withoutAnswer are the peers that did not say whether they are in step.
func withoutAnswer(peers []scheduler.PeerState) []string {
	var ids []string
	for _, p := range peers {
		if p.Behind == nil {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func stateText(p scheduler.PeerState) string {
	parts := []string{p.State}
	if p.Draining && p.State != "draining" {
		parts = append(parts, "draining")
	}
	if p.Cordoned {
		parts = append(parts, "cordoned")
	}
	return strings.Join(parts, ", ")
}

func stepText(p scheduler.PeerState) string {
	switch {
	case p.Behind == nil:
		return "?"
	case *p.Behind == 0:
		return "yes"
	}
	return fmt.Sprintf("%d behind", *p.Behind)
}

func labelList(labels map[string]string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, key+"="+labels[key])
	}
	return list
}

func gpuText(devices []scheduler.Device) string {
	var gpus []string
	for _, d := range devices {
		switch {
		case d.Kind != "gpu":
		case d.Busy != "":
			gpus = append(gpus, d.Name+" (busy)")
		default:
			gpus = append(gpus, d.Name)
		}
	}
	return join(gpus, "-")
}

// withGPUs is memory of a machine, and of its GPUs where it has any whose memory is
// known.
func withGPUs(plain uint64, devices []scheduler.Device, of func(scheduler.Device) uint64) string {
	var sum uint64
	known := false
	for _, d := range devices {
		if d.Kind == "gpu" && d.Known {
			sum, known = sum+of(d), true
		}
	}
	if !known {
		return size(plain)
	}
	return fmt.Sprintf("%s + %s GPU", size(plain), size(sum))
}

// printHeldBack says why machines lend nothing, or not all of their devices, for now.
func printHeldBack(w io.Writer, peers []scheduler.PeerState) {
	var lines []string
	for _, p := range peers {
		if p.Paused != "" {
			lines = append(lines, fmt.Sprintf("%s lends nothing for now: %s", p.Name, p.Paused))
		}
		for _, d := range p.Devices {
			if d.Busy != "" {
				lines = append(lines, fmt.Sprintf("%s: nothing new goes to %s for now: %s", p.Name, d.ID, d.Busy))
			}
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

// printModels lists models; with all it also says what they can and are called.
func printModels(w io.Writer, models []scheduler.ModelState, names map[string]string, all bool) {
	if len(models) == 0 {
		fmt.Fprintln(w, "no models yet")
		return
	}
	head := []string{"MODEL", "SIZE", "SLOTS x CONTEXT", "LEADER", "RUNS ON", "HELD BY"}
	if all {
		head = append(head, "CAN", "ALIASES", "FALLBACK")
	}
	var rows [][]string
	for _, m := range models {
		leader := "-"
		if m.Leader != nil {
			leader = fmt.Sprintf("%s (epoch %d)", names[m.Leader.Peer], m.Leader.Epoch)
		}
		row := []string{m.Name, size(uint64(m.Size())), fmt.Sprintf("%d x %d", m.Slots, m.Context), leader, runsText(m, names), heldText(m, names)}
		if all {
			can := "?"
			if m.Can != nil {
				can = canText(m.Can)
			}
			row = append(row, can, cmp.Or(aliasText(m), "-"), cmp.Or(fallbackText(m), "-"))
		}
		rows = append(rows, row)
	}
	printTable(w, head, rows)
}

// heldText names those who hold a model, and marks those who have only part of it.
func heldText(m scheduler.ModelState, names map[string]string) string {
	var held []string
	for _, id := range m.Holders {
		held = append(held, names[id])
	}
	for _, id := range m.Partly {
		held = append(held, names[id]+" (partly)")
	}
	slices.Sort(held)
	return join(held, "nobody")
}

// diskText is what models take on this machine, against what its owner wants.
func diskText(u scheduler.DiskUse) string {
	of := func(c scheduler.CapUse, setting string) string {
		if c.Cap == 0 {
			return size(c.Used)
		}
		return fmt.Sprintf("%s of %s (%s)", size(c.Used), size(c.Cap), setting)
	}
	return fmt.Sprintf("models %s, pulled, unfinished and layers %s, %s free", of(u.Models, "RELAY_MODELS_MAX"), of(u.Cache, "RELAY_CACHE_MAX"), size(u.Free))
}

// runsText says where a model runs, or why it need not, or is not tried, and how many
// of the replicas that are asked for serve where some do not.
func runsText(m scheduler.ModelState, names map[string]string) string {
	var parts, parked []string
	for _, r := range m.Replicas {
		if !parkedOn(m, r.Peer) {
			parts = append(parts, peersText(r, names)+": "+replicaText(r))
		}
	}
	for _, p := range m.Parked {
		if name := names[p.Peer]; !slices.Contains(parked, name) { // In several ways, each parked for itself.
			parked = append(parked, name)
		}
	}
	if len(parts) == 0 && m.Asleep {
		parts = append(parts, "asleep")
	}
	if len(parked) > 0 {
		parts = append(parts, "parked on "+strings.Join(parked, " and "))
	}
	text := join(parts, "nowhere")
	if n := api.Ready(m); n < m.Min {
		text = fmt.Sprintf("%d of %d: %s", n, m.Min, text)
	}
	return text
}

func replicaText(r scheduler.ReplicaState) string {
	text := stageText(r)
	if r.State == scheduler.StateReady {
		text = fmt.Sprintf("ready (%s)", wayText(r))
	}
	if r.InFlight != nil && *r.InFlight > 0 {
		text += fmt.Sprintf(", %d in flight", *r.InFlight)
	}
	return text
}
