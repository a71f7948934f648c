package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"relay/cmd/bench/figure"
)

// side is one of those that are asked in turn.
type side struct {
	name    string
	door    string
	answers []answer
}

// speeds: how fast one peer answers that has the model whole, how fast two and three
// do together, and how fast the same engines and servers are by plain TCP.
func speeds(ctx context.Context) error {
	return onMesh(ctx, 1, plenty, 1, func(one *mesh) error {
		if err := one.peers[0].Follow(ctx, "/v0/model/load", map[string]string{"name": name}, &struct{}{}); err != nil {
			return err
		}
		return onMesh(ctx, 2, plenty, 1, func(two *mesh) error {
			return onMesh(ctx, 3, needsThree, 1, func(three *mesh) error {
				sides := []*side{{name: "solo", door: one.peers[0].Door}}
				for i, m := range []*mesh{two, three} {
					if _, err := m.spread(ctx, i+2); err != nil {
						return err
					}
					p, err := startPlain(ctx, m)
					if err != nil {
						return err
					}
					defer p.stop()
					sides = append(sides, &side{name: fmt.Sprint("shards", i+2), door: m.peers[0].Door}, &side{name: fmt.Sprint("tcp", i+2), door: p.door})
				}
				return compare(ctx, sides, map[string]*mesh{"shards2": two, "shards3": three})
			})
		})
	})
}

// compare asks all sides in turn, now from one end and now from the other, and prints
// how fast they were.
func compare(ctx context.Context, sides []*side, groups map[string]*mesh) error {
	turns := map[string]uint64{}
	for round := range rounds + 1 { // In the first one all get warm.
		for _, s := range sides {
			a, err := ask(ctx, s.door, written, silent)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 {
				s.answers = append(s.answers, a)
			}
		}
		slices.Reverse(sides)
		if round > 0 {
			continue
		}
		for name, m := range groups {
			r, _ := m.group(ctx, m.peers[0])
			turns[name] = turnsOf(r)
		}
	}
	slices.SortFunc(sides, func(a, b *side) int { return cmp.Compare(a.name, b.name) })
	byName := map[string]*side{}
	for _, s := range sides {
		byName[s.name] = s
		var prefill, decode []float64
		for _, a := range s.answers {
			prefill, decode = append(prefill, a.prefill), append(decode, a.decode)
		}
		figure.Value(s.name+"_prefill", figure.Median(prefill), "tokens/s")
		figure.Value(s.name+"_decode", figure.Median(decode), "tokens/s")
		if m := groups[s.name]; m != nil {
			r, _ := m.group(ctx, m.peers[0])
			figure.Value(s.name+"_turns_per_token", float64(turnsOf(r)-turns[s.name])/(rounds*written), "round trips")
		}
	}
	worst := [2]float64{1, 0}
	for _, n := range []string{"2", "3"} {
		pair := middle(byName["shards"+n].answers, byName["tcp"+n].answers)
		figure.Ratio("tunnel_vs_tcp_"+n, pair[0], pair[1], "tokens/s")
		if worst[1] == 0 || pair[0]/pair[1] < worst[0]/worst[1] {
			worst = pair
		}
	}
	figure.Ratio("tunnel_vs_tcp", worst[0], worst[1], "tokens/s")
	return nil
}

// middle is the decode of two sides, of all rounds the one with the median ratio: what
// else the machine does changes from one second to the next.
func middle(ours, base []answer) [2]float64 {
	var pairs [][2]float64
	for i := range ours {
		pairs = append(pairs, [2]float64{ours[i].decode, base[i].decode})
	}
	slices.SortFunc(pairs, func(a, b [2]float64) int { return cmp.Compare(a[0]/a[1], b[0]/b[1]) })
	figure.Say("through the mesh and by plain TCP, tokens/s, by their ratio: %.3g", pairs)
	return pairs[len(pairs)/2]
}
