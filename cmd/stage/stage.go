// Package stage puts relay's peers on one machine for the demo, the figures and
// tests: it drives the real binary as a person would, each peer with a state
// folder of its own, on loopback only unless they are put elsewhere, and leaves
// no process and no file behind.
package stage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	built = "bin/relay"
	// patience bounds every wait.
	patience = 90 * time.Second
	// farewell is how long a peer may take to stop.
	farewell = 20 * time.Second
)

// Options are what a stage is made of. Its zero value puts peers on loopback.
type Options struct {
	// Binary is the program; empty means bin/relay, which must be built.
	Binary string
	// Echo gets the commands as a person would type them, and what they print;
	// nil discards it.
	Echo io.Writer
	// On is what a peer's command line begins with where its process is to run
	// on another machine, such as a network namespace. It listens there on the
	// addresses that a peer has by default. Nil means loopback, on free ports.
	On func(peer string) []string
	// Dial connects to an address from the machine of a peer; nil dials from here.
	Dial func(ctx context.Context, peer, address string) (net.Conn, error)
	// Program is what a peer is started from instead of Binary; nil, and an
	// empty answer, mean Binary.
	Program func(peer string) string
	// Env is added to the environment of a peer and its commands; nil adds nothing.
	Env func(peer string) []string
	// Parent is the folder in which the stage's own is made; empty means the
	// system's folder for temporary files.
	Parent string
}

// Stage is the machines and the folder they live in.
type Stage struct {
	Options
	// Dir is the folder; End removes it.
	Dir string
	// Key opens the doors; set once the founder has printed it.
	Key string

	peers map[string]*Peer
	ports map[string][2]int
}

// Peer is one machine of the stage.
type Peer struct {
	Name string
	// Door is the URL of /v1 without the "/v1"; empty until the peer said it.
	Door string

	state   string
	socket  *http.Client // To its control socket, and
	client  *http.Client // to its door.
	process *exec.Cmd
	out     *lines
	done    chan struct{}
}

// New makes an empty stage.
func New(o Options) (*Stage, error) {
	if o.Echo == nil {
		o.Echo = io.Discard
	}
	if o.Binary == "" {
		path, err := filepath.Abs(built)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s is missing: make build", built)
		}
		o.Binary = path
	}
	dir, err := os.MkdirTemp(o.Parent, "relay-stage-")
	if err != nil {
		return nil, err
	}
	return &Stage{Options: o, Dir: dir, peers: map[string]*Peer{}, ports: map[string][2]int{}}, nil
}

// Peer is the running peer of that name, or nil.
func (s *Stage) Peer(name string) *Peer { return s.peers[name] }

// Up starts a peer, and waits until it takes commands. The first one
// that is started without arguments founds the mesh.
func (s *Stage) Up(ctx context.Context, name string, args ...string) (*Peer, error) {
	p, err := s.Start(name, args...)
	if err != nil {
		return nil, err
	}
	if p.Door, err = p.out.find(ctx, `/v1\s+(http://\S+)/v1`); err != nil {
		return nil, err
	}
	if len(args) == 0 && s.Key == "" {
		if s.Key, err = p.out.find(ctx, `key\s+(rk-\S+)`); err != nil {
			return nil, err
		}
	}
	// It says where its door is a moment before its control socket answers.
	return p, Until(ctx, name+" takes commands", func() bool { return p.Ask(ctx, "/v0/peers?ask=no", nil, nil) == nil })
}

// Start starts a peer and does not wait for it; it has no Door.
func (s *Stage) Start(name string, args ...string) (*Peer, error) {
	p := &Peer{Name: name, state: filepath.Join(s.Dir, name), out: newLines(), done: make(chan struct{})}
	p.socket, p.client = p.control(), s.clientOf(name)
	s.show(name, append([]string{"up"}, args...))
	line := append([]string{s.program(name), "up", "--name", name, "--lend-mb", "512"}, args...) // Of a flag that is given twice the last one counts.
	if s.On != nil {
		line = append(s.On(name), line...)
	} else {
		ports, err := s.portsOf(name)
		if err != nil {
			return nil, err
		}
		line = append(line, "--listen", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--p2p-listen", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", ports[1]))
	}
	p.process = exec.Command(line[0], line[1:]...)
	p.process.Env = s.environ(p)
	p.process.Stdout, p.process.Stderr = p.out, p.out
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	s.peers[name] = p
	go func() {
		_ = p.process.Wait() // How it ended shows in what it printed.
		p.out.end()
		p.socket.CloseIdleConnections()
		p.client.CloseIdleConnections()
		close(p.done)
	}()
	return p, nil
}

// program is what a peer and its commands run.
func (s *Stage) program(name string) string {
	if s.Program != nil {
		if path := s.Program(name); path != "" {
			return path
		}
	}
	return s.Binary
}

// Printed is what the peer has printed so far.
func (p *Peer) Printed() string { return p.out.text() }

// Pid is that of the peer's process.
func (p *Peer) Pid() int { return p.process.Process.Pid }

// State is the peer's state folder.
func (p *Peer) State() string { return p.state }

// Log is the path of the peer's log.
func (p *Peer) Log() string { return filepath.Join(p.state, "log", "relay.log") }

// environ is this process's environment without any setting of relay's own but
// where the engine is.
func (s *Stage) environ(p *Peer) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RELAY_") || strings.HasPrefix(e, "RELAY_LLAMA_BIN=") {
			env = append(env, e)
		}
	}
	if s.Env != nil {
		env = append(env, s.Env(p.Name)...)
	}
	return append(env, "RELAY_STATE_DIR="+p.state)
}

// portsOf are the ports of a peer's door and of its mesh. It keeps them from one
// start to the next, as a peer of people does: one that moved while nobody knew of
// it could not be found.
func (s *Stage) portsOf(name string) (ports [2]int, err error) {
	if kept, ok := s.ports[name]; ok {
		return kept, nil
	}
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return ports, err
		}
	}
	s.ports[name] = ports
	return ports, nil
}

// freePort is a port that nobody listens on, below those that systems hand out by
// themselves: one of them could be somebody's before the peer takes it.
func freePort() (port int, err error) {
	for range 50 {
		port = 16_000 + rand.IntN(16_000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

func (s *Stage) show(name string, args []string) {
	fmt.Fprintf(s.Echo, "%s$ relay %s\n", name, shorten(strings.Join(args, " ")))
}

// Print echoes text, indented as the output of a command.
func (s *Stage) Print(text string) {
	fmt.Fprintln(s.Echo, "   "+strings.ReplaceAll(strings.TrimRight(shorten(text), "\n"), "\n", "\n   "))
}

func shorten(text string) string {
	return regexp.MustCompile(`(relay1:\S{8})\S+`).ReplaceAllString(text, "$1…")
}

// Relay runs a command on a peer's machine, and echoes it.
func (s *Stage) Relay(ctx context.Context, p *Peer, args ...string) (string, error) {
	s.show(p.Name, args)
	out, err := s.Quietly(ctx, p, args...)
	s.Print(out)
	if err != nil {
		return out, fmt.Errorf("relay %s on %s: %w: %s", strings.Join(args, " "), p.Name, err, out)
	}
	return out, nil
}

// Quietly runs a command on a peer's machine and returns what it printed.
func (s *Stage) Quietly(ctx context.Context, p *Peer, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := s.Command(ctx, p, args...).CombinedOutput()
	return string(out), err
}

// Command is a command on a peer's machine that is not started yet, for what
// takes longer than Relay waits, or whose output is read as it comes.
func (s *Stage) Command(ctx context.Context, p *Peer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program(p.Name), args...)
	cmd.Env = s.environ(p)
	return cmd
}

// Invite makes an invite on a peer.
func (s *Stage) Invite(ctx context.Context, p *Peer, args ...string) (string, error) {
	printed, err := s.Relay(ctx, p, append([]string{"peer", "invite"}, args...)...)
	if err != nil {
		return "", err
	}
	invite := regexp.MustCompile(`relay1:\S+`).FindString(printed)
	if invite == "" {
		return "", errors.New("no invite was printed")
	}
	return invite, nil
}

// Status is the part of `relay status --json` that is looked at here.
type Status struct {
	Peers []struct {
		ID, Name, State string
	}
	Models []struct {
		Name     string
		Holders  []string
		Replicas []struct{ Peer, State string }
	}
}

// Status asks a peer. `relay status` fails while something is not served, which
// is no failure here.
func (s *Stage) Status(ctx context.Context, p *Peer) (Status, bool) {
	out, _ := s.Command(ctx, p, "status", "--json").Output()
	var st Status
	return st, json.Unmarshal(out, &st) == nil
}

// AllSee says whether every peer of the stage sees that many alive.
func (s *Stage) AllSee(ctx context.Context, want int) bool {
	for _, p := range s.peers {
		st, ok := s.Status(ctx, p)
		n := 0
		for _, seen := range st.Peers {
			if seen.State == "alive" {
				n++
			}
		}
		if !ok || n != want {
			return false
		}
	}
	return true
}

// Holders counts the peers that hold a model, as p sees it.
func (s *Stage) Holders(ctx context.Context, p *Peer, model string) int {
	st, _ := s.Status(ctx, p)
	for _, m := range st.Models {
		if m.Name == model {
			return len(m.Holders)
		}
	}
	return 0
}

// Serving finds the peer that serves a model, as p sees it.
func (s *Stage) Serving(ctx context.Context, p *Peer, model string) (*Peer, error) {
	st, _ := s.Status(ctx, p)
	for _, m := range st.Models {
		if m.Name != model {
			continue
		}
		for _, r := range m.Replicas {
			for _, seen := range st.Peers {
				if seen.ID == r.Peer && r.State == "ready" && s.peers[seen.Name] != nil {
					return s.peers[seen.Name], nil
				}
			}
		}
	}
	return nil, fmt.Errorf("no peer serves %s", model)
}

// Chat asks a peer for a streamed answer, and hands each piece to each.
func (s *Stage) Chat(ctx context.Context, p *Peer, model, text string, max int, each func(string)) error {
	return s.chat(ctx, p, nil, model, text, max, each)
}

// ChatNow is Chat for a client that takes what is ready now and does not wait.
func (s *Stage) ChatNow(ctx context.Context, p *Peer, model, text string, max int, each func(string)) error {
	return s.chat(ctx, p, http.Header{"Prefer": {"wait=0"}}, model, text, max, each)
}

func (s *Stage) chat(ctx context.Context, p *Peer, header http.Header, model, text string, max int, each func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "temperature": 0, "max_tokens": max,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Door+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Authorization", "Bearer "+s.Key)
	r.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s answered %s: %s", p.Name, response.Status, said)
	}
	return readStream(response.Body, each)
}

// clientOf reaches the door of a peer.
func (s *Stage) clientOf(name string) *http.Client {
	t := &http.Transport{}
	if s.Dial != nil {
		t.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return s.Dial(ctx, name, address) }
	}
	return &http.Client{Transport: t}
}

func readStream(body io.Reader, each func(string)) error {
	events := bufio.NewScanner(body)
	for events.Scan() {
		data, ok := strings.CutPrefix(events.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			return nil
		default:
			var event struct {
				Choices []struct{ Delta struct{ Content string } }
				Error   *struct{ Message string }
			}
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				return err
			}
			if event.Error != nil {
				return errors.New(event.Error.Message)
			}
			for _, c := range event.Choices {
				each(c.Delta.Content)
			}
		}
	}
	return errors.Join(events.Err(), errors.New("the stream ended before its end"))
}

// Until waits for something to become true.
func Until(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s", patience, what)
		}
	}
	return nil
}

// Kill ends a peer as a crash would.
func (s *Stage) Kill(p *Peer) error {
	if err := p.process.Process.Kill(); err != nil {
		return err
	}
	<-p.done
	delete(s.peers, p.Name)
	return nil
}

// Ended is closed when the peer's process has ended.
func (p *Peer) Ended() <-chan struct{} { return p.done }

// End stops what still runs, all at once, and removes the folder.
func (s *Stage) End() error {
	for _, p := range s.peers {
		_ = p.process.Process.Signal(os.Interrupt)
	}
	for _, p := range s.peers {
		select {
		case <-p.done:
		case <-time.After(farewell):
			_ = p.process.Process.Kill()
			<-p.done
		}
	}
	return os.RemoveAll(s.Dir)
}
