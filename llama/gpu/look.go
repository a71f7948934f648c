package gpu

import "context"

// Env looks up a variable of the environment that the engine gets.
type Env func(name string) (value string, set bool)

// Probe is what a look at the GPUs needs.
type Probe struct {
	Ask Ask
	Env Env
	// Listed is the engine's list, and Said all that it wrote with it.
	Listed []Listed
	Said   string
	// NoEngine is why there is no list, as part of a sentence.
	NoEngine string
	// HostTotal and HostFree are the host's memory in bytes, which GPUs without
	// their own use; 0 where it is not known.
	HostTotal, HostFree uint64
	// Integrated says that GPUs of CUDA have no memory of their own here.
	Integrated bool
	Own        Own
}

// Look asks the tools and fits what they say to the engine's list, whose order
// is kept. GPUs that cannot be used come last. troubles are the tools that are
// there and do not work, a sentence each.
func (p Probe) Look(ctx context.Context) (gpus []GPU, troubles []string) {
	program, cards, err := askNvidia(ctx, p.Ask)
	if err != nil {
		troubles = append(troubles, err.Error())
	}
	var processes []process
	if wantsProcesses(cards, p.Own) {
		processes = askNvidiaProcesses(ctx, p.Ask, program)
	}
	others, err := askAMD(ctx, p.Ask)
	if err != nil {
		troubles = append(troubles, err.Error())
	}
	return p.fit(append(cards, others...), processes), troubles
}

// wantsProcesses: they cost a second call, and matter where relay's own engines
// are among them, or nothing else tells what is in use.
func wantsProcesses(cards []card, own Own) bool {
	for _, c := range cards {
		if c.unified || len(own.PIDs) > 0 {
			return true
		}
	}
	return false
}
