// This command makes relay-tiny, the language model that relay carries for
// demos and tests. It needs nothing but the Go standard library:
//
//	go run . train        learn from corpus.txt, and write model.bin
//	go run . test         ask the questions that were held out
//	go run . export       write relay-tiny.gguf
//
// Run it in its own folder. The model that relay carries is ../relay-tiny.gguf;
// `go run . test -model ../relay-tiny.gguf` asks that one.
//
// Training is several times as fast, with the same result, when the vector
// instructions are used (on amd64 with AVX2): GOEXPERIMENT=simd go run . train
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say train, test or export")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	var (
		corpusFile = flags.String("corpus", "corpus.txt", "training text")
		modelFile  = flags.String("model", "model.bin", "checkpoint between the commands; test also takes a .gguf file")
		ggufFile   = flags.String("o", "relay-tiny.gguf", "exported file")
		cfg        = Config{NormEps: 1e-5, RopeBase: 10000}
		o          options
	)
	flags.IntVar(&cfg.Vocab, "vocab", 1024, "pieces in the vocabulary, a multiple of 16")
	flags.IntVar(&cfg.Dim, "dim", 128, "width of the model")
	flags.IntVar(&cfg.Layers, "layers", 6, "transformer blocks")
	flags.IntVar(&cfg.Heads, "heads", 4, "attention heads")
	flags.IntVar(&cfg.KVHeads, "kvheads", 2, "key and value heads")
	flags.IntVar(&cfg.HeadDim, "headdim", 32, "width of a head")
	flags.IntVar(&cfg.FFN, "ffn", 192, "width of the feed-forward part")
	flags.IntVar(&o.steps, "steps", 2600, "training steps")
	flags.IntVar(&o.shredSteps, "shredsteps", 1000, "more steps, on answers that were cut off")
	flags.IntVar(&o.batch, "batch", 1024, "tokens in a step")
	flags.IntVar(&o.maxLen, "len", 384, "most tokens in a sequence")
	flags.Float64Var(&o.rate, "rate", 3e-3, "highest learning rate")
	flags.Uint64Var(&o.seed, "seed", 1, "of all randomness")
	flags.Parse(args[1:])

	c, err := readCorpus(*corpusFile)
	if err != nil {
		return err
	}
	if args[0] == "train" {
		ck := train(c, cfg, o, os.Stdout)
		shred(ck, c, o, os.Stdout)
		return ck.save(*modelFile)
	}
	ck, err := readCheckpoint(*modelFile)
	if err != nil {
		return err
	}
	switch args[0] {
	case "test":
		test(ck, c, os.Stdout)
		return nil
	case "export":
		return export(ck, *ggufFile)
	}
	return fmt.Errorf("unknown command %q", args[0])
}
