package llama

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The shim is a process of relay's own between relay and an engine: it starts
// the engine as its child, in its sandbox, and ends it when relay ends, in
// whatever way. They talk over the shim's standard streams, which work on every
// platform:
//
//	stdin   an order as one line of JSON; then "stop MILLISECONDS" to end the
//	        engine; its end, also by the death of relay, kills the engine
//	stdout  events, one line of JSON each
//	stderr  what the engine writes, unread by the shim
//
// In a network of the engine's own there is one more, by which relay gets sockets.
//
// If the shim itself is killed, the engine dies too: on Linux the kernel kills
// it, on Windows it is in a job object with the shim, elsewhere relay does it.

// An order tells the shim what to start.
type order struct {
	Args   []string `json:"args"`
	Env    []string `json:"env"`
	Dir    string   `json:"dir"`
	Policy policy   `json:"policy"`
	// Remove are the socket and the folder made for it, removed at the end.
	Remove []string `json:"remove,omitempty"`
	// IfReadOnly are further arguments where the policy's folder that is only to be
	// read was proven so.
	IfReadOnly []string `json:"if_read_only,omitempty"`
	// Guard is for a shim in a network of its own. Without a program it only tries
	// whether that works.
	Guard *guardOrder `json:"guard,omitempty"`
	// Enter is for a process that is not to be the shim but its child: it enters
	// the sandbox and becomes the engine.
	Enter bool `json:"enter,omitempty"`
}

// A guardOrder tells a shim in a network of its own on which ports of it relay is to
// listen.
type guardOrder struct {
	Listen []int `json:"listen,omitempty"`
}

// An event is what the shim reports.
type event struct {
	// Started is the engine's process id.
	Started int `json:"started,omitempty"`
	// Sandbox is what is in force; with Started.
	Sandbox SandboxStatus `json:"sandbox,omitzero"`
	// ReadOnly: the folder that is only to be read was proven so; with Started.
	ReadOnly bool `json:"read_only,omitempty"`
	// Failed is why there is no engine; NoSandbox says it is for want of one.
	Failed    string `json:"failed,omitempty"`
	NoSandbox bool   `json:"no_sandbox,omitempty"`
	// Exited is how the engine ended, such as "exit status 1"; Aborted says that it
	// did so itself, by SIGABRT.
	Exited  string `json:"exited,omitempty"`
	Aborted bool   `json:"aborted,omitempty"`
}

const (
	maxOrder = 1 << 20 // bytes
	// stopGrace is how long an engine may take to end by itself when the shim
	// is told to end by a signal.
	stopGrace = 5 * time.Second
)

// ShimMain is the hidden command "relay engine-shim". It returns the exit code:
// the engine's own where it has one, 128 and the signal's number where it was
// killed, 125 where no engine was started, 2 where it was used wrongly.
func ShimMain(args []string) int {
	// The sandbox is put around a thread, and the kernel kills the engine when
	// the thread that started it ends. This goroutine keeps its thread until the
	// process is over.
	runtime.LockOSThread()
	if info, err := os.Stdin.Stat(); len(args) > 0 || err != nil || info.Mode()&fs.ModeCharDevice != 0 {
		fmt.Fprintln(os.Stderr, "engine-shim is for relay's own use: `relay up` starts it for each engine")
		return 2
	}
	in := bufio.NewReaderSize(os.Stdin, maxOrder)
	o, err := readOrder(in)
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine-shim:", err)
		return 2
	}
	if o.Enter {
		return becomeEngine(o)
	}
	s := &shim{order: o, events: json.NewEncoder(os.Stdout)}
	return s.run(in)
}

func readOrder(in *bufio.Reader) (order, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return order{}, fmt.Errorf("no order: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return order{}, fmt.Errorf("the order: %w", err)
	}
	return o, nil
}

type shim struct {
	order  order
	events *json.Encoder
}

// tell reports an event. Nobody may be there to hear it any more.
func (s *shim) tell(e event) { _ = s.events.Encode(e) }

func (s *shim) fail(e event) int {
	s.tell(e)
	return 125
}

func (s *shim) run(in *bufio.Reader) int {
	// Caught, not ignored: an engine would inherit that. Without relay there is
	// nobody to read what is written, which must not end the shim early.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, shimSignals()...)
	if err := prepareProcess(); err != nil {
		return s.fail(event{Failed: err.Error()})
	}
	if s.order.Guard != nil {
		if err := guardShim(*s.order.Guard); err != nil {
			return s.fail(event{Failed: err.Error()})
		}
		if s.order.Policy.Program == "" {
			_, _ = in.ReadByte() // relay has seen enough
			return 0
		}
	}
	start := startConfined
	if s.order.Policy.Mode == SandboxOff {
		start = func(o order) (*exec.Cmd, event) { return startFree(o, SandboxStatus{Text: "the sandbox is off"}) }
	}
	cmd, started := start(s.order)
	if cmd == nil {
		return s.fail(started)
	}
	s.tell(started)

	// Both goroutines end with the process at the latest; ended is read below.
	commands := make(chan time.Duration)
	go readCommands(in, commands)
	ended := make(chan error, 1)
	go func() { ended <- waitGroup(cmd) }()

	var kill <-chan time.Time
	stop := func(grace time.Duration) {
		if grace <= 0 || terminateGroup(cmd.Process) != nil {
			_ = killGroup(cmd.Process) // it is there until waited for
			return
		}
		if kill == nil {
			kill = time.After(grace)
		}
	}
	for {
		select {
		case grace, ok := <-commands:
			if !ok {
				commands = nil // relay is gone
				grace = 0
			}
			stop(grace)
		case sig := <-signals:
			if asksToEnd(sig) {
				stop(stopGrace)
			}
		case <-kill:
			_ = killGroup(cmd.Process)
		case err := <-ended:
			return s.end(cmd, err)
		}
	}
}

// startFree starts an engine with all of relay's rights. It returns what to
// tell, and no command where there is no engine.
func startFree(o order, status SandboxStatus) (*exec.Cmd, event) {
	cmd := exec.Command(o.Policy.Program, o.Args...)
	cmd.Env, cmd.Dir = o.Env, o.Dir
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	dieWithMe(cmd)
	if err := cmd.Start(); err != nil {
		return nil, event{Failed: err.Error()}
	}
	return cmd, event{Started: cmd.Process.Pid, Sandbox: status}
}

// end clears up and reports how the engine ended.
func (s *shim) end(cmd *exec.Cmd, err error) int {
	for _, path := range s.order.Remove {
		_ = os.Remove(path) // it is often gone already
	}
	code, how := 0, "exit status 0"
	if err != nil {
		code, how = 1, err.Error()
	}
	if st := cmd.ProcessState; st != nil {
		code, how = exitCode(st), st.String()
	}
	s.tell(event{Exited: how, Aborted: cmd.ProcessState != nil && aborted(cmd.ProcessState)})
	return code
}

// readCommands sends how long the engine may take to end for every "stop", and
// closes commands when relay is gone.
func readCommands(in *bufio.Reader, commands chan<- time.Duration) {
	defer close(commands)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		ms, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "stop ")
		n, err := strconv.Atoi(ms)
		if !ok || err != nil || n < 0 {
			return // not relay
		}
		commands <- time.Duration(n) * time.Millisecond
	}
}
