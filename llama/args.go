package llama

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds on what a model record may carry.
const (
	maxArgs     = 64
	maxArgBytes = 4096
)

// An argKind checks the value of an argument and says what it may be.
type argKind struct {
	// form is what the value may be, for people; empty where there is none.
	form  string
	check func(value string) bool
}

func bare() argKind { return argKind{} }

func number(low, high int) argKind {
	return argKind{fmt.Sprintf("a whole number from %d to %d", low, high), func(v string) bool {
		n, err := strconv.Atoi(v)
		return err == nil && n >= low && n <= high
	}}
}

func decimal(low, high float64) argKind {
	plain := regexp.MustCompile(`\A-?[0-9]{1,12}(\.[0-9]{1,12})?\z`)
	return argKind{fmt.Sprintf("a number from %g to %g", low, high), func(v string) bool {
		x, err := strconv.ParseFloat(v, 64)
		return err == nil && x >= low && x <= high && plain.MatchString(v)
	}}
}

func oneOf(values ...string) argKind {
	return argKind{"one of " + strings.Join(values, ", "), func(v string) bool { return slices.Contains(values, v) }}
}

func matching(form, pattern string) argKind {
	re := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
	return argKind{form, re.MatchString}
}

func jsonObject() argKind {
	return argKind{"a JSON object", func(v string) bool {
		var m map[string]any
		return json.Unmarshal([]byte(v), &m) == nil && m != nil
	}}
}

// allowedArgs are the engine arguments that a model's record may carry, by all
// their names: defaults of sampling, and how the model itself is run. Missing
// on purpose is whatever names a file, a host, a port, a key or a program,
// whatever decides where things run or how much memory they take beyond the
// plan, and whatever makes the engine log more.
func allowedArgs() map[string]argKind {
	cacheTypes := oneOf("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
	all := map[string]argKind{}
	add := func(k argKind, names ...string) {
		for _, n := range names {
			all[n] = k
		}
	}
	// Sampling.
	add(matching("names of samplers with ; between them", `[a-z_]{1,20}(;[a-z_]{1,20}){0,15}`), "--samplers")
	add(matching("letters of samplers", `[a-z]{1,16}`), "--sampler-seq", "--sampling-seq")
	add(number(-1, 1<<31-1), "-s", "--seed")
	add(decimal(0, 100), "--temp", "--temperature")
	add(number(0, 1<<20), "--top-k")
	add(decimal(0, 1), "--top-p", "--min-p", "--typical", "--typical-p", "--xtc-probability", "--xtc-threshold")
	add(decimal(-1, 100), "--top-nsigma", "--top-n-sigma")
	add(number(-1, 1<<20), "--repeat-last-n", "--dry-penalty-last-n")
	add(decimal(-10, 10), "--repeat-penalty", "--presence-penalty", "--frequency-penalty")
	add(decimal(0, 100), "--dry-multiplier", "--dry-base", "--dynatemp-range", "--dynatemp-exp", "--mirostat-lr", "--mirostat-ent")
	add(number(0, 1<<20), "--dry-allowed-length")
	add(decimal(-1, 1), "--adaptive-target", "--adaptive-decay")
	add(number(0, 2), "--mirostat")
	add(number(-1, 1<<20), "-n", "--predict", "--n-predict", "--keep")
	// Batches. Large ones also delay the end of a request whose client left.
	add(number(32, 8192), "-b", "--batch-size")
	// At 1 a prompt is computed as an answer is, token by token: slow, but to the last bit the same.
	add(number(1, 8192), "-ub", "--ubatch-size")
	// How busily threads wait for one another between operations.
	add(number(0, 100), "--poll")
	add(number(0, 1), "--poll-batch")
	// Attention, cache and position.
	add(oneOf("on", "off", "auto"), "-fa", "--flash-attn")
	add(cacheTypes, "-ctk", "--cache-type-k", "-ctv", "--cache-type-v")
	add(bare(), "--swa-full", "--context-shift", "--no-context-shift", "--cache-prompt", "--no-cache-prompt", "--repack", "-nr", "--no-repack")
	add(number(0, 1<<20), "--cache-reuse")
	add(decimal(0, 1), "-sps", "--slot-prompt-similarity")
	add(oneOf("none", "linear", "yarn"), "--rope-scaling")
	add(decimal(0, 1e9), "--rope-scale", "--rope-freq-base", "--rope-freq-scale")
	add(number(0, 1<<30), "--yarn-orig-ctx")
	add(decimal(-1, 1e4), "--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast")
	// Chat. A template by name, never a file and never text.
	add(bare(), "--jinja", "--no-jinja", "--skip-chat-parsing", "--no-skip-chat-parsing", "--prefill-assistant", "--no-prefill-assistant",
		"--reasoning-preserve", "--no-reasoning-preserve", "--spm-infill")
	add(matching("the name of a built-in template", `[a-z][a-z0-9.-]{0,31}`), "--chat-template")
	add(jsonObject(), "--chat-template-kwargs")
	add(oneOf("none", "deepseek", "deepseek-legacy", "auto"), "--reasoning-format")
	add(oneOf("on", "off", "auto"), "-rea", "--reasoning")
	add(matching("a level such as low", `[a-z]{1,16}`), "--reasoning-effort")
	add(number(-1, 1<<20), "--reasoning-budget")
	// Embeddings and images.
	add(oneOf("none", "mean", "cls", "last", "rank"), "--pooling")
	add(number(-1, 64), "--embd-normalize")
	add(number(1, 1<<16), "--image-min-tokens", "--image-max-tokens")
	return all
}

// ArgNames are the names of all arguments that CheckArgs lets pass, in order.
func ArgNames() []string { return slices.Sorted(maps.Keys(allowedArgs())) }

// CheckArgs says whether a model's record may carry these engine arguments:
// names with their values behind them, as separate strings or as "--name=value".
// The error names the first that may not be.
func CheckArgs(args []string) error {
	_, err := splitArgs(args)
	return err
}

// An argument is one option for the engine.
type argument struct {
	name, value string
	bare        bool // whether it has no value
}

// words is the argument as llama.cpp wants it.
func (a argument) words() []string {
	if a.bare {
		return []string{a.name}
	}
	return []string{a.name, a.value}
}

// splitArgs checks args and takes them apart.
func splitArgs(args []string) ([]argument, error) {
	if len(args) > 2*maxArgs {
		return nil, fmt.Errorf("%w: more than %d", ErrArgument, maxArgs)
	}
	allowed := allowedArgs()
	var out []argument
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		shown := printable(name, 60)
		if !strings.HasPrefix(name, "-") {
			return nil, fmt.Errorf("%w: %q is no argument's name: they begin with -", ErrArgument, shown)
		}
		kind, ok := allowed[name]
		if first, rest, spaced := strings.Cut(name, " "); !ok && spaced && allowed[first].check != nil {
			return nil, fmt.Errorf("%w: %q is one word with a space in it: write it %s=%s", ErrArgument, shown, first, printable(rest, 60))
		}
		if !ok {
			return nil, fmt.Errorf("%w: a model may not set %q; what may be set are sampling defaults, batches, attention, rope and chat options (relay model add --help lists them)", ErrArgument, shown)
		}
		if kind.check == nil {
			if joined {
				return nil, fmt.Errorf("%w: %s takes no value", ErrArgument, name)
			}
			out = append(out, argument{name: name, bare: true})
			continue
		}
		if !joined {
			if i++; i == len(args) {
				return nil, fmt.Errorf("%w: %s wants a value: %s", ErrArgument, name, kind.form)
			}
			value = args[i]
		}
		if len(value) > maxArgBytes || strings.ContainsAny(value, "\x00\r\n") || !kind.check(value) {
			return nil, fmt.Errorf("%w: %s wants %s, not %q", ErrArgument, name, kind.form, printable(value, 60))
		}
		out = append(out, argument{name: name, value: value})
	}
	if len(out) > maxArgs {
		return nil, fmt.Errorf("%w: more than %d", ErrArgument, maxArgs)
	}
	return out, nil
}
