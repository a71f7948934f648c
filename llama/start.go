package llama

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	// A model may take this long to be ready, and this much longer for each GiB
	// of its files: from a slow disk a large one takes minutes.
	readyBase   = 5 * time.Minute
	readyPerGiB = 20 * time.Second
	// readLag is how far the reading of an engine's log may be behind. Not all
	// builds say what is waited for.
	readLag = time.Second
)

// Start starts an engine process through the shim and returns when it has
// produced a token (an embedding, a score). ctx bounds the start only: the
// process lives until Stop, or until relay ends.
//
// The error is ErrSpec or ErrArgument where s makes no sense, ErrFile where a
// file of the model is not there, ErrState where RunDir cannot be used,
// ErrSandbox where the required sandbox cannot be had, ErrTimeout where the
// engine was not ready in its time, and ErrEngine for all else, also where it
// was placed on GPUs and computes on the CPU; then it has the
// line of the engine's log that says most. Nothing is left behind by a failed
// start but the log in RunDir.
func (e Engine) Start(ctx context.Context, s Spec) (*Process, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Kind == "" {
		s.Kind = KindChat
	}
	if s.Sandbox == "" {
		s.Sandbox = SandboxAuto
	}
	budget, err := readyBudget(s)
	if err != nil {
		return nil, err
	}
	if _, err := CheckSandbox(s.Sandbox); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, budget, ErrTimeout)
	defer cancel()
	began := time.Now()
	p, err := e.launch(ctx, s)
	if err != nil {
		return nil, late(ctx, s.Name, budget, err)
	}
	err = p.awaitReady(ctx, s.Kind)
	if err == nil {
		p.load = time.Since(began)
		// What it wrote about its start may still be in the pipe.
		timer := time.NewTimer(readLag)
		select {
		case <-p.journal.listening:
		case <-p.Done():
		case <-timer.C:
		}
		timer.Stop()
		if err := p.checkPlacement(s); err != nil {
			p.abort()
			return nil, fmt.Errorf("model %q: %w", s.Name, err)
		}
		p.journal.serving()
		p.log.Info("engine ready", "model", s.Name, "pid", p.PID(), "load_s", p.load.Seconds(), "sandbox", p.Report().Sandbox.Text)
		return p, nil
	}
	p.abort()
	return nil, late(ctx, s.Name, budget, err)
}

// late says of a start that was not ready whether its time was over or nobody
// waits any more. Other errors it leaves alone.
func late(ctx context.Context, name string, budget time.Duration, err error) error {
	if !errors.Is(err, errNotReady) {
		return fmt.Errorf("model %q: %w", name, err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ErrTimeout) {
		return fmt.Errorf("model %q: its start was given up: %w", name, cause)
	}
	return fmt.Errorf("model %q: %w (%v): %w", name, ErrTimeout, budget.Round(time.Second/10), err)
}

// readyBudget is how long s may take to be ready. It looks at the files, and
// so finds out first if one is missing.
func readyBudget(s Spec) (time.Duration, error) {
	var bytes int64
	for _, path := range s.files() {
		info, err := os.Stat(path)
		var pathErr *fs.PathError
		switch {
		case errors.As(err, &pathErr):
			err = pathErr.Err // the path is said anyway
		case err == nil && !info.Mode().IsRegular():
			err = errors.New("it is not a file")
		}
		if err != nil {
			return 0, fmt.Errorf("model %q: %w: %s: %w; add the model again from where it lies now", s.Name, ErrFile, path, err)
		}
		bytes += info.Size()
	}
	if s.ReadyIn > 0 {
		return s.ReadyIn, nil
	}
	return readyBase + time.Duration(math.Ceil(float64(bytes)/(1<<30)))*readyPerGiB, nil
}

// launch prepares the folders and starts shim and engine.
func (e Engine) launch(ctx context.Context, s Spec) (*Process, error) {
	if len(s.Devices) == 0 {
		s.CacheDir = "" // Nothing is compiled, and engines with GPUs run what lies there.
	}
	box, cache, err := makeFolders(s.RunDir, s.CacheDir)
	if err != nil {
		return nil, err
	}
	var guard Guard
	if len(s.Remotes) > 0 {
		if err := e.CheckRPC(); err != nil {
			return nil, err
		}
		if guard, err = guardFor(ctx, s.Sandbox, s.Shim, s.unguarded); err != nil {
			return nil, err
		}
		// Whoever may connect to ports may not have a socket with a path.
		s.onPort = s.onPort || runtime.GOOS == "linux" && s.Sandbox != SandboxOff
	}
	var own *network
	var ports []int
	var listeners []net.Listener
	at, place := endpoint{port: doorPort}, socketPlace{}
	if guard.OK {
		if own, err = newNetwork(); err != nil {
			return nil, err
		}
		at.dial = func(ctx context.Context) (net.Conn, error) { return own.dial(ctx, doorPort) }
		for i := range s.Remotes {
			ports = append(ports, firstRemotePort+i)
		}
	} else {
		if at, place, err = s.endpoint(box); err != nil {
			return nil, err
		}
		if ports, listeners, err = listenLocally(len(s.Remotes)); err != nil {
			return nil, err
		}
	}
	args, err := e.arguments(s, at, ports)
	var command *exec.Cmd
	if err == nil {
		command, err = shimCommand(s.Shim)
	}
	var file *logFile
	if err == nil {
		if file, err = openLog(filepath.Join(s.RunDir, "engine.log")); err != nil {
			err = fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	if err != nil {
		if own != nil {
			own.close()
		}
		for _, l := range listeners {
			_ = l.Close() // nobody uses it
		}
		return nil, err
	}
	o := order{
		Args: args,
		Env:  withModelEnv(engineEnv(os.Environ(), box, cache), s.Env),
		Dir:  box,
		Policy: policy{
			Mode: s.Sandbox, Program: e.Server, Read: s.files(), Write: []string{box},
			Home: home(), GPU: len(s.Devices) > 0, Port: at.port, Connect: ports, Guarded: guard.OK,
		},
	}
	if cache != box {
		o.Policy.Write = append(o.Policy.Write, cache)
	}
	if at.keyFile != "" {
		o.Policy.Read = append(o.Policy.Read, at.keyFile)
	}
	if place.path != "" {
		o.Remove = append(o.Remove, place.path)
	}
	if place.dir != "" {
		o.Remove = append(o.Remove, place.dir)
		o.Policy.Write = append(o.Policy.Write, place.dir)
	}
	p := newProcess(s, at, place, file)
	p.metrics = e.flags["--metrics"]
	p.guard, p.network, p.links.ports, p.links.listeners = guard, own, ports, listeners
	if guard.OK {
		o.Guard = &guardOrder{Listen: ports}
	}
	if err := p.begin(ctx, command, o, s.Started); err != nil {
		return nil, err
	}
	return p, nil
}

// The ports in a network of an engine's own, where there is nobody else: that of its
// server, and of relay's listeners for its Remotes.
const (
	doorPort        = 8000
	firstRemotePort = 9000
)

// begin starts shim and engine, tells started, and begins to take what the engine
// connects to.
func (p *Process) begin(ctx context.Context, cmd *exec.Cmd, o order, started func(pid int)) error {
	if p.network != nil && o.Policy.GPU {
		wakeGPU(p.log)
	}
	if err := p.start(ctx, cmd, o); err != nil {
		p.ownNetworkEnds()
		return err
	}
	if started != nil {
		started(p.PID())
	}
	listeners := p.links.listeners
	if p.network != nil && len(p.links.ports) > 0 {
		var err error
		if listeners, err = p.network.listeners(ctx, len(p.links.ports)); errors.Is(err, net.ErrClosed) {
			<-p.done // it ended at once
			return p.Err()
		} else if err != nil {
			p.abort()
			return err
		}
	}
	var mayConnect func(net.Conn) error
	if p.network == nil {
		mayConnect = func(c net.Conn) error { return connectedBy(c, p.PID()) }
	}
	p.links.serve(listeners, mayConnect)
	return nil
}

// makeFolders makes the folders of a process. It may write into box, and into cache,
// which outlives it, but not where relay opens its log.
func makeFolders(runDir, cacheDir string) (box, cache string, err error) {
	stateErr := func(err error) error { return fmt.Errorf("%w: %w", ErrState, err) }
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return "", "", stateErr(err)
	}
	box = filepath.Join(runDir, "box")
	if err := freshDir(box); err != nil {
		return "", "", stateErr(err)
	}
	cache = box
	if cacheDir != "" {
		cache = cacheDir
		if err := os.MkdirAll(cache, 0o700); err != nil {
			return "", "", stateErr(err)
		}
	}
	return box, cache, nil
}

// home is the user's; empty where there is none to keep libraries out of.
func home() string {
	dir, _ := os.UserHomeDir()
	return dir
}

// endpoint decides where the engine of s listens.
func (s Spec) endpoint(box string) (endpoint, socketPlace, error) {
	if runtime.GOOS != "windows" && !s.onPort {
		place, err := placeSocket(box, maxSocketPath(), os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), os.Getuid())
		return endpoint{socket: place.path}, place, err
	}
	// The port is free now. Should another program take it first, the engine
	// ends; should that answer in its place, it does not know the key.
	port, err := freePort()
	if err != nil {
		return endpoint{}, socketPlace{}, err
	}
	at := endpoint{port: port, key: rand.Text(), keyFile: filepath.Join(box, "key")}
	if err := os.WriteFile(at.keyFile, []byte(at.key+"\n"), 0o600); err != nil {
		return endpoint{}, socketPlace{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	return at, socketPlace{}, nil
}

// freePort is a port of the loopback address on which nobody listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("%w: no port for the engine: %w", ErrState, err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrState, err)
	}
	return port, nil
}
