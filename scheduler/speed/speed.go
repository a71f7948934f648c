package speed

import "time"

const (
	// Shorter samples say nothing: the clock, the first token and the cache weigh
	// too much in them.
	minTokens, minPrompt = 16, 64
	minTime              = 100 * time.Millisecond
	// weight is that of a new sample once there are some.
	weight = 0.2
	// Nothing works through less than a MiB of weights per second, or more than what
	// package ways takes for possible.
	slowest, fastest = 1 << 20, 1e15
)

// Rates is how fast a device is: the bytes of weights that it works through per
// second, for each token of an answer and of a prompt; 0 where that is not known.
type Rates struct {
	Decode  float64 `cbor:"1,keyasint,omitempty" json:"decode,omitempty"`
	Prefill float64 `cbor:"2,keyasint,omitempty" json:"prefill,omitempty"`
	// Samples is how many it was learnt from.
	Samples int `cbor:"3,keyasint,omitempty" json:"samples,omitempty"`
}

// Sample is what an engine reports of one request that it worked on alone.
type Sample struct {
	// Tokens were made in TokenTime, and Prompt tokens, those from the cache not
	// counted, read in PromptTime.
	Tokens, Prompt        int
	TokenTime, PromptTime time.Duration
	// Active is how many bytes of weights are read for each token.
	Active uint64
}

// Learn corrects the rates of the one device that computed a sample. The first
// sample is believed, later ones move what is known.
func (r Rates) Learn(s Sample) Rates {
	return r.learn(rate(s.Tokens, minTokens, s.TokenTime, s.Active), rate(s.Prompt, minPrompt, s.PromptTime, s.Active))
}

func (r Rates) learn(decode, prefill float64) Rates {
	next := Rates{mean(r.Decode, decode, r.Samples), mean(r.Prefill, prefill, r.Samples), r.Samples}
	if possible(decode) || possible(prefill) {
		next.Samples = min(r.Samples+1, 1<<20)
	}
	return next
}

// rate is in bytes per second; 0 where a sample says nothing.
func rate(tokens, least int, took time.Duration, active uint64) float64 {
	if tokens < least || took < minTime {
		return 0
	}
	return float64(active) * float64(tokens) / took.Seconds()
}

// possible is false for 0, for what no device does, and for what is no number.
func possible(rate float64) bool { return rate >= slowest && rate <= fastest }

// mean moves what is known towards what is new. The first few samples count
// alike; no later one counts less than its weight, so that a change is learnt.
func mean(known, new float64, samples int) float64 {
	switch {
	case !possible(new):
		return known
	case !possible(known):
		return new
	}
	return known + (new-known)*max(weight, 1/float64(max(0, samples)+1))
}
