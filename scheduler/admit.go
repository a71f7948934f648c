package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"relay/scheduler/admission"
)

const (
	// maxQueue is how many requests may wait for the slots of one engine. Clients that
	// send some hundreds at a time get them all in, and where nobody says otherwise it is
	// half of what a peer serves for others at a time: the rest is left to other models.
	// One that waits holds its body, which the door bounds for all of them together, and
	// less than 100 KiB of streams and goroutines.
	maxQueue = 1024
	// queueTime is how long a request waits for a slot and for its turn on the cores. It
	// is half of what a door waits for the first token, so that there is time for the
	// answer, and the client hears of the queue and not of a token that did not come.
	queueTime = 5 * time.Minute
	// leastLater and mostLater bound what is said of when to ask again. A longer time is
	// less sure, and the libraries that clients have take no notice of a minute or more.
	leastLater = time.Second
	mostLater  = 45 * time.Second
)

// place is what a request has got of one of this peer's own replicas.
type place struct {
	// process is nil where no replica serves.
	process Process
	// load is how busy the replica is, this request included; also where there is none.
	load Load
	// leave gives the place back, with the error that ended the request. It must be
	// called where there is a process, and may be called again.
	leave func(error)
}

var (
	// errShut is why a request waits no more at an engine: another one may serve by now.
	errShut = errors.New("the engine lets nothing in")
	errFull = errors.New("too many requests wait")
	errLate = errors.New("the request has waited for as long as it may")
)

// asks is what a request asks of the queue.
func (w *worker) asks(want Want) admission.Request {
	return admission.Request{Key: want.Key, Batch: want.Batch, Continues: want.Continues, Slots: want.Answers, Came: w.now()}
}

// admit takes slots of this peer's own replica for a request, then its turn on the cores;
// so nobody who has the cores waits for slots. It may wait for both. Errors are of type
// *Error and say when to ask again.
func (w *worker) admit(ctx context.Context, want Want) (place, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, queueTime, errLate)
	defer cancel()
	request := w.asks(want)
	for {
		e := w.enter(want.UID)
		if e == nil {
			return place{}, nil
		}
		if want.Light {
			return w.placed(e, nil, func() {}), nil
		}
		if no := w.tooMany(e, request); no != nil {
			return place{}, no
		}
		slots, err := w.slots(waiting, e, request)
		yield := func() {}
		if err == nil {
			yield, err = w.turn(waiting, e)
		}
		if err == nil {
			return w.placed(e, slots, yield), nil
		}
		no, load := w.giveUp(e, slots, request, waiting, err)
		if !errors.Is(err, errShut) {
			return place{load: load}, no
		}
	}
}

// admitNow is admit for whoever does not wait; busy says that it would have to.
func (w *worker) admitNow(want Want) (p place, busy bool) {
	e := w.enter(want.UID)
	if e == nil {
		return place{}, false
	}
	if want.Light {
		return w.placed(e, nil, func() {}), false
	}
	request := w.asks(want)
	if w.tooMany(e, request) != nil {
		return place{}, true // Whoever waits hears why.
	}
	w.mu.Lock()
	slots, ok := e.queue.Try(request, w.now())
	w.mu.Unlock()
	yield := func() {}
	if ok && e.cores > 0 {
		yield, ok = w.s.cores.Try(e.name, e.cores)
	}
	if !ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.undo(e, slots)
		return place{}, true
	}
	return w.placed(e, slots, yield), false
}

// tooMany refuses a request of batch that asks for more slots of an engine than it may ever
// have, and then takes it off the engine.
func (w *worker) tooMany(e *engine, r admission.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	may := e.queue.May(r)
	if !r.Batch || e.queue.Slots() == 1 || r.Slots <= may {
		return nil
	}
	w.undo(e, nil)
	return &Error{Why: InvalidRequest, Retry: RetryNever, Message: fmt.Sprintf(
		"model %q answers %d requests at a time, of which a key of low priority leaves one to others: ask it for at most %d answers at once", e.model.Name, e.queue.Slots(), may)}
}

// loadOf is how busy this peer's own replica of a model is; zero where none serves.
func (w *worker) loadOf(uid string) Load {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[uid]; r != nil && r.engine != nil {
		return r.engine.busy()
	}
	return Load{}
}

// slots waits until a request has its slots of an engine. What it returns is to be given
// back whatever the error says.
func (w *worker) slots(ctx context.Context, e *engine, r admission.Request) (*admission.Place, error) {
	w.mu.Lock()
	p := e.queue.Ask(r, w.now())
	w.mu.Unlock()
	select {
	case <-p.Moved():
	case <-e.shut:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.isShut():
		return p, errShut
	case ctx.Err() != nil:
		return p, ctx.Err()
	case !p.Runs():
		return p, errFull
	}
	return p, nil
}

// turn waits for an engine's turn on the cores, where it computes there.
func (w *worker) turn(ctx context.Context, e *engine) (yield func(), err error) {
	if e.cores == 0 {
		return func() {}, nil
	}
	w.mu.Lock()
	e.queued++
	w.mu.Unlock()
	open, over := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { // Until the turn has come, or there is none to wait for.
		select {
		case <-e.shut:
			over()
		case <-open.Done():
		}
	})
	yield, err = w.s.cores.Enter(open, e.name, e.cores)
	over()
	watch.Wait()
	w.mu.Lock()
	e.queued--
	shut := e.isShut()
	w.mu.Unlock()
	switch {
	case !shut:
		return yield, err
	case err == nil:
		yield()
	}
	return nil, errShut
}

// placed is the place of a request that has all it needs; slots is nil for one that takes
// none.
func (w *worker) placed(e *engine, slots *admission.Place, yield func()) place {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slots != nil {
		w.computes(e)
	}
	var once sync.Once
	return place{process: e.process, load: e.busy(), leave: func(err error) {
		once.Do(func() {
			yield()
			w.leave(e, slots, err)
		})
	}}
}

// giveUp ends a request that did not get all it needs, because of err. It says what to do
// instead, and how busy the engine is.
func (w *worker) giveUp(e *engine, slots *admission.Place, r admission.Request, waiting context.Context, err error) (*Error, Load) {
	who := fmt.Sprintf("model %q on %s", e.model.Name, w.s.Mesh.NameOf(w.s.Mesh.Self()))
	w.mu.Lock()
	defer w.mu.Unlock()
	waitedForTurn := slots.Runs() && e.cores > 0
	w.undo(e, slots)
	no := &Error{Why: Busy, Retry: RetryLater, Err: err}
	if wait := e.queue.Wait(r, w.now()); wait > 0 {
		no.RetryAfter = min(max(wait, leastLater), mostLater)
	}
	switch {
	case errors.Is(err, errFull):
		no.Retry = RetryElsewhere
		no.Message = fmt.Sprintf("%s: %d requests wait for it already, which is as many as may", who, maxQueue)
	case waitedForTurn:
		no.Message = who + ": the cores that this peer lends are busy with another model"
	case errors.Is(context.Cause(waiting), errLate):
		no.Message = fmt.Sprintf("%s: it was busy with other requests for %s", who, queueTime)
	default:
		no.Message = who + ": it is busy with other requests"
	}
	return no, e.busy()
}

// busy is how busy an engine is; worker.mu is held.
func (e *engine) busy() Load {
	return Load{Running: e.queue.Running(), Waiting: e.queue.Waiting(), Slots: e.queue.Slots()}
}
