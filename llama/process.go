package llama

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	// graceDefault is how long Stop lets the engine end by itself.
	graceDefault = 5 * time.Second
	// drainTime is how long the end of a log is waited for after the process
	// that writes it is gone.
	drainTime = 2 * time.Second
)

// Process is a running engine, with its shim. It is gone, with all it started,
// when Done is closed. Its methods may be called at any time by anybody.
type Process struct {
	name    string
	kind    Kind
	devices []string
	metrics bool // whether the engine was asked to keep counters
	client  *client
	journal *journal
	log     *slog.Logger
	place   socketPlace
	guard   Guard         // the zero value for an engine without RPC
	network *network      // of its own; nil where it has none
	links   *links        // to its Remotes
	load    time.Duration // set before anybody sees the Process

	cmd    *exec.Cmd
	events sync.Once
	done   chan struct{}

	mu       sync.Mutex
	stdin    io.WriteCloser
	stopping bool
	pid      int
	sandbox  SandboxStatus
	readOnly bool  // whether its folder of tensors was proven so
	last     event // the last that the shim told of an end
	err      error // set before done is closed
}

func newProcess(s Spec, at endpoint, place socketPlace, file *logFile) *Process {
	log := s.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Process{
		name: s.Name, kind: s.Kind, devices: s.Devices, client: newClient(at, max(1, s.Slots)), journal: newJournal(file), log: log, place: place,
		links: newLinks(s, log), done: make(chan struct{}),
	}
}

// start starts the shim and has it start the engine. It returns when the engine
// runs; where it fails, everything is gone again.
func (p *Process) start(ctx context.Context, cmd *exec.Cmd, o order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if len(line) >= maxOrder {
		return fmt.Errorf("%w: its command line is too long", ErrSpec)
	}
	cmd.Env = engineEnv(os.Environ(), o.Dir, o.Dir) // the shim needs no more than its engine
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close())
	}
	stderr, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), stdout.Close(), outW.Close())
	}
	cmd.Stdout, cmd.Stderr = outW, errW
	if p.network != nil {
		p.network.putIn(cmd)
	}
	err = cmd.Start()
	if p.network != nil {
		p.network.started()
	}
	closeErr := errors.Join(outW.Close(), errW.Close())
	if err != nil {
		p.journal.file.close()
		return errors.Join(fmt.Errorf("%w: its shim does not start: %w", ErrEngine, err), stdin.Close(), stdout.Close(), stderr.Close())
	}
	p.cmd, p.stdin = cmd, stdin
	started := make(chan event, 1)
	go p.run(stdout, stderr, started)
	if _, err := stdin.Write(append(line, '\n')); err != nil || closeErr != nil {
		p.kill()
	}
	select {
	case e := <-started:
		if e.Started != 0 {
			return nil
		}
		<-p.done
		return p.Err()
	case <-ctx.Done():
		p.abort()
		return fmt.Errorf("%w: its shim has not started it", errNotReady)
	}
}

// run owns everything of the process until it is gone.
func (p *Process) run(stdout, stderr *os.File, started chan<- event) {
	var readers sync.WaitGroup
	readers.Go(func() { p.journal.read(stderr) })
	readers.Go(func() { p.readEvents(stdout, started) })
	err := p.cmd.Wait()
	p.afterShim()
	p.ownNetworkEnds()
	// With shim and engine the writers of both pipes are gone. Something that
	// escaped with one of them must not hold this up.
	drained := make(chan struct{})
	go func() { readers.Wait(); close(drained) }()
	timer := time.NewTimer(drainTime)
	select {
	case <-drained:
		timer.Stop()
	case <-timer.C:
	}
	closeErr := errors.Join(stdout.Close(), stderr.Close())
	<-drained
	p.client.CloseIdleConnections()
	p.mu.Lock()
	_ = p.stdin.Close() // nobody reads it any more
	if !p.stopping {
		p.err = p.failureLocked(err)
	}
	stopped := p.stopping
	p.mu.Unlock()
	p.journal.file.close()
	if p.place.dir != "" {
		_ = os.RemoveAll(p.place.dir) // the shim mostly was faster
		_ = removeIfEmpty(filepath.Dir(p.place.dir))
	}
	if closeErr != nil {
		p.log.Debug("engine's pipes", "model", p.name, "err", closeErr)
	}
	if stopped {
		p.log.Info("engine stopped", "model", p.name)
	} else {
		p.log.Warn("engine ended", "model", p.name, "err", p.err)
	}
	close(p.done)
}

// ownNetworkEnds ends what relay has of the process's network, and waits for those
// that have its connections.
func (p *Process) ownNetworkEnds() {
	p.links.close()
	if p.network != nil {
		p.network.close()
	}
}

// readEvents takes in what the shim reports, and sends on started once.
func (p *Process) readEvents(r io.Reader, started chan<- event) {
	in := bufio.NewScanner(r)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue // not from the shim
		}
		p.mu.Lock()
		if e.Started != 0 {
			p.pid, p.sandbox, p.readOnly = e.Started, e.Sandbox, e.ReadOnly
		} else {
			p.last = e
		}
		p.mu.Unlock()
		p.events.Do(func() { started <- e })
	}
	p.events.Do(func() { started <- event{} })
	_, _ = io.Copy(io.Discard, r) // a line too long for the scanner
}

// afterShim kills what an engine's shim left behind, should it have been killed
// itself before it could tell how the engine ended.
func (p *Process) afterShim() {
	_ = killGroup(p.cmd.Process)
	p.mu.Lock()
	pid, told := p.pid, p.last.Exited != ""
	p.mu.Unlock()
	if pid == 0 || told {
		return
	}
	if engine, err := os.FindProcess(pid); err == nil {
		_ = killGroup(engine)
	}
}

// failureLocked says why the process is gone, after its shim ended with shimErr.
func (p *Process) failureLocked(shimErr error) error {
	switch {
	case p.last.NoSandbox:
		return fmt.Errorf("%w: %s", ErrSandbox, p.last.Failed)
	case p.last.Failed != "":
		return fmt.Errorf("%w: it cannot be started: %s", ErrEngine, p.last.Failed)
	}
	how := p.last.Exited
	if how == "" {
		how = "its shim ended"
		if shimErr != nil {
			how += ": " + shimErr.Error()
		}
	}
	kind := ErrEngine
	if p.last.Aborted {
		kind = ErrAborted
	}
	if cause := p.journal.cause(); cause != "" {
		return fmt.Errorf("%w: it ended by itself (%s): %s", kind, how, cause)
	}
	return fmt.Errorf("%w: it ended by itself (%s)", kind, how)
}

// Client reaches the engine over connections that are kept alive: only path and
// query of a request's URL count. It works until the process ends.
func (p *Process) Client() http.RoundTripper { return p.client }

// Done is closed when engine and shim are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why the process ended; nil while it runs, and when Stop ended it.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// PID is the engine's process id.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// cached says whether an RPC server was started with its folder of tensors.
func (p *Process) cached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readOnly
}

// LogTail is the last lines of the engine's log, oldest first. It never holds
// text of requests or answers.
func (p *Process) LogTail() []string { return p.journal.lines() }

// Report is what the engine said about itself while it loaded.
func (p *Process) Report() Report {
	p.mu.Lock()
	sandbox := p.sandbox
	p.mu.Unlock()
	r := Report{Devices: p.devices, Load: p.load, Sandbox: sandbox, Guard: p.guard}
	r.Layers, r.Offloaded, r.Buffers = p.journal.facts()
	if !r.GPU() && len(p.links.ports) == 0 {
		r.Offloaded = 0 // llama.cpp also counts what it would have put on a GPU
	}
	for _, port := range p.links.ports {
		r.Remotes = append(r.Remotes, r.remote(port))
	}
	return r
}

// Stop ends the process: it asks the engine to end, kills it where it has not
// after five seconds or when ctx is over, and returns when everything is gone.
// The error is ctx's where the engine had to be killed for it.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	if first {
		// A pipe to a process that is ending anyway may be broken.
		_, _ = fmt.Fprintf(p.stdin, "stop %d\n", graceDefault.Milliseconds())
	}
	p.mu.Unlock()
	timer := time.NewTimer(graceDefault + drainTime)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	p.kill()
	<-p.done
	return ctx.Err()
}

// abort ends a process that nobody has seen yet, and waits until it is gone.
func (p *Process) abort() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.kill()
	<-p.done
}

// kill ends shim and engine at once: by the end of the shim's input, and where
// the shim does not react to that, by killing it.
func (p *Process) kill() {
	p.mu.Lock()
	err := p.stdin.Close()
	p.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		p.log.Debug("engine's shim", "model", p.name, "err", err)
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		// Its child dies with it, or is killed by afterShim.
		_ = p.cmd.Process.Kill()
	}
}
