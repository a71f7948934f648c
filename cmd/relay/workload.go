package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"relay/scheduler"
)

// printWorkload lists the replicas of all models, one a row, the busiest first.
func printWorkload(w io.Writer, models []scheduler.ModelState, names map[string]string) {
	type run struct {
		model scheduler.ModelState
		scheduler.ReplicaState
	}
	var runs []run
	for _, m := range models {
		for _, r := range m.Replicas {
			runs = append(runs, run{m, r})
		}
	}
	if len(runs) == 0 {
		return
	}
	slices.SortStableFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(busy(b.ReplicaState), busy(a.ReplicaState)), cmp.Compare(a.model.Name, b.model.Name), cmp.Compare(names[a.Peer], names[b.Peer]))
	})
	var rows [][]string
	for _, r := range runs {
		state := stageText(r.ReplicaState)
		if parkedOn(r.model, r.Peer) {
			state = "parked"
		}
		rows = append(rows, []string{r.model.Name, peersText(r.ReplicaState, names), cmp.Or(r.Way, "-"), spreadText(r.ReplicaState, names, layersText), cmp.Or(r.Device, "-"), state,
			countText(r.InFlight), countText(r.Waiting), servedText(r.ReplicaState), residentText(r.ReplicaState)})
	}
	fmt.Fprintln(w)
	printTable(w, []string{"WORKLOAD", "PEER", "WAY", "LAYERS", "COMPUTES ON", "STATE", "IN FLIGHT", "WAITING", "LAST SERVED", "RESIDENT"}, rows)
}

// busy is how many requests a replica has.
func busy(r scheduler.ReplicaState) (n int) {
	for _, count := range []*int{r.InFlight, r.Waiting} {
		if count != nil {
			n += *count
		}
	}
	return n
}

// wayText is how a replica runs; by older releases it is only known on what.
func wayText(r scheduler.ReplicaState) string { return cmp.Or(r.Way, r.Device, "-") }

// peersText names the peers of a replica, the one that answers first.
func peersText(r scheduler.ReplicaState, names map[string]string) string {
	list := []string{names[r.Peer]}
	for _, s := range r.Shares {
		list = append(list, names[s.Peer])
	}
	return strings.Join(list, " + ")
}

// spreadText says where the layers of a replica lie, as on puts it: of a group with the
// peers, and how far those are that are not ready.
func spreadText(r scheduler.ReplicaState, names map[string]string, on func([]scheduler.DeviceMemory) string) string {
	if len(r.Shares) == 0 {
		return on(r.Memory)
	}
	list := []string{names[r.Peer] + " " + on(r.Memory)}
	for _, s := range r.Shares {
		text := names[s.Peer] + " " + on(s.Memory)
		switch {
		case s.State == scheduler.StateReady:
		case s.State == "":
			text += " (not heard of yet)"
		default:
			text += " (" + stageText(scheduler.ReplicaState{State: s.State, Stage: s.Stage, Done: s.Done, Total: s.Total}) + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// layersText says where the layers lie.
func layersText(memory []scheduler.DeviceMemory) string {
	var parts []string
	for _, d := range memory {
		if d.Layers > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", d.Device, d.Layers))
		}
	}
	return join(parts, "-")
}

// stageText is a replica's state, or how far it is on the way to being ready.
func stageText(r scheduler.ReplicaState) string {
	switch {
	case r.State != scheduler.StateLoading || r.Stage == "":
		return r.State
	case r.Total > 0 && r.Done >= 0:
		return fmt.Sprintf("%s %d%%", r.Stage, int(100*float64(r.Done)/float64(r.Total)))
	}
	return r.Stage
}

func parkedOn(m scheduler.ModelState, peer string) bool {
	return slices.ContainsFunc(m.Parked, func(p scheduler.ParkedState) bool { return p.Peer == peer })
}

// countText is a count that a peer was asked for.
func countText(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

func servedText(r scheduler.ReplicaState) string {
	switch {
	case r.LastServed != nil:
		return ago(*r.LastServed)
	case r.Waiting == nil:
		return "?"
	}
	return "never"
}

func residentText(r scheduler.ReplicaState) string {
	switch {
	case r.Resident != nil:
		return lasting(*r.Resident)
	case r.Waiting == nil:
		return "?"
	}
	return "-"
}

// printParked says where models are not tried any more, and how that is changed.
func printParked(w io.Writer, models []scheduler.ModelState, names map[string]string) {
	var lines []string
	for _, m := range models {
		for _, p := range m.Parked {
			lines = append(lines, fmt.Sprintf("  %s on %s: %s", m.Name, names[p.Peer], p.Text))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\nPARKED (relay model retry NAME tries again)\n%s\n", strings.Join(lines, "\n"))
	}
}
