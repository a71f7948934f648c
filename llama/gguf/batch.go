package gguf

import (
	"cmp"
	"strings"
)

const (
	// batchDefault and ubatchDefault are what llama-server takes where nothing is
	// said.
	batchDefault  = 2048
	ubatchDefault = 512
	// leastBatch is the smallest batch that every build of llama.cpp takes.
	leastBatch = 32
	// maxEmbedBatch is the longest text to embed or to score, in tokens, where the
	// model's arguments say nothing: such a text must be computed at once. For each
	// token of it the engine keeps a number for each piece of the vocabulary, once
	// or twice: with a vocabulary of 250,000 pieces, 2 to 4 GiB for 2048 tokens, and
	// four times that for 8192. Most texts are cut into pieces far below either; who
	// needs longer ones says so with -ub.
	maxEmbedBatch = 2048
)

// Batch is how many tokens an engine is given at once, and how many of them it
// computes at once, for a model of that kind with that context of a slot and these
// engine arguments of its record. Both are at least 32 for models that embed or
// rerank: there they are the same, as a text is computed at once or not at all.
func Batch(kind Kind, context int, args []string) (batch, ubatch int) {
	f := Serving{Args: args}.flags()
	batch, ubatch = cmp.Or(f.batch, batchDefault), cmp.Or(f.ubatch, ubatchDefault)
	if kind.embeds() {
		switch {
		case f.batch == 0 && f.ubatch == 0:
			batch, ubatch = maxEmbedBatch, maxEmbedBatch
		case f.batch == 0:
			batch = ubatch
		}
		// A text is never longer than the context.
		batch = max(leastBatch, min(batch, ubatch, context))
	}
	return batch, min(batch, ubatch)
}

// embeds says whether the engine keeps something of every token of a batch.
func (k Kind) embeds() bool { return k == KindEmbed || k == KindRerank }

// headless says whether an architecture has no output layer to compute: encoders,
// and the models that llama.cpp has for embedding alone.
func headless(arch string) bool {
	switch arch {
	case "t5encoder", "gemma-embedding", "llama-embed":
		return true
	}
	return strings.Contains(arch, "bert")
}

// remembers says whether the engine keeps keys and values, or a state, of what a
// model of that architecture has read: those without do so in llama_model's
// create_memory, or build no graph with one.
func remembers(arch string) bool {
	switch arch {
	case "t5encoder", "gemma-embedding", "dream", "llada", "llada-moe", "rnd1", "wavtokenizer-dec":
		return false
	}
	return !strings.Contains(arch, "bert")
}

// outputs is the memory that an engine takes for what comes out of every token of
// a batch. llama-server asks for all of them where a model embeds or reranks: host
// has the numbers for the pieces of the vocabulary, which it keeps although nobody
// reads them, and the vectors; compute is what the output layer takes and gives, on
// the device where that is, when all before it is done.
func (h Header) outputs(batch int) (host, compute uint64) {
	const number = 4 // bytes
	logits, vectors := number*h.Vocab*uint64(batch), number*h.EmbeddingLength*uint64(batch)
	if !headless(h.Arch) {
		compute = logits + 2*vectors
	}
	return logits + vectors, compute
}
