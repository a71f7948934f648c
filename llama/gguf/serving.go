package gguf

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"
)

// A Serving is how a model is served, as far as it counts for memory.
type Serving struct {
	// Kind is what the engine is started for; "" is what the header says.
	Kind Kind
	// Context is the tokens that one slot holds, Slots the requests served at
	// once: both at least 1, Slots at most 1024.
	Context, Slots int
	// Args are the engine arguments of the model's record, as llama.CheckArgs
	// lets them pass.
	Args []string
}

func (s Serving) validate() error {
	if s.Context < 1 || s.Slots < 1 || s.Slots > maxSlots || s.Context > math.MaxInt32/s.Slots {
		return fmt.Errorf("no engine serves %d slots of %d tokens", s.Slots, s.Context)
	}
	return nil
}

// flags are what of a model's engine arguments changes the memory it takes.
type flags struct {
	keys, values     parser.GGMLType // of the cache
	batch, ubatch    int             // tokens that are given and computed at once; 0 where nothing is said
	slowAttention    bool            // with all its products in memory
	wholeSWA, repack bool
}

// flags reads Args. What it does not know takes no memory; of several the last
// one counts, as it does to the engine.
func (s Serving) flags() flags {
	f := flags{keys: parser.GGMLTypeF16, values: parser.GGMLTypeF16, repack: true}
	for i := 0; i < len(s.Args); i++ {
		name, value, joined := strings.Cut(s.Args[i], "=")
		switch name {
		case "--swa-full":
			f.wholeSWA = true
			continue
		case "--repack", "-nr", "--no-repack":
			f.repack = name == "--repack"
			continue
		case "-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "-b", "--batch-size", "-ub", "--ubatch-size", "-fa", "--flash-attn":
		default:
			continue
		}
		if !joined {
			if i++; i == len(s.Args) {
				break
			}
			value = s.Args[i]
		}
		n, _ := strconv.Atoi(value) // 0 where it is no number
		n = min(max(n, 1), 1<<16)
		switch name {
		case "-ctk", "--cache-type-k":
			f.keys = cacheType(value)
		case "-ctv", "--cache-type-v":
			f.values = cacheType(value)
		case "-b", "--batch-size":
			f.batch = n
		case "-ub", "--ubatch-size":
			f.ubatch = n
		default:
			f.slowAttention = value == "off"
		}
	}
	return f
}

// cacheType is the type of a cache's entries by llama.cpp's name of it.
func cacheType(name string) parser.GGMLType {
	switch name {
	case "f32":
		return parser.GGMLTypeF32
	case "bf16":
		return parser.GGMLTypeBF16
	case "q8_0":
		return parser.GGMLTypeQ8_0
	case "q4_0":
		return parser.GGMLTypeQ4_0
	case "q4_1":
		return parser.GGMLTypeQ4_1
	case "iq4_nl":
		return parser.GGMLTypeIQ4_NL
	case "q5_0":
		return parser.GGMLTypeQ5_0
	case "q5_1":
		return parser.GGMLTypeQ5_1
	}
	return parser.GGMLTypeF16
}
