package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"relay/scheduler/ways"
)

// Resolve finds the model that a client means, by its name, uid, CID or alias.
func (s *Scheduler) Resolve(name string) (ServedModel, bool) {
	v, _ := s.latest()
	m := v.resolve(name)
	if m == nil {
		return ServedModel{}, false
	}
	return v.served(m), true
}

func (v *view) served(m *modelView) ServedModel {
	served := ServedModel{UID: m.uid, Name: m.shown, Context: m.Context, Created: m.Created, Kind: m.Kind, Unknown: m.Can == nil}
	served.Aliases, _ = v.aliasesOf(m)
	if other := v.fallback(m); other != nil {
		served.Fallback = other.shown
	}
	if m.Can != nil && m.Kind == "chat" { // The engine renders no template for the others.
		served.Tools, served.Images = m.Can.Tools, m.Can.Images
	}
	return served
}

// servable says whether a model could answer a request, now or once it is loaded. It
// cannot where nothing but a person changes that it runs nowhere, or where it does not
// run and nobody who is up has all of its files.
func (v *view) servable(m *modelView) bool {
	if slices.ContainsFunc(m.replicas, func(r replicaView) bool {
		return (r.State == StateReady || r.State == StateLoading) && v.peer[r.peer].alive()
	}) {
		return true
	}
	if p, ok := v.placements[m.uid]; ok && v.inForce(p) && len(p.Peers) == 0 && p.Final {
		return false
	}
	return slices.ContainsFunc(v.wholeHolders(m), func(id string) bool { return !v.peer[id].gone() })
}

// routeTo describes the way to a replica, without what carries a request there.
func (s *Scheduler) routeTo(v *view, m *modelView, r replicaView) Route {
	p := v.peer[r.peer]
	route := Route{Model: v.served(m), Mark: r.mark(), Peer: r.peer, PeerName: p.Name, Local: r.peer == s.self, Path: "direct", Hardware: v.hardware(m, r)}
	switch {
	case route.Local:
		route.Path = "local"
	case p.Relayed:
		route.Path = "relay"
	}
	return route
}

// maxHardware bounds what is said of a replica's hardware, in bytes.
const maxHardware = 100

// hardware is what a replica computes on, in printable ASCII: what its engine says, and
// the GPUs by the names that their makers gave them; of a group, its peers.
func (v *view) hardware(m *modelView, r replicaView) string {
	if r.Group != "" {
		names := []string{v.peer[r.peer].Name}
		for _, s := range v.sharesOf(m, r) {
			if p := v.peer[s.Peer]; p != nil {
				names = append(names, p.Name)
			}
		}
		return header("shards: " + strings.Join(names, ", "))
	}
	var names []string
	for _, part := range r.Parts {
		for _, d := range v.peer[r.peer].advert.Devices {
			if d.ID == part.Device && d.ID != ways.HostID && d.Name != "" {
				names = append(names, d.Name)
			}
		}
	}
	switch {
	case len(names) == 0:
		return header(r.Device)
	case r.Device == "":
		return header(strings.Join(names, ", "))
	}
	return header(fmt.Sprintf("%s: %s", r.Device, strings.Join(names, ", ")))
}

// header makes printable ASCII of a text from another machine, for the value of an
// HTTP header.
func header(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	return strings.TrimSpace(text[:min(len(text), maxHardware)])
}
