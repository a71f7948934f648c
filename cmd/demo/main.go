// Command demo shows relay's main job on one machine: three peers become a
// mesh, one adds a model, another pulls it, a third is asked; then the peer that
// served is killed, and the mesh answers again. `make demo` runs it.
//
// It drives bin/relay as a person would, in a folder of its own, on loopback
// only, and leaves no process and no file behind, however it ends.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	binary   = "bin/relay"
	model    = "demo"
	question = "What is relay?"
	again    = "Who decides which machine runs a model?"
	// patience bounds every wait of the demo.
	patience = 90 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// stage is the demo's machines and the folder they live in.
type stage struct {
	dir   string
	relay string
	peers map[string]*actor
	key   string
}

// actor is one peer.
type actor struct {
	name    string
	state   string
	process *exec.Cmd
	out     *lines
	door    string
	done    chan struct{}
}

func run(ctx context.Context) (err error) {
	relay, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(relay); err != nil {
		return fmt.Errorf("%s is missing: make build", binary)
	}
	dir, err := os.MkdirTemp("", "relay-demo-")
	if err != nil {
		return err
	}
	s := &stage{dir: dir, relay: relay, peers: map[string]*actor{}}
	defer func() { err = errors.Join(err, s.end()) }()
	return s.play(ctx)
}

func (s *stage) play(ctx context.Context) error {
	began := time.Now()
	say("Three peers on this machine. The first one founds a mesh.")
	attic, err := s.up("attic")
	if err != nil {
		return err
	}
	if s.key, err = attic.out.find(ctx, `key\s+(rk-\S+)`); err != nil {
		return err
	}
	if attic.door, err = attic.out.find(ctx, `/v1\s+(http://\S+)/v1`); err != nil {
		return err
	}
	fmt.Print(indent(attic.out.text()))

	say("An invite for two more machines; each joins with it.")
	printed, err := s.relayOn(ctx, attic, "peer", "invite", "--uses", "2")
	if err != nil {
		return err
	}
	invite := regexp.MustCompile(`relay1:\S+`).FindString(printed)
	for _, name := range []string{"den", "cellar"} {
		peer, err := s.up(name, "--join", invite)
		if err != nil {
			return err
		}
		if peer.door, err = peer.out.find(ctx, `/v1\s+(http://\S+)/v1`); err != nil {
			return err
		}
	}
	if err := until(ctx, "three peers see one another", func() bool { return s.alive(ctx) == 3 }); err != nil {
		return err
	}
	fmt.Printf("   three peers see one another after %s\n", since(began))

	say("A model, added on attic where its file lies; cellar pulls it from the mesh.")
	if _, err := s.relayOn(ctx, attic, "model", "add", model); err != nil {
		return err
	}
	if err := until(ctx, "cellar knows the model", func() bool {
		_, err := s.quietly(ctx, s.peers["cellar"], "model", "show", model)
		return err == nil
	}); err != nil {
		return err
	}
	if _, err := s.relayOn(ctx, s.peers["cellar"], "model", "pull", model); err != nil {
		return err
	}

	say("den has no copy of it. Ask den: the answer streams through the mesh.")
	if err := s.chat(ctx, s.peers["den"], question); err != nil {
		return err
	}
	fmt.Printf("   the first answer came %s after the start\n", since(began))
	if err := until(ctx, "two peers hold the model", func() bool { return s.holders(ctx, attic) == 2 }); err != nil {
		return err
	}
	if _, err := s.relayOn(ctx, s.peers["den"], "status"); err != nil {
		return err
	}

	serving, err := s.serving(ctx)
	if err != nil {
		return err
	}
	say(fmt.Sprintf("%s serves the model. It dies: kill -9.", serving.name))
	killed := time.Now()
	if err := serving.process.Process.Kill(); err != nil {
		return err
	}
	<-serving.done
	delete(s.peers, serving.name)
	if err := s.chat(ctx, s.peers["den"], again); err != nil {
		return err
	}
	fmt.Printf("   answered again %s after the kill, from the copy that is left\n", since(killed))
	fmt.Print(`
The same on real machines, with relay and an engine (make engine) on each:

  attic$ relay up
  attic$ relay peer invite                  # prints the line for the next machine
  den$   relay up --join relay1:…
  attic$ relay model add NAME /path/to/model.gguf
  den$   relay model pull NAME
  den$   relay status

and point any OpenAI client at http://127.0.0.1:8420/v1 on any of them, with the
key that the first one printed.
`)
	return nil
}

func say(text string) { fmt.Printf("\n== %s\n", text) }

func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }

func indent(text string) string {
	return "   " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ") + "\n"
}

// up starts a peer that is gone when the demo is.
func (s *stage) up(name string, args ...string) (*actor, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	a := &actor{name: name, state: filepath.Join(s.dir, name), out: &lines{changed: make(chan struct{})}, done: make(chan struct{})}
	shown := append([]string{"up"}, args...)
	fmt.Printf("%s$ relay %s\n", name, shorten(strings.Join(shown, " ")))
	a.process = exec.Command(s.relay, append(append([]string{"up"}, args...), "--name", name,
		"--listen", fmt.Sprintf("127.0.0.1:%d", port), "--p2p-listen", "/ip4/127.0.0.1/tcp/0", "--lend-mb", "512")...)
	a.process.Env = s.environ(a)
	a.process.Stdout, a.process.Stderr = a.out, a.out
	if err := a.process.Start(); err != nil {
		return nil, err
	}
	s.peers[name] = a
	go func() {
		_ = a.process.Wait() // How it ended shows in what it printed.
		a.out.end()
		close(a.done)
	}()
	return a, nil
}

// environ is this process's environment without any setting of relay's own but
// where the engine is.
func (s *stage) environ(a *actor) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RELAY_") || strings.HasPrefix(e, "RELAY_LLAMA_BIN=") {
			env = append(env, e)
		}
	}
	return append(env, "RELAY_STATE_DIR="+a.state)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func shorten(text string) string {
	return regexp.MustCompile(`(relay1:\S{8})\S+`).ReplaceAllString(text, "$1…")
}

// relayOn runs a command on a peer as a person would, and shows it.
func (s *stage) relayOn(ctx context.Context, a *actor, args ...string) (string, error) {
	fmt.Printf("%s$ relay %s\n", a.name, strings.Join(args, " "))
	out, err := s.quietly(ctx, a, args...)
	fmt.Print(indent(shorten(out)))
	if err != nil {
		return out, fmt.Errorf("relay %s on %s: %w", strings.Join(args, " "), a.name, err)
	}
	return out, nil
}

func (s *stage) quietly(ctx context.Context, a *actor, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.relay, args...)
	cmd.Env = s.environ(a)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// status is the part of `relay status --json` that the demo looks at.
type status struct {
	Peers []struct {
		ID, Name, State string
	}
	Models []struct {
		Name     string
		Holders  []string
		Replicas []struct{ Peer, State string }
	}
}

// status asks a peer; `relay status` fails while something is not served, which
// is no failure here.
func (s *stage) status(ctx context.Context, a *actor) (status, bool) {
	cmd := exec.CommandContext(ctx, s.relay, "status", "--json")
	cmd.Env = s.environ(a)
	out, _ := cmd.Output()
	var st status
	return st, json.Unmarshal(out, &st) == nil
}

// alive is the least number of peers that any peer sees alive.
func (s *stage) alive(ctx context.Context) int {
	least := len(s.peers)
	for _, a := range s.peers {
		st, ok := s.status(ctx, a)
		n := 0
		for _, p := range st.Peers {
			if p.State == "alive" {
				n++
			}
		}
		if !ok {
			n = 0
		}
		least = min(least, n)
	}
	return least
}

func (s *stage) holders(ctx context.Context, a *actor) int {
	st, _ := s.status(ctx, a)
	if len(st.Models) == 0 {
		return 0
	}
	return len(st.Models[0].Holders)
}

func (s *stage) serving(ctx context.Context) (*actor, error) {
	st, _ := s.status(ctx, s.peers["den"])
	for _, m := range st.Models {
		for _, r := range m.Replicas {
			for _, p := range st.Peers {
				if p.ID == r.Peer && r.State == "ready" && s.peers[p.Name] != nil {
					return s.peers[p.Name], nil
				}
			}
		}
	}
	return nil, errors.New("no peer serves the model")
}

// chat asks a peer and prints the answer as it streams.
func (s *stage) chat(ctx context.Context, a *actor, text string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fmt.Printf("%s$ curl %s/v1/chat/completions … %q\n   ", a.name, a.door, text)
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "temperature": 0, "max_tokens": 100,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.door+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s answered %s: %s", a.name, response.Status, said)
	}
	return printStream(response.Body)
}

func printStream(body io.Reader) error {
	events := bufio.NewScanner(body)
	for events.Scan() {
		data, ok := strings.CutPrefix(events.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			fmt.Println()
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
				fmt.Print(c.Delta.Content)
			}
		}
	}
	return errors.Join(events.Err(), errors.New("the stream ended before its end"))
}

// until waits for something to become true.
func until(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
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

// end stops what still runs, in order, and removes the folder.
func (s *stage) end() error {
	for _, a := range s.peers {
		_ = a.process.Process.Signal(os.Interrupt)
	}
	for _, a := range s.peers {
		select {
		case <-a.done:
		case <-time.After(20 * time.Second):
			_ = a.process.Process.Kill()
			<-a.done
		}
	}
	return os.RemoveAll(s.dir)
}
