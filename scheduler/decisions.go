package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/p2p/record"
	"relay/scheduler/setback"
)

// keptDecisions bounds the ring of decisions that status shows.
const keptDecisions = 64

// Decision is one thing that was decided, in a sentence.
type Decision struct {
	// At is when this peer learnt of it, by its own clock.
	At time.Time `json:"at"`
	// Model is the name of the model; empty where it is about none.
	Model string `json:"model"`
	Text  string `json:"text"`
}

// decisions keeps the latest ones. Every peer sees the same placements and
// replicas, and so the same sentences.
type decisions struct {
	mu      sync.Mutex
	list    []Decision
	placed  map[string]placementView
	refused map[string]record.Version
	parked  map[string]bool
}

func newDecisions() *decisions {
	return &decisions{placed: map[string]placementView{}, refused: map[string]record.Version{}, parked: map[string]bool{}}
}

// note adds what is new in a view.
func (d *decisions) note(v *view) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range v.models {
		if p, ok := v.placements[m.uid]; ok && d.placed[m.uid].version != p.version {
			was, known := d.placed[m.uid]
			d.placed[m.uid] = p
			if reworded := known && len(p.Peers) == 0 && sameOrder(was.Placement, p.Placement, false); !reworded && needsExplaining(m.shown, p) {
				d.add(m.shown, p.Text)
			}
		}
		for _, k := range v.placements[m.uid].Parked {
			key := pairID(k.Peer, m.uid+"/"+k.Way)
			if _, known := d.parked[key]; !known && v.peer[k.Peer] != nil {
				d.add(m.shown, fmt.Sprintf("model %q is parked on %s%s after %d failures in a row: %s (relay model retry %s)",
					m.shown, v.peer[k.Peer].Name, wayText(k.Way), k.Failures, k.Text, m.shown))
			}
			d.parked[key] = true
		}
		for _, r := range m.replicas {
			key := pairID(r.peer, m.uid)
			told := r.State == StateFailed || r.State == StateRefused || r.State == StateDraining && r.Message != ""
			if told && d.refused[key] != r.version {
				d.refused[key] = r.version
				d.add(m.shown, fmt.Sprintf("model %q on %s: %s", m.shown, v.peer[r.peer].Name, r.Message))
			}
		}
	}
	for key := range d.parked {
		peer, rest, _ := splitPair(key)
		uid, way, _ := splitPair(rest)
		if !slices.ContainsFunc(v.placements[uid].Parked, func(k setback.Parked) bool { return k.Peer == peer && k.Way == way }) {
			delete(d.parked, key)
		}
	}
	for uid := range d.placed {
		if v.model[uid] == nil {
			delete(d.placed, uid)
		}
	}
	for key := range d.refused {
		if _, uid, _ := splitPair(key); v.model[uid] == nil {
			delete(d.refused, key)
		}
	}
}

// needsExplaining says whether a placement is more than that all stays as it is.
func needsExplaining(name string, p placementView) bool {
	rest, stays := strings.CutPrefix(p.Text, fmt.Sprintf("model %q: stays on ", name))
	return !stays || p.Reason != "" || strings.ContainsAny(rest, ";(")
}

// wayText names the way that something is about, where it is about one.
func wayText(way string) string {
	if way == "" {
		return ""
	}
	return " (" + way + ")"
}

// say adds what this peer decided by itself.
func (d *decisions) say(model, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(model, text)
}

func (d *decisions) add(model, text string) {
	if text == "" || len(d.list) > 0 && d.list[len(d.list)-1].Text == text {
		return
	}
	d.list = append(d.list, Decision{time.Now(), model, text})
	if len(d.list) > keptDecisions {
		d.list = append(d.list[:0:0], d.list[len(d.list)-keptDecisions:]...)
	}
}

// Decisions lists the latest decisions, newest first.
func (s *Scheduler) Decisions() []Decision {
	s.decisions.mu.Lock()
	defer s.decisions.mu.Unlock()
	list := make([]Decision, 0, len(s.decisions.list))
	for i := len(s.decisions.list) - 1; i >= 0; i-- {
		list = append(list, s.decisions.list[i])
	}
	return list
}
