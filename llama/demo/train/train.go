package main

import (
	"encoding/gob"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// A checkpoint is what train hands to test and export.
type checkpoint struct {
	Config  Config
	Pieces  []Piece
	Weights [][]float32 // in the order of model.params
	MaxLen  int         // of the sequences in training
	Seed    uint64
	Loss    float64
	Seconds float64
}

// options are the settings of a training run.
type options struct {
	steps, shredSteps, batch, maxLen int
	rate                             float64
	seed                             uint64
}

const (
	warmup      = 100 // steps
	beta1       = 0.9
	beta2       = 0.98
	weightDecay = 0.05
	clip        = 1.0 // of the norm of the gradient
)

// train makes a model from the corpus, and shred finishes it. The same options
// give the same model, bit by bit, on every machine of the same architecture.
func train(c *corpus, cfg Config, o options, log io.Writer) *checkpoint {
	pieces := learnPieces(c.texts(), cfg.Vocab)
	cfg.Vocab = len(pieces)
	m := newModel(cfg, 2*o.maxLen, o.seed)
	fmt.Fprintf(log, "%d pieces, %d parameters\n", cfg.Vocab, m.size())
	ck := &checkpoint{Config: cfg, Pieces: pieces, MaxLen: o.maxLen, Seed: o.seed}
	for _, p := range m.params {
		ck.Weights = append(ck.Weights, p.w)
	}
	ck.learn(m, c, o, false, log)
	return ck
}

// shred trains a model further, mainly to continue answers that were cut off
// at any place.
func shred(ck *checkpoint, c *corpus, o options, log io.Writer) {
	m := newModel(ck.Config, 2*o.maxLen, 0)
	for i, p := range m.params {
		copy(p.w, ck.Weights[i])
		ck.Weights[i] = p.w
	}
	o.steps, o.rate = o.shredSteps, o.rate/3
	ck.learn(m, c, o, true, log)
}

// learn runs one phase of the training.
func (ck *checkpoint) learn(m *model, c *corpus, o options, shred bool, log io.Writer) {
	start := time.Now()
	stream := uint64(2)
	if shred {
		stream = 3
	}
	docs := &sampler{c, newTokenizer(ck.Pieces), rand.New(rand.NewPCG(o.seed, stream)), o.maxLen, shred}
	var recent float64 // loss, averaged over about the last 50 steps
	for step := range o.steps {
		var seqs [][]int
		var targets []int
		for len(targets) < o.batch {
			d := docs.document()
			seqs, targets = append(seqs, d.tokens), append(targets, d.targets...)
		}
		m.forward(seqs)
		loss := m.loss(targets)
		m.backward()
		m.update(step+1, o.rate*schedule(step, o.steps))

		if recent += (loss - recent) / min(50, float64(step+1)); (step+1)%100 == 0 || step+1 == o.steps {
			fmt.Fprintf(log, "step %d  loss %.4f  %.0fs\n", step+1, recent, time.Since(start).Seconds())
		}
	}
	ck.Loss = recent
	ck.Seconds += time.Since(start).Seconds()
}

// schedule is the share of the highest learning rate to use: it rises in a
// line, and then falls along a cosine.
func schedule(step, steps int) float64 {
	if step < warmup {
		return float64(step+1) / warmup
	}
	return 0.01 + 0.99*(1+math.Cos(math.Pi*float64(step-warmup)/float64(steps-warmup)))/2
}

// update does one step of AdamW.
func (m *model) update(step int, rate float64) {
	sum := 0.0
	for _, p := range m.params {
		for _, g := range p.grad {
			sum += float64(g) * float64(g)
		}
	}
	scale := float32(min(1, clip/math.Sqrt(sum)))
	fix1 := float32(1 - math.Pow(beta1, float64(step)))
	fix2 := float32(1 - math.Pow(beta2, float64(step)))
	parallel(len(m.params), func(i int) {
		p := m.params[i]
		decay := float32(0)
		if p.rows > 1 {
			decay = float32(rate * weightDecay)
		}
		for j, g := range p.grad {
			g *= scale
			p.m1[j] = beta1*p.m1[j] + (1-beta1)*g
			p.m2[j] = beta2*p.m2[j] + (1-beta2)*g*g
			p.w[j] -= float32(rate)*(p.m1[j]/fix1)/(float32(math.Sqrt(float64(p.m2[j]/fix2)))+1e-8) + decay*p.w[j]
		}
	})
}

// load makes a model with the weights of ck, rounded to what export writes.
func (ck *checkpoint) load(maxLen int) *model {
	m := newModel(ck.Config, maxLen, 0)
	for i, p := range m.params {
		copy(p.w, ck.Weights[i])
		if p.rows > 1 {
			for j, w := range p.w {
				p.w[j] = fromHalf(toHalf(w))
			}
		}
	}
	return m
}

// test asks the held-out questions and reports the answers.
func test(ck *checkpoint, c *corpus, out io.Writer) {
	const maxLen = 512
	m, tok := ck.load(maxLen), newTokenizer(ck.Pieces)
	var prompts [][]int
	for _, e := range c.tests {
		p := append([]int{idBegin, idUser}, tok.encode(e.question)...)
		prompts = append(prompts, append(p, idAssistant))
	}
	good := 0
	for i, answer := range m.complete(prompts, 120) {
		e, text := c.tests[i], tok.decode(answer)
		mark := "WRONG"
		if text == e.answer && answer[len(answer)-1] == idEnd {
			mark, good = "ok", good+1
		}
		fmt.Fprintf(out, "%-5s %s\n      %s\n", mark, e.question, text)
	}
	fmt.Fprintf(out, "%d of %d held-out questions answered as intended\n", good, len(c.tests))
}

// complete extends each prompt by the most likely tokens, until the end token
// or for limit tokens, and returns what it added.
func (m *model) complete(prompts [][]int, limit int) [][]int {
	seqs := make([][]int, len(prompts))
	open := make([]int, len(prompts)) // the indices of the unfinished ones
	for i, p := range prompts {
		seqs[i], open[i] = slices.Clone(p), i
	}
	for range limit {
		var batch [][]int
		for _, i := range open {
			batch = append(batch, seqs[i])
		}
		m.forward(batch)
		var still []int
		for b, i := range open {
			last := m.spans[b].start + m.spans[b].n - 1
			row := m.logits[last*m.Vocab : (last+1)*m.Vocab]
			id := slices.Index(row, slices.Max(row))
			if seqs[i] = append(seqs[i], id); id != idEnd {
				still = append(still, i)
			}
		}
		if open = still; len(open) == 0 {
			break
		}
	}
	for i, p := range prompts {
		seqs[i] = seqs[i][len(p):]
	}
	return seqs
}

func (ck *checkpoint) save(name string) error {
	var b strings.Builder
	if err := gob.NewEncoder(&b).Encode(ck); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}

// readCheckpoint reads what save wrote, or a finished model.
func readCheckpoint(name string) (*checkpoint, error) {
	if strings.HasSuffix(name, ".gguf") {
		return readGGUF(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ck := new(checkpoint)
	return ck, gob.NewDecoder(f).Decode(ck)
}
