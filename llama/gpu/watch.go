package gpu

import "time"

const (
	// everyWithGPU is how often a machine with a GPU is looked at: other programs
	// come and go on it.
	everyWithGPU = 5 * time.Second
	// everyWithout is how often one without is.
	everyWithout = time.Minute
	// slept is how far the wall clock runs ahead of the monotonic one, which
	// stands still meanwhile, before the machine is held to have slept. Clocks
	// that are set right step less, or are no harm.
	slept = 5 * time.Second
)

// Moment is one moment on both clocks.
type Moment struct {
	// Wall is the time of day, Mono a clock that never goes back and may stand
	// still while the machine sleeps.
	Wall time.Time
	Mono time.Duration
}

// Watch decides when the machine's devices are looked at again. The zero value
// wants that at once.
type Watch struct {
	looked bool
	at     Moment
	build  string
	gpus   bool
}

// Due says whether to look now: 5 s after the last look where there is a GPU, a
// minute where there is none, and at once where the machine slept since then,
// its clock was set, or another build of the engine is there.
func (w *Watch) Due(now Moment, build string) bool {
	passed := now.Mono - w.at.Mono
	every := everyWithout
	if w.gpus {
		every = everyWithGPU
	}
	ahead := now.Wall.Round(0).Sub(w.at.Wall.Round(0)) - passed
	return !w.looked || build != w.build || passed >= every || passed < 0 || ahead.Abs() > slept
}

// Looked notes that the machine was looked at, with which build, and whether it
// has a GPU.
func (w *Watch) Looked(now Moment, build string, gpus bool) {
	*w = Watch{looked: true, at: now, build: build, gpus: gpus}
}
