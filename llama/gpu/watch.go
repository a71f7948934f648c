package gpu

import "time"

const (
	// everyWithGPU is how often a machine with a GPU is looked at: other programs
	// come and go on it.
	everyWithGPU = 5 * time.Second
	// everyWithout is how often one without is, and how often any engine is asked
	// for its list.
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
	known          bool
	looked, listed Moment
	build          string
	gpus           bool
}

// Due says whether to look now: 5 s after the last look where there is a GPU, a
// minute where there is none, and at once where the machine slept since then,
// its clock was set, or another build of the engine is there. list says whether
// the engine is asked for its list first, which costs more: at once where
// something changed, else each minute.
func (w *Watch) Due(now Moment, build string) (look, list bool) {
	if !w.known || build != w.build || jumped(w.looked, now) {
		return true, true
	}
	list = now.Mono-w.listed.Mono >= everyWithout
	return list || w.gpus && now.Mono-w.looked.Mono >= everyWithGPU, list
}

func jumped(from, to Moment) bool {
	passed := to.Mono - from.Mono
	ahead := to.Wall.Round(0).Sub(from.Wall.Round(0)) - passed
	return passed < 0 || ahead.Abs() > slept
}

// Looked notes that the machine was looked at, whether the engine was asked for
// its list, of which build, and whether there is a GPU.
func (w *Watch) Looked(now Moment, build string, listed, gpus bool) {
	if listed {
		w.listed = now
	}
	w.known, w.looked, w.build, w.gpus = true, now, build, gpus
}
