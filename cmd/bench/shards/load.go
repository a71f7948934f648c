package main

import (
	"context"
	"errors"
	"math"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/llama/gguf"
	"relay/llama/tensorcache"
	"relay/scheduler"
)

// loading: what crosses the links while a group loads, but for the tensors of 10 MiB
// and under of its layers, which always do: as a share of the model.
func loading(ctx context.Context) error {
	return onMesh(ctx, 3, needsThree, 1, func(m *mesh) error {
		size, err := m.size()
		if err != nil {
			return err
		}
		var excess, took []float64
		for range rounds {
			if err := m.rest(ctx); err != nil {
				return err
			}
			d, err := m.spread(ctx, 3)
			if err != nil {
				return err
			}
			r, _ := m.group(ctx, m.peers[0])
			small, err := m.small(r)
			if err != nil {
				return err
			}
			crossed, ok := linkBytes(r)
			if !ok {
				return errors.New("the coordinator does not say what has crossed its links")
			}
			figure.Say("%.1f MB crossed the links, %.1f MB of it small tensors, of %.1f MB", float64(crossed)/1e6, float64(small)/1e6, float64(size)/1e6)
			excess = append(excess, math.Abs(float64(crossed)-float64(small))/float64(size))
			took = append(took, d.Seconds())
		}
		figure.Value("rpc_load_excess", figure.Median(excess), "of the model")
		figure.Value("shards_load_s", figure.Median(took), "s")
		return nil
	})
}

// rest unloads the model everywhere.
func (m *mesh) rest(ctx context.Context) error {
	if err := stage.Until(ctx, "somebody leads the model and unloads it", func() bool {
		return m.peers[0].Ask(ctx, "/v0/model/unload", map[string]string{"name": name}, nil) == nil
	}); err != nil {
		return err
	}
	return stage.Until(ctx, "nothing of the model runs", func() bool {
		is, err := m.sees(ctx, m.peers[0])
		return err == nil && len(is.Replicas) == 0
	})
}

// small is how many bytes the workers' tensors have that no cache is asked for.
func (m *mesh) small(r scheduler.ReplicaState) (n int64, err error) {
	header, err := gguf.Read(m.path)
	if err != nil {
		return 0, err
	}
	tensors, err := header.Tensors()
	if err != nil {
		return 0, err
	}
	for _, t := range tensors {
		for _, s := range r.Shares {
			if t.Layer >= s.From && t.Layer < s.From+s.Layers && t.Bytes <= tensorcache.Least {
				n += t.Bytes
			}
		}
	}
	return n, nil
}
