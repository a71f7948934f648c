package speed

import "relay/scheduler/ways"

// share is what a way has one device read for each token, in bytes.
type share struct {
	device string
	bytes  float64
}

// Share corrects the rates of all devices that a way computes on by a sample of
// it. Where they are several the sample does not say which of them was slow: each
// is corrected by the ratio of what was measured to what their rates before make
// of it, and one that is not known yet counts as the reference for its kind.
// The answer holds the way's devices alone; what it gives of them is not to be
// changed by whoever has before.
func Share(way ways.Way, shape ways.Shape, before map[string]Rates, s Sample) map[string]Rates {
	shares := reads(way, shape)
	sum := 0.0
	var decode, prefill float64 // seconds per token as they were to be expected
	for _, x := range shares {
		sum += x.bytes
		guess := assumed(x.device, before)
		decode += x.bytes / guess.Decode
		prefill += x.bytes / guess.Prefill
	}
	after := make(map[string]Rates, len(shares))
	for _, x := range shares {
		guess := assumed(x.device, before)
		after[x.device] = before[x.device].learn(
			guess.Decode*decode*rate(s.Tokens, minTokens, s.TokenTime, 1),
			guess.Prefill*prefill*rate(s.Prompt, minPrompt, s.PromptTime, 1))
	}
	return after
}
