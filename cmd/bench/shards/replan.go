package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/scheduler"
)

const (
	// standing is how old a mesh is when something happens to it: peers look for each
	// other's open ports every five seconds until they have found one, and only then
	// tell at once that a peer is dead rather than silent.
	standing = 7 * time.Second
	// into is how many tokens of an answer are there when a peer is killed in the middle of it.
	into = 16
)

// parts is how long it took, in seconds, until there was an answer again; and in
// between until the loss was noticed, then until another group was placed, then until
// its engine was ready.
type parts struct{ all, detect, plan, load []float64 }

// replanning: kill -9 of a peer of a group in the middle of an answer, until the door
// of another gives the first token from the group of those that are left.
func replanning(ctx context.Context) error {
	worst := 0.0
	err := onMesh(ctx, 3, needsTwo, 3, func(m *mesh) error {
		if _, err := m.spread(ctx, 2); err != nil {
			return err
		}
		for _, c := range []struct {
			name string
			// of is the id of the peer that is killed.
			of func(r scheduler.ReplicaState) string
		}{
			{"worker", func(r scheduler.ReplicaState) string { return r.Shares[0].Peer }},
			{"coordinator", func(r scheduler.ReplicaState) string { return r.Peer }},
		} {
			var p parts
			for range rounds {
				if err := m.replan(ctx, c.of, &p); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			name := "replan_s_" + c.name
			figure.Value(name, figure.Median(p.all), "s")
			figure.Value(name+"_detect", figure.Median(p.detect), "s")
			figure.Value(name+"_plan", figure.Median(p.plan), "s")
			figure.Value(name+"_engine_load", figure.Median(p.load), "s")
			worst = max(worst, figure.Median(p.all))
		}
		return nil
	})
	if err == nil {
		figure.Value("replan_s", worst, "s")
	}
	return err
}

// replan kills one peer of the group, and starts it anew once there was an answer.
func (m *mesh) replan(ctx context.Context, of func(scheduler.ReplicaState) string, p *parts) error {
	if err := pass(ctx, standing-time.Since(m.met)); err != nil {
		return err
	}
	r, ok := m.group(ctx, m.peers[0])
	if !ok {
		return errors.New("no group serves")
	}
	is, err := m.sees(ctx, m.peers[0])
	if err != nil {
		return err
	}
	victim := m.Peer(m.names[of(r)])
	var door *stage.Peer // Of who has no part in the group.
	var left []*stage.Peer
	for _, q := range m.peers {
		if q != victim {
			left = append(left, q)
		}
		if id := m.ids[q.Name]; id != r.Peer && id != r.Shares[0].Peer {
			door = q
		}
	}
	leader := "nobody"
	if is.Leader != nil {
		leader = m.names[is.Leader.Peer]
	}
	var began time.Time
	var broken error
	if _, err := ask(ctx, door.Door, short, 4*written, func(nth int) {
		if nth == into {
			began = time.Now()
			broken = m.Kill(victim)
		}
	}); began.IsZero() {
		return fmt.Errorf("no answer to break off: %w", err)
	} else if broken != nil {
		return broken
	}
	first, err := m.firstToken(ctx, door)
	if err != nil {
		return err
	}
	placed, err := stage.Find(ctx, left, began, `msg=placed .*model=`+name+`\b.*layers`)
	if err != nil {
		return err
	}
	id := m.ids[victim.Name]
	noticed := `msg="peer is gone".* peer=` + id[len(id)-8:] + `\b`
	if leader != victim.Name { // Whoever leads next has to miss it; else it is enough that the engine ended.
		noticed += `|msg="replica failed" .*model=` + name + `\b`
	}
	seen, err := stage.Find(ctx, left, began, noticed)
	if err != nil {
		return err
	}
	ready, err := stage.Find(ctx, left, placed.At, `msg=ready .*model=`+name+`\b`)
	if err != nil {
		return err
	}
	figure.Say("%s killed, %s led: noticed %s, placed %s, ready %s, first token %s; %s", victim.Name, leader,
		seen.At.Sub(began), placed.At.Sub(began), ready.At.Sub(began), first.Sub(began), placed.Text)
	if seen.At.After(placed.At) {
		seen = placed // Who is only suspect is planned without: nothing is logged of that.
	}
	p.all = append(p.all, first.Sub(began).Seconds())
	p.detect = append(p.detect, seen.At.Sub(began).Seconds())
	p.plan = append(p.plan, placed.At.Sub(seen.At).Seconds())
	p.load = append(p.load, ready.At.Sub(placed.At).Seconds())
	m.peers = left
	if err := m.up(ctx, victim.Name); err != nil {
		return err
	}
	return m.meet(ctx)
}

// firstToken asks until an answer comes, and returns when its first token did.
func (m *mesh) firstToken(ctx context.Context, door *stage.Peer) (first time.Time, err error) {
	err = stage.Until(ctx, door.Name+" answers", func() bool {
		first = time.Time{}
		_, err := ask(ctx, door.Door, short, 2, func(nth int) {
			if nth == 1 {
				first = time.Now()
			}
		})
		if err != nil {
			figure.Say("no answer: %v", err)
		}
		return err == nil && !first.IsZero()
	})
	return first, err
}

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
