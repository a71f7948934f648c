package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"relay/scheduler/ways"
)

// fakeEngine pretends to be the engine of one peer. What runs takes the memory of
// its way from the moment it is started. Load takes two seconds.
type fakeEngine struct {
	mu         sync.Mutex
	build      string        // Its commit; "" means 80fb11a.
	fail       error         // Of the next starts.
	fails      int           // How many of them, at most; 0 means all.
	failOf     string        // The only model whose starts fail; "" means any.
	gpuFails   error         // Of starts that compute on a GPU.
	load       time.Duration // How long they take; 0 means loadTime.
	life       time.Duration // After which they die; 0 means never.
	running    map[*fakeProcess]bool
	started    int
	launched   []Launch
	last       Launch
	gpus       []Device
	foreign    map[string]uint64   // Memory of GPUs that other programs hold.
	blind      bool                // Its tools take what is starting for another program.
	reports    bool                // It says what it has reserved, an eighth more than its way says.
	patient    bool                // Processes do not notice that they have lost a worker.
	shareFails error               // Of rpc-servers.
	sharing    map[*fakeShare]bool // That run.
	stopping   func()              // Called when one is told to stop.
	used       map[string]uint64   // Memory of what runs or starts, by device.
	most       map[string]uint64
	may        map[string]uint64 // The most that may be taken, by device; nil is all.
	over       []string          // Starts that took more than that.
}

const loadTime = 2 * time.Second

// fetchTime is how long a pull takes.
const fetchTime = 3 * time.Second

func (e *fakeEngine) Build() Build {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Build{Commit: cmp.Or(e.build, "80fb11a"), RPC: "6.0.0"}
}

// Devices tells of the GPUs what the tools would.
func (e *fakeEngine) Devices(context.Context, Own, bool) ([]Device, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := slices.Clone(e.gpus)
	for i := range list {
		d := &list[i]
		if !d.Known {
			continue
		}
		d.Foreign, d.ForeignKnown = e.foreign[d.ID], true
		d.Free = d.Total - min(d.Total, e.used[d.ID]+d.Foreign)
		if e.blind {
			runs := uint64(0)
			for p := range e.running {
				runs += p.takes[d.ID]
			}
			d.Foreign += e.used[d.ID] - runs
		}
	}
	return list, nil
}

func (e *fakeEngine) Start(ctx context.Context, l Launch) (Process, error) {
	p := &fakeProcess{e: e, launch: l, takes: l.Way.Need(), done: make(chan struct{})}
	e.mu.Lock()
	e.last, e.launched = l, append(e.launched, l)
	var fail error
	if e.failOf == "" || e.failOf == l.Model.Name {
		fail = e.fail
	}
	if e.gpuFails != nil && l.Way.Kind != ways.CPU {
		fail = e.gpuFails
	}
	load, life := cmp.Or(e.load, loadTime), e.life
	e.started++
	if e.fails > 0 && e.started >= e.fails {
		e.fail = nil
	}
	if e.reports {
		for device := range p.takes {
			p.takes[device] += p.takes[device] / 8
		}
	}
	e.take(p.takes)
	e.mu.Unlock()
	lost := p.reachWorkers()
	select {
	case <-time.After(load):
	case <-lost:
		fail = errAborted
	case <-ctx.Done():
		fail = ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if fail != nil {
		e.giveBack(p.takes)
		p.hangUp()
		return nil, fail
	}
	patient := e.patient
	go func() {
		select {
		case <-lost:
			if !patient {
				p.end(errAborted)
			}
			<-p.done
		case <-p.done:
		}
		p.hangUp()
	}()
	if e.running == nil {
		e.running = map[*fakeProcess]bool{}
	}
	e.running[p] = true
	if life > 0 {
		time.AfterFunc(life, func() { p.end(errAborted) })
	}
	return p, nil
}

var errAborted = errors.New("signal: aborted")

// reachWorkers opens a connection to each worker, as llama.cpp does; lost is closed when
// one of them breaks.
func (p *fakeProcess) reachWorkers() (lost <-chan struct{}) {
	broken := make(chan struct{})
	if p.launch.Way.Group == nil {
		return broken
	}
	var once sync.Once
	for i := range p.launch.Way.Group.Shares {
		near, far := net.Pipe()
		p.links = append(p.links, near)
		go p.launch.Connected(context.Background(), i, far)
		go func() {
			_, _ = near.Read(make([]byte, 1))
			once.Do(func() { close(broken) })
		}()
	}
	return broken
}

func (p *fakeProcess) hangUp() {
	for _, c := range p.links {
		c.Close()
	}
}

// StartShare pretends an rpc-server.
func (e *fakeEngine) StartShare(ctx context.Context, l ShareLaunch) (ShareProcess, error) {
	p := &fakeShare{e: e, launch: l, takes: ways.Way{Parts: l.Parts}.Need(), done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shareFails != nil {
		return nil, e.shareFails
	}
	e.take(p.takes)
	if e.sharing == nil {
		e.sharing = map[*fakeShare]bool{}
	}
	e.sharing[p] = true
	return p, nil
}

// fakeShare is a pretended rpc-server.
type fakeShare struct {
	e      *fakeEngine
	launch ShareLaunch
	takes  map[string]uint64
	once   sync.Once
	done   chan struct{}
	err    error
}

func (p *fakeShare) end(err error) {
	p.once.Do(func() {
		p.e.mu.Lock()
		delete(p.e.sharing, p)
		p.e.giveBack(p.takes)
		p.err = err
		p.e.mu.Unlock()
		close(p.done)
	})
}

// Dial connects to what answers nothing, and ends with the process.
func (p *fakeShare) Dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		<-p.done
		far.Close()
	}()
	return near, nil
}

func (p *fakeShare) PID() int                       { return 0 }
func (p *fakeShare) Worked() (time.Duration, error) { return 0, errors.New("no process") }
func (p *fakeShare) Usage() (Usage, error)          { return Usage{}, errors.New("no process") }
func (p *fakeShare) Done() <-chan struct{}          { return p.done }
func (p *fakeShare) Err() error                     { return p.err }

func (p *fakeShare) Stop(context.Context) error {
	p.end(nil)
	return nil
}

// where is the device whose memory a device has.
func (e *fakeEngine) where(device string) string {
	if slices.ContainsFunc(e.gpus, func(d Device) bool { return d.ID == device && d.Unified }) {
		return ways.HostID
	}
	return device
}

func (e *fakeEngine) take(bytes map[string]uint64) {
	if e.used == nil {
		e.used, e.most = map[string]uint64{}, map[string]uint64{}
	}
	for device, n := range bytes {
		device = e.where(device)
		e.used[device] += n
		e.most[device] = max(e.most[device], e.used[device])
		if e.may != nil && e.used[device] > e.may[device] {
			e.over = append(e.over, fmt.Sprintf("%s: %s takes %d bytes of %s, then %d are used, and %d may be", time.Now().Format("15:04:05.000"), e.last.instance(), n, device, e.used[device], e.may[device]))
		}
	}
}

func (e *fakeEngine) giveBack(bytes map[string]uint64) {
	for device, n := range bytes {
		e.used[e.where(device)] -= n
	}
}

// peak is the most memory of a device that was taken at a time, in bytes.
func (e *fakeEngine) peak(device string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.most[device]
}

// failWith has the next starts fail; nil no longer.
func (e *fakeEngine) failWith(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = err
}

// others has other programs hold so much of a GPU.
func (e *fakeEngine) others(device string, bytes uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.foreign = map[string]uint64{device: bytes}
}

func (e *fakeEngine) starts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started
}

// kinds are the ways of what was started, in order.
func (e *fakeEngine) kinds() (list []ways.Kind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.launched {
		list = append(list, l.Way.Kind)
	}
	return list
}

func (e *fakeEngine) killAll() {
	for _, p := range e.working() {
		p.end(errors.New("signal: killed"))
	}

	for _, p := range e.processes() {
		p.end(errors.New("signal: killed"))
	}
}

// processes are those that run.
func (e *fakeEngine) processes() []*fakeProcess {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.running))
}

func (e *fakeEngine) count() int { return len(e.processes()) }

type fakeProcess struct {
	e      *fakeEngine
	launch Launch
	takes  map[string]uint64
	links  []net.Conn // To workers.
	once   sync.Once
	done   chan struct{}
	err    error

	// Of e.mu.
	usage   Usage // Zero where it does not tell.
	timings Timings
	stuck   bool                 // It answers nothing,
	works   func() time.Duration // and has computed for so long; nil where it does not tell.
}

// toProcess is the way to a process.
type toProcess struct {
	http.RoundTripper
	process *fakeProcess
}

func (p *fakeProcess) end(err error) {
	p.once.Do(func() {
		p.e.mu.Lock()
		delete(p.e.running, p)
		p.e.giveBack(p.takes)
		p.err = err
		p.e.mu.Unlock()
		close(p.done)
	})
}

func (p *fakeProcess) Client() http.RoundTripper   { return toProcess{noTripper(""), p} }
func (p *fakeProcess) Device() string              { return "CPU" }
func (p *fakeProcess) PID() int                    { return 0 }
func (p *fakeProcess) Check(context.Context) error { return nil }

// Alive answers once it is not stuck.
func (p *fakeProcess) Alive(ctx context.Context) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		p.e.mu.Lock()
		stuck := p.stuck
		p.e.mu.Unlock()
		if !stuck {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

func (p *fakeProcess) Worked() (time.Duration, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.works == nil {
		return 0, errors.New("no process")
	}
	return p.works(), nil
}

func (p *fakeProcess) Used() map[string]uint64 {
	if !p.e.reports {
		return nil
	}
	return maps.Clone(p.takes)
}

func (p *fakeProcess) Usage() (Usage, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.usage == (Usage{}) {
		return Usage{}, errors.New("no process")
	}
	return p.usage, nil
}

func (p *fakeProcess) Timings(context.Context) (Timings, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.timings, nil
}

func (p *fakeProcess) Done() <-chan struct{} { return p.done }
func (p *fakeProcess) Err() error            { return p.err }

func (p *fakeProcess) Stop(context.Context) error {
	p.e.mu.Lock()
	stopping := p.e.stopping
	p.e.mu.Unlock()
	if stopping != nil {
		stopping()
	}
	p.end(nil)
	return nil
}
