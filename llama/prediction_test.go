//go:build unix

package llama

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"relay/llama/demo"
	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
)

// randomModel writes a model with random weights and the demo model's vocabulary.
func randomModel(t testing.TB, m gguftest.Random) string {
	t.Helper()
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "random.gguf")
	if err := m.Write(path, from); err != nil {
		t.Fatal(err)
	}
	return path
}

// fill has every slot of an engine read a prompt that leaves room for a few
// tokens of an answer.
func fill(t testing.TB, p *Process, context, slots int) {
	t.Helper()
	var wg sync.WaitGroup
	for slot := range slots {
		wg.Go(func() {
			ids := make([]int, context-8)
			for i := range ids {
				ids[i] = 300 + (i*7+slot)%700
			}
			body, _ := json.Marshal(map[string]any{"prompt": ids, "n_predict": 4, "ignore_eos": true, "id_slot": slot})
			if status, answer := post(t, p, "/completion", string(body)); status != 200 {
				t.Errorf("slot %d: %d %.300s", slot, status, answer)
			}
		})
	}
	wg.Wait()
}

func TestExplore(t *testing.T) {
	e := engine(t)
	dense := gguftest.Random{Arch: "llama", Layers: 12, Width: 1024, KVWidth: 256, HeadWidth: 64, FeedForward: 2816, Vocab: 32000, Train: 32768}
	mk := func(ty uint32, f func(*gguftest.Random)) gguftest.Random {
		m := dense
		m.Type = ty
		if f != nil {
			f(&m)
		}
		return m
	}
	for _, c := range []struct {
		name       string
		m          gguftest.Random
		ctx, slots int
		args       []string
	}{
		{"q8", mk(gguftest.Q8_0, nil), 1024, 1, nil},
		{"f16", mk(gguftest.F16, nil), 1024, 2, nil},
		{"q4_0", mk(gguftest.Q4_0, nil), 1024, 1, nil},
		{"q4_0nr", mk(gguftest.Q4_0, nil), 1024, 1, []string{"--no-repack"}},
		{"q4_k", mk(gguftest.Q4_K, nil), 1024, 1, nil},
		{"moe q8", mk(gguftest.Q8_0, func(m *gguftest.Random) { m.Experts, m.Used, m.FeedForward, m.Layers = 8, 2, 1024, 8 }), 1024, 1, nil},
		{"moe q4", mk(gguftest.Q4_0, func(m *gguftest.Random) { m.Experts, m.Used, m.FeedForward, m.Layers = 8, 2, 1024, 8 }), 1024, 1, nil},
		{"swa q8", mk(gguftest.Q8_0, func(m *gguftest.Random) { m.Arch, m.Window, m.KVWidth = "gemma3", 256, 1024 }), 2048, 2, nil},
		{"swa q4", mk(gguftest.Q4_0, func(m *gguftest.Random) { m.Arch, m.Window, m.KVWidth = "gemma3", 256, 1024 }), 1024, 1, nil},
		{"swa full q8kv", mk(gguftest.Q8_0, func(m *gguftest.Random) { m.Arch, m.Window, m.KVWidth = "gemma3", 256, 1024 }), 1024, 2, []string{"--swa-full", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"}},
		{"q8 ub2048", mk(gguftest.Q8_0, nil), 2048, 1, []string{"-ub", "2048"}},
		{"q8 fa off", mk(gguftest.Q8_0, nil), 1024, 1, []string{"-fa", "off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Spec{Name: "m", Model: randomModel(t, c.m), Context: c.ctx, Slots: c.slots, RunDir: filepath.Join(t.TempDir(), "run"), Threads: 2, Args: c.args}
			p := start(t, e, s)
			u0, _ := p.Usage()
			fill(t, p, c.ctx, c.slots)
			u, err := p.Usage()
			if err != nil {
				t.Fatal(err)
			}
			info, _ := os.Stat(s.Model)
			out := fmt.Sprintf("\nEXP %s file %.1f rss0 %.1f rss %.1f priv %.1f load %v\n", c.name, mib(uint64(info.Size())), mib(u0.RSS), mib(u.RSS), mib(u.Private), p.Report().Load)
			sum := 0.
			for _, b := range p.Report().Buffers {
				out += fmt.Sprintf("EXP    %s model %.1f ctx %.1f comp %.1f\n", b.Device, mib(b.Model), mib(b.Context), mib(b.Compute))
				sum += mib(b.Model + b.Context + b.Compute)
			}
			h, err := gguf.Read(s.Model)
			if err != nil {
				t.Fatal(err)
			}
			m, err := h.Memory(c.ctx, c.slots)
			out += fmt.Sprintf("EXP    sum %.1f rest %.1f | predicted w %.1f kv %.1f c %.1f total %.1f (%.2f) %v\n", sum, mib(u.RSS)-sum, mib(m.Weights), mib(m.KV), mib(m.Compute), mib(m.Total), float64(m.Total)/float64(u.RSS), err)
			fmt.Print(out)
		})
	}
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }
