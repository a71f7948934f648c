package sim

import (
	"fmt"
	"log/slog"
	"strings"
)

// Options say what the stand-in pretends to be. The zero value is usable: one
// slot on a free loopback port that answers as fast as it can.
type Options struct {
	// Listen is "host:port" (port 0: a free one) or, when it ends in ".sock",
	// the path of a unix socket, as llama-server takes it; a stale socket file
	// is replaced. Empty means 127.0.0.1:0. Only Run uses it.
	Listen string
	// Model is the name it answers with, what `--alias` is to llama-server.
	// Empty means "sim".
	Model string
	// Slots is how many requests are computed at a time, 1 to 4096; the rest
	// wait in the order they came. 0 means 1.
	Slots int
	// Context is the number of tokens that prompt and answer of one slot may
	// have together, at least 8. 0 means 4096.
	Context int
	// Batch is how many tokens of a prompt are read at a time; with
	// return_progress a stream tells of each. 0 means 2048.
	Batch int
	// PrefillRate and DecodeRate are the speeds of one slot in tokens per
	// second; 0 means no waiting at all.
	PrefillRate, DecodeRate float64
	// Slowdown is how much longer a slot takes for each other one that is busy,
	// as a share of what it takes alone, 0 to 1: with 0.05 and eight busy each
	// takes 1.35 times as long. 0 means that slots do not slow one another.
	Slowdown float64
	// Metrics says whether /metrics tells the counters.
	Metrics bool
	// Embeddings and Reranking open the routes for them; the routes for text
	// stay open, as llama-server's do.
	Embeddings, Reranking bool
	// Bytewise lets answers have many characters of several bytes, each byte of
	// which is a token by itself, though the text of all has another token.
	Bytewise bool
	// Width is the number of values of an embedding, 1 to 65536. 0 means 64.
	Width int
	// MaxInput is the tokens that one text may have that is embedded or ranked,
	// what --ubatch-size is to llama-server. 0 means 512.
	MaxInput int
	// Images says whether messages may have images, as with a projector. Each
	// takes ImageTokens of the context.
	Images bool
	// Scripts are what it says in chats that they match; see ParseScripts.
	Scripts []Script
	// Seed decides, with the ids so far, every next token.
	Seed uint64
	// Faults are in force from the start; see ParseFault.
	Faults []Fault
	// Log may be nil. It gets a line per request, never text.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Model == "" {
		o.Model = "sim"
	}
	if o.Slots == 0 {
		o.Slots = 1
	}
	if o.Context == 0 {
		o.Context = 4096
	}
	if o.Batch == 0 {
		o.Batch = 2048
	}
	if o.Width == 0 {
		o.Width = 64
	}
	if o.MaxInput == 0 {
		o.MaxInput = 512
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate names the setting at fault.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Slots < 1 || o.Slots > 4096:
		return fmt.Errorf("slots: %d is not from 1 to 4096", o.Slots)
	case o.Context < 8 || o.Context > 1<<24:
		return fmt.Errorf("context: %d tokens is not from 8 to %d", o.Context, 1<<24)
	case o.Batch < 1:
		return fmt.Errorf("batch: %d tokens is less than 1", o.Batch)
	case o.Width < 1 || o.Width > 1<<16:
		return fmt.Errorf("width: %d values are not from 1 to %d", o.Width, 1<<16)
	case o.MaxInput < 1:
		return fmt.Errorf("max input: %d tokens are less than 1", o.MaxInput)
	case !(o.PrefillRate >= 0 && o.PrefillRate <= 1e9):
		return fmt.Errorf("prefill rate: %v tokens/s is not from 0 (no waiting) to 1e9", o.PrefillRate)
	case !(o.DecodeRate >= 0 && o.DecodeRate <= 1e9):
		return fmt.Errorf("decode rate: %v tokens/s is not from 0 (no waiting) to 1e9", o.DecodeRate)
	case !(o.Slowdown >= 0 && o.Slowdown <= 1):
		return fmt.Errorf("slowdown: %v is not from 0 (none) to 1", o.Slowdown)
	case strings.ContainsAny(o.Model, "\x00\n\r"):
		return fmt.Errorf("model: %q is not a name", o.Model)
	}
	for _, f := range o.Faults {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	return validateScripts(o.Scripts)
}
