package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestGradients(t *testing.T) {
	cfg := Config{Vocab: 32, Dim: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 48, NormEps: 1e-5, RopeBase: 100}
	m := newModel(cfg, 32, 3)
	r := rand.New(rand.NewPCG(7, 7))
	for _, p := range m.params {
		for i := range p.w {
			p.w[i] += float32(r.NormFloat64() * 0.15)
		}
	}
	var seqs [][]int
	var targets []int
	for _, n := range []int{5, 18, 1} {
		s := make([]int, n)
		for i := range s {
			s[i] = r.IntN(cfg.Vocab)
			targets = append(targets, r.IntN(cfg.Vocab+4)-4)
		}
		seqs = append(seqs, s)
	}
	loss := func() float64 { m.forward(seqs); return m.loss(targets) }
	loss()
	m.backward()
	for _, p := range m.params {
		// The slope along the gradient itself must be its norm.
		grad, w := slices.Clone(p.grad), slices.Clone(p.w)
		norm := 0.0
		for _, g := range grad {
			norm += float64(g) * float64(g)
		}
		norm = math.Sqrt(norm)
		const eps = 0.01
		at := func(x float64) float64 {
			for i, g := range grad {
				p.w[i] = w[i] + float32(x*float64(g)/norm)
			}
			return loss()
		}
		slope := (at(eps) - at(-eps)) / (2 * eps)
		copy(p.w, w)
		if math.Abs(slope-norm) > 0.005*norm+1e-4 {
			t.Errorf("%s: slope %.5f, gradient %.5f", p.name, slope, norm)
		}
	}
}

func TestTokenizer(t *testing.T) {
	c, err := readCorpus("corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	tok := newTokenizer(learnPieces(c.texts(), 1024))
	if n := len(tok.pieces); n != 1024 {
		t.Errorf("%d pieces", n)
	}
	for _, s := range append(c.texts(), "", " ", "  two  spaces ", "line\nbreak", "Zoë: 3.5€, {\"a\":[1]}") {
		if got := tok.decode(tok.encode(s)); got != s {
			t.Errorf("%q became %q", s, got)
		}
		// Cutting at spaces first must not show.
		if s != "" && !slices.Equal(tok.encode(s), tok.encodeWord(s)) {
			t.Errorf("%q is cut differently as a whole", s)
		}
	}
}

// shipped is the model that relay carries.
const shipped = "../relay-tiny.gguf"

// The model that relay carries is what this program writes, byte by byte, and
// its vocabulary is that of the corpus beside it.
func TestShipped(t *testing.T) {
	ck, err := readGGUF(shipped)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "again.gguf")
	if err := export(ck, again); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(again); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was read is not written back as it was (%v)", err)
	}
	c, err := readCorpus("corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(learnPieces(c.texts(), ck.Config.Vocab), ck.Pieces) {
		t.Error("its pieces are not those of corpus.txt")
	}
}

// The model that relay carries answers as RESULTS.md says, computed here.
func TestShippedAnswers(t *testing.T) {
	ck, err := readGGUF(shipped)
	if err != nil {
		t.Fatal(err)
	}
	m, tok := ck.load(128), newTokenizer(ck.Pieces)
	for question, want := range map[string]string{
		"What is relay?": "relay is a peer-to-peer mesh of machines. It pools their GPU memory and serves language models behind one API.",
		"Who are you?":   "I am relay tiny, a very small language model for demos and tests of relay.",
	} {
		prompt := append([]int{idBegin, idUser}, tok.encode(question)...)
		answer := m.complete([][]int{append(prompt, idAssistant)}, 60)[0]
		if got := tok.decode(answer); got != want || answer[len(answer)-1] != idEnd {
			t.Errorf("%s %q", question, got)
		}
	}
}

func TestHalf(t *testing.T) {
	for h := range 0x7c00 {
		for _, h := range []uint16{uint16(h), uint16(h) | 0x8000} {
			if got := toHalf(fromHalf(h)); got != h {
				t.Fatalf("%#x became %#x", h, got)
			}
		}
	}
	for x, want := range map[float32]uint16{1: 0x3c00, 1.0 + 1.0/2048: 0x3c00, 1 + 3.0/2048: 0x3c02, 65504: 0x7bff, 65520: 0x7c00, 1e-8: 0} {
		if got := toHalf(x); got != want {
			t.Errorf("%g became %#x", x, got)
		}
	}
}
