package llama

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RPCSpec is everything about one RPC server process: the part of an engine that
// computes some layers for a coordinator on another machine. The zero value of a
// field means what its comment says.
type RPCSpec struct {
	// Name says in logs and errors what it is for, such as the model's name. Required.
	Name string
	// Devices are the engine's own ids of the devices to export, in order; HostID is
	// host memory. Empty means host memory alone.
	Devices []string
	// Threads is the number of CPU threads; 0 means as of Spec.Threads.
	Threads int
	// Tensors is a folder whose subfolder "rpc" holds files of tensors: each over 10 MiB,
	// named by the 16 hex digits of the FNV-1a 64 of its bytes. The server takes what
	// is there instead of having it sent. It can never write there: where that cannot be
	// had, above all without a sandbox, it goes without. Empty means none. Nothing that
	// a running server may use must be changed or removed.
	Tensors string
	// RunDir is the process's own folder, as of Spec.RunDir. Required.
	RunDir string
	// CacheDir is as of Spec.CacheDir, but no engine's: whoever uses the server may
	// write there, and an engine would run it. Without a GPU it is not used.
	CacheDir string
	// Sandbox defaults to SandboxAuto. SandboxRequire also requires the guard.
	Sandbox SandboxMode
	// Env is as of Spec.Env.
	Env []string
	// Started is as of Spec.Started.
	Started func(pid int) `json:"-"`
	// Shim is as of Spec.Shim.
	Shim []string
	// Logger gets the process's events; nil means none are logged.
	Logger *slog.Logger `json:"-"`

	unguarded bool // for tests
}

// Validate says which field makes no sense.
func (s RPCSpec) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrSpec}, args...)...)
	}
	switch {
	case s.Name == "" || len(s.Name) > 256 || printable(s.Name, 256) != s.Name:
		return bad("the RPC server's name %q is empty or too long", printable(s.Name, 60))
	case s.Tensors != "" && !filepath.IsAbs(s.Tensors):
		return bad("the folder of tensors, %q, is not absolute", s.Tensors)
	case !filepath.IsAbs(s.RunDir):
		return bad("the run folder, %q, is not absolute", s.RunDir)
	case s.CacheDir != "" && !filepath.IsAbs(s.CacheDir):
		return bad("the cache folder, %q, is not absolute", s.CacheDir)
	case s.Threads < 0 || s.Threads > 4096:
		return bad("%d threads", s.Threads)
	case len(s.Devices) > maxRemoteDevices:
		return bad("%d devices, %d are the most", len(s.Devices), maxRemoteDevices)
	}
	for i, d := range s.Devices {
		if !deviceID.MatchString(d) || slices.Contains(s.Devices[:i], d) {
			return bad("device %q", printable(d, 60))
		}
	}
	if _, err := ParseSandboxMode(string(s.Sandbox)); err != nil {
		return err
	}
	return CheckEnv(s.Env)
}

// CheckRPC fails where this build cannot take part in running one model on several
// machines, and says why: ErrNoEngine.
func (e Engine) CheckRPC() error {
	missing := ""
	switch {
	case e.RPCServer == "":
		missing = "there is no ggml-rpc-server beside it"
	case !e.flags["--rpc"]:
		missing = "it has no --rpc"
	case e.RPC == "":
		missing = "its version of the RPC protocol is not known"
	default:
		return nil
	}
	return fmt.Errorf("%w for a model on several machines: %v at %s was built without it: %s; `make engine` builds one", ErrNoEngine, e, e.Server, missing)
}

// RPCServer is a running RPC server, with its shim. Its methods may be called at
// any time by anybody.
type RPCServer struct {
	p *Process
}

// StartRPC starts an RPC server and returns when it speaks the protocol of e.RPC.
// ctx bounds the start only: the process lives until Stop, or until relay ends.
// It serves one connection at a time: a second one waits until the first is closed.
//
// The errors are as of Start; ErrNoEngine where this build has no RPC server.
func (e Engine) StartRPC(ctx context.Context, s RPCSpec) (*RPCServer, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := e.CheckRPC(); err != nil {
		return nil, err
	}
	if s.Sandbox == "" {
		s.Sandbox = SandboxAuto
	}
	if _, err := CheckSandbox(s.Sandbox); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rpcReadyIn, ErrTimeout)
	defer cancel()
	p, err := e.launchRPC(ctx, s)
	if err != nil {
		return nil, lateRPC(ctx, s.Name, err)
	}
	r := &RPCServer{p}
	if err := r.awaitHello(ctx, e.RPC); err != nil {
		p.abort()
		return nil, lateRPC(ctx, s.Name, err)
	}
	p.journal.serving()
	p.log.Info("rpc server ready", "model", s.Name, "pid", p.PID(), "guard", p.guard.Text, "cached", p.cached())
	return r, nil
}

// rpcReadyIn is how long an RPC server may take to answer: drivers of several GPUs
// take seconds to wake up.
const rpcReadyIn = time.Minute

// lateRPC is as late.
func lateRPC(ctx context.Context, name string, err error) error {
	return fmt.Errorf("RPC server: %w", late(ctx, name, rpcReadyIn, err))
}

// launchRPC prepares the folders and starts shim and server.
func (e Engine) launchRPC(ctx context.Context, s RPCSpec) (*Process, error) {
	gpu := slices.ContainsFunc(s.Devices, func(d string) bool { return d != HostID })
	if !gpu {
		s.CacheDir = ""
	}
	box, cache, err := makeFolders(s.RunDir, s.CacheDir)
	if err != nil {
		return nil, err
	}
	env, tensors := engineEnv(os.Environ(), box, cache), ""
	if s.Tensors != "" {
		tensors = filepath.Join(s.Tensors, "rpc")
		if err := os.MkdirAll(tensors, 0o700); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, tensorsVariable) })
		env = append(env, tensorsVariable+s.Tensors)
	}
	guard, err := guardFor(ctx, s.Sandbox, s.Shim, s.unguarded)
	if err != nil {
		return nil, err
	}
	var own *network
	at := endpoint{port: doorPort}
	if guard.OK {
		if own, err = newNetwork(); err != nil {
			return nil, err
		}
		at.dial = func(ctx context.Context) (net.Conn, error) { return own.dial(ctx, doorPort) }
	} else if at.port, err = freePort(); err != nil {
		return nil, err
	}
	o := order{
		Args: s.arguments(at.port), IfReadOnly: []string{"--cache"}, Env: withModelEnv(env, s.Env), Dir: box,
		Policy: policy{
			Mode: s.Sandbox, Program: e.RPCServer, Write: []string{box}, ReadOnly: tensors,
			Home: home(), GPU: gpu, Port: at.port, Guarded: guard.OK,
		},
	}
	if cache != box {
		o.Policy.Write = append(o.Policy.Write, cache)
	}
	if guard.OK {
		o.Guard = &guardOrder{}
	}
	command, err := shimCommand(s.Shim)
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
		return nil, err
	}
	p := newProcess(Spec{Name: s.Name, Logger: s.Logger}, at, socketPlace{}, file)
	p.guard, p.network = guard, own
	if err := p.begin(ctx, command, o, s.Started); err != nil {
		return nil, err
	}
	return p, nil
}

// tensorsVariable names the folder in whose "rpc" the server looks for tensors.
const tensorsVariable = "LLAMA_CACHE="

// arguments is the command line of an RPC server.
func (s RPCSpec) arguments(port int) []string {
	threads := s.Threads
	if threads == 0 {
		threads = defaultThreads()
	}
	devices := []string{"CPU"}
	if len(s.Devices) > 0 {
		devices = slices.Clone(s.Devices)
		if i := slices.Index(devices, HostID); i >= 0 {
			devices[i] = "CPU"
		}
	}
	return []string{"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--threads", strconv.Itoa(threads), "--device", strings.Join(devices, ",")}
}

// Dial connects to the server, through its guard where there is one. It is a
// connection by TCP. Nothing may be put in between that gives it to anybody but
// the coordinator. It fails where the server has ended or ctx is over.
func (r *RPCServer) Dial(ctx context.Context) (net.Conn, error) { return r.p.client.dial(ctx) }

// Guarded says whether nothing but relay can reach the server; Text says how.
func (r *RPCServer) Guarded() bool { return r.p.guard.OK }

// Text is one sentence for people about who can reach the server.
func (r *RPCServer) Text() string { return r.p.guard.Text }

// Cached says whether the server uses the files in Tensors. It was proven that
// it can neither add to them nor change them.
func (r *RPCServer) Cached() bool { return r.p.cached() }

// Done is closed when server and shim are gone.
func (r *RPCServer) Done() <-chan struct{} { return r.p.Done() }

// Err says why the process ended; nil while it runs, and when Stop ended it.
func (r *RPCServer) Err() error { return r.p.Err() }

// PID is the server's process id.
func (r *RPCServer) PID() int { return r.p.PID() }

// Stop is as of Process.Stop.
func (r *RPCServer) Stop(ctx context.Context) error { return r.p.Stop(ctx) }

// Usage is as of Process.Usage.
func (r *RPCServer) Usage() (Usage, error) { return r.p.Usage() }

// LogTail is as of Process.LogTail.
func (r *RPCServer) LogTail() []string { return r.p.LogTail() }

// Sandbox is what is in force around the process.
func (r *RPCServer) Sandbox() SandboxStatus { return r.p.Report().Sandbox }
