package scheduler

import (
	"math"
	"slices"

	"relay/scheduler/ways"
)

// speeds are how fast a model's replicas are, in tokens/s, in their order; 0 is unknown.
// What was measured counts. What was only predicted is corrected by how wrong that is where
// the model was measured: else those that were would lose, or win, by that alone.
func (v *view) speeds(m *modelView) (decode, prefill []float64) {
	n := len(m.replicas)
	measured, predicted := make([][2]float64, n), make([][2]float64, n)
	for i, r := range m.replicas {
		seen := v.seen[replicaKey{r.peer, m.uid}]
		if at := slices.IndexFunc(seen, func(s ways.Seen) bool { return string(s.Kind) == r.Way }); at >= 0 {
			measured[i] = [2]float64{seen[at].Decode, seen[at].Prefill}
		}
		if p, ok := v.placements[m.uid]; ok {
			way := p.way(r.peer, m.Model)
			predicted[i] = [2]float64{way.Decode, way.Prefill}
		}
	}
	return corrected(measured, predicted, 0), corrected(measured, predicted, 1)
}

func corrected(measured, predicted [][2]float64, which int) []float64 {
	wrong, both, any := 0.0, 0.0, false
	for i := range measured {
		is, was := measured[i][which], predicted[i][which]
		any = any || is > 0
		if is > 0 && was > 0 {
			wrong, both = wrong+math.Log(is/was), both+1
		}
	}
	factor := 1.0
	switch {
	case both > 0:
		factor = math.Exp(wrong / both)
	case any:
		factor = 0 // There is nothing to compare by.
	}
	list := make([]float64, len(measured))
	for i := range list {
		if list[i] = measured[i][which]; list[i] == 0 {
			list[i] = predicted[i][which] * factor
		}
	}
	return list
}
