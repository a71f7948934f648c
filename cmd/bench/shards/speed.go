package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"relay/cmd/bench/figure"
)

// asks is how often each side is asked in a round.
const asks = 2

// speeds: how fast one peer answers that has the model whole, how fast two and three
// do together, and how fast such engines and servers are by plain TCP.
func speeds(ctx context.Context) error {
	return onMesh(ctx, 1, plenty, 1, func(one *mesh) error {
		if err := one.peers[0].Follow(ctx, "/v0/model/load", map[string]string{"name": name}, &struct{}{}); err != nil {
			return err
		}
		return onMesh(ctx, 2, plenty, 1, func(two *mesh) error {
			return onMesh(ctx, 3, needsThree, 1, func(three *mesh) error {
				solo, groups := side{name: "solo"}, []*pair{{mesh: two}, {mesh: three}}
				for round := range rounds {
					if err := solo.ask(ctx, one.peers[0].Door); err != nil {
						return err
					}
					for _, g := range groups {
						if err := g.round(ctx, round%2 == 1); err != nil {
							return err
						}
					}
				}
				solo.print()
				var ratios [][2]float64
				for _, g := range groups {
					ratios = append(ratios, g.print())
				}
				worst := slices.MinFunc(ratios, byRatio)
				figure.Ratio("tunnel_vs_tcp", worst[0], worst[1], "tokens/s")
				return nil
			})
		})
	})
}

// side is one of those that are asked in turn.
type side struct {
	name            string
	prefill, decode []float64
}

func (s *side) ask(ctx context.Context, door string) error {
	a, err := ask(ctx, door, long, written, silent)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.prefill, s.decode = append(s.prefill, a.prefill), append(s.decode, a.decode)
	return nil
}

func (s *side) print() {
	figure.Value(s.name+"_prefill", figure.Median(s.prefill), "tokens/s")
	figure.Value(s.name+"_decode", figure.Median(s.decode), "tokens/s")
}

// pair is a group and the same by plain TCP.
type pair struct {
	mesh      *mesh
	ours, tcp side
	turns     []float64    // Per token, to all workers.
	decodes   [][2]float64 // Of ours and of plain TCP, by round.
}

// round starts both anew, since where its memory lies makes one process faster than
// another that is the same, and asks them in turn.
func (p *pair) round(ctx context.Context, plainFirst bool) error {
	n := len(p.mesh.peers)
	p.ours.name, p.tcp.name = fmt.Sprint("shards", n), fmt.Sprint("tcp", n)
	if err := p.mesh.rest(ctx); err != nil {
		return err
	}
	if _, err := p.mesh.spread(ctx, n); err != nil {
		return err
	}
	tcp, err := startPlain(ctx, p.mesh)
	if err != nil {
		return err
	}
	defer tcp.stop()
	door := p.mesh.peers[0].Door
	for _, at := range []string{door, tcp.door} { // Both get warm.
		if _, err := ask(ctx, at, short, 8, silent); err != nil {
			return err
		}
	}
	before, _ := p.mesh.group(ctx, p.mesh.peers[0])
	sides := []func() error{func() error { return p.ours.ask(ctx, door) }, func() error {
		err := p.tcp.ask(ctx, tcp.door)
		if err != nil {
			err = fmt.Errorf("%w; it said at the end: %v", err, &tcp.said)
		}
		return err
	}}
	if plainFirst {
		slices.Reverse(sides)
	}
	for range asks {
		for _, ask := range sides {
			if err := ask(); err != nil {
				return err
			}
		}
	}
	after, _ := p.mesh.group(ctx, p.mesh.peers[0])
	p.turns = append(p.turns, float64(turnsOf(after)-turnsOf(before))/(asks*written))
	p.decodes = append(p.decodes, [2]float64{p.ours.last(), p.tcp.last()})
	return nil
}

// last is the mean decode of the last round.
func (s *side) last() (sum float64) {
	for _, v := range s.decode[len(s.decode)-asks:] {
		sum += v / asks
	}
	return sum
}

// print returns the decode of both, of all rounds the one with the median ratio: what
// else the machine does changes from one second to the next.
func (p *pair) print() [2]float64 {
	p.ours.print()
	figure.Value(p.ours.name+"_turns_per_token", figure.Median(p.turns), "round trips")
	p.tcp.print()
	slices.SortFunc(p.decodes, byRatio)
	figure.Say("through the mesh and by plain TCP, tokens/s, by their ratio: %.3g", p.decodes)
	middle := p.decodes[len(p.decodes)/2]
	figure.Ratio(fmt.Sprint("tunnel_vs_tcp_", len(p.mesh.peers)), middle[0], middle[1], "tokens/s")
	return middle
}

func byRatio(a, b [2]float64) int { return cmp.Compare(a[0]/a[1], b[0]/b[1]) }
