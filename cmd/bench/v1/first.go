//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"relay/cmd/bench/figure"
)

const (
	// single is how often one client asks in a round.
	single = 200
	// tokens and decode make an answer of one second, for many clients: they are to
	// be open at a time rather than to be as many as this machine can take.
	tokens, decode = 10, 10
)

var prompts = []struct {
	name  string
	bytes int
}{{"1k", 1 << 10}, {"32k", 32 << 10}}

// firstBytes: the time from a request's beginning to the first byte of the
// answer's body, streamed. One client asks for answers that are computed at once. The
// plain names are for a prompt of 1 KiB.
func firstBytes(ctx context.Context) error {
	return onMesh(ctx, engine{}, func(m *mesh) error {
		for _, p := range prompts {
			if err := m.added(p.name+"_1", func(turn int, list map[*way][]float64) error {
				for range single { // The ways take turns at every request.
					for i := range m.all() {
						w := m.all()[(i+turn)%len(m.all())]
						first, err := w.ask(ctx, body(p.bytes, 1), nil)
						if err != nil {
							return err
						}
						list[w] = append(list[w], ms(first))
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// crowds: the same for many clients, each with an answer that lasts a second.
func crowds(ctx context.Context) error {
	return onMesh(ctx, engine{decode: decode}, func(m *mesh) error {
		for _, clients := range []int{16, 256} {
			for _, p := range prompts {
				if err := m.added(fmt.Sprintf("%s_%d", p.name, clients), func(turn int, list map[*way][]float64) error {
					for i := range m.all() {
						w := m.all()[(i+turn)%len(m.all())]
						firsts, err := w.crowd(ctx, clients, time.Second*tokens/decode/2, body(p.bytes, tokens))
						if err != nil {
							return err
						}
						list[w] = firsts
					}
					return nil
				}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// added prints what each way adds to the direct one, in ms, by rounds that each
// measure all of them; and for one client and 1 KiB under the plain names too.
func (m *mesh) added(of string, measure func(round int, list map[*way][]float64) error) error {
	p50, p99 := map[*way][]float64{}, map[*way][]float64{}
	var bases []float64
	for i := range rounds {
		list := map[*way][]float64{}
		if err := measure(i, list); err != nil {
			return err
		}
		base := list[m.direct]
		bases = append(bases, figure.Median(base))
		for _, w := range m.ways {
			p50[w] = append(p50[w], figure.Median(list[w])-figure.Median(base))
			p99[w] = append(p99[w], figure.Rank(list[w], 0.99)-figure.Rank(base, 0.99))
		}
	}
	figure.Say("%s: direct %.3f ms", of, figure.Median(bases))
	for _, w := range m.ways {
		if of == "1k_1" {
			figure.Value(w.name+"_added_p50_ms", figure.Median(p50[w]), "ms")
			figure.Value(w.name+"_added_p99_ms", figure.Median(p99[w]), "ms")
		}
		figure.Value(w.name+"_added_p50_ms_"+of, figure.Median(p50[w]), "ms")
		figure.Value(w.name+"_added_p99_ms_"+of, figure.Median(p99[w]), "ms")
	}
	return nil
}
