package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/cmd/stage"
	"relay/scheduler"
)

// A kindsMesh is three peers that serve one model, and one that lets clients in.
type kindsMesh struct {
	*stage.Stage
	entrance *stage.Peer
	serving  []string
	names    map[string]string // Of peers, by their ids.
}

// newKindsMesh puts it up.
func newKindsMesh(t *testing.T, file string) *kindsMesh {
	t.Helper()
	m := &kindsMesh{Stage: newStage(t, stage.Options{}), serving: []string{"one", "two", "three"}, names: map[string]string{}}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	m.entrance, err = m.Up(ctx, "entrance", "--lend", "none")
	must(err)
	m.Key = regexp.MustCompile(`rk-\S+`).FindString(m.entrance.Printed())
	invite, err := m.Invite(ctx, m.entrance, "--uses", fmt.Sprint(len(m.serving)))
	must(err)
	for _, name := range m.serving {
		must(m.up(ctx, name, "--join", invite))
	}
	must(stage.Until(ctx, "the entrance sees all peers", func() bool {
		seen, err := m.entrance.Sees(ctx)
		for name, s := range seen {
			m.names[s.ID] = name
		}
		return err == nil && len(seen) == len(m.serving)+1
	}))
	must(m.entrance.Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: "walk", Paths: []string{file}, Context: 2048, Slots: 2}, &struct{}{}))
	for _, name := range m.serving {
		p := m.Peer(name)
		must(stage.Until(ctx, name+" knows who has the model", func() bool {
			var all []scheduler.ModelState
			return p.Ask(ctx, "/v0/models", nil, &all) == nil && len(all) > 0 && len(all[0].Holders) > 0
		}))
		must(p.Follow(ctx, "/v0/model/pull", map[string]string{"name": "walk"}, &struct{}{}))
	}
	must(m.entrance.Ask(ctx, "/v0/model/set", map[string]any{"name": "walk", "min": len(m.serving)}, nil))
	must(m.ready(ctx, len(m.serving)))
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range append([]string{"entrance"}, m.serving...) {
				log, _ := os.ReadFile(filepath.Join(m.Dir, name, "log", "relay.log"))
				t.Logf("--- %s\n%s", name, tail(string(log), 6000))
			}
		}
	})
	return m
}

// up starts a peer that serves. One core each is enough, and leaves some for the others.
func (m *kindsMesh) up(ctx context.Context, name string, args ...string) error {
	_, err := m.Up(ctx, name, append(args, "--lend-cores", "1")...)
	return err
}

// ready waits until so many replicas are ready on peers that are alive.
func (m *kindsMesh) ready(ctx context.Context, replicas int) error {
	return stage.Until(ctx, fmt.Sprintf("%d replicas are ready", replicas), func() bool {
		var all []scheduler.ModelState
		seen, err := m.entrance.Sees(ctx)
		if err != nil || m.entrance.Ask(ctx, "/v0/models", nil, &all) != nil || len(all) != 1 {
			return false
		}
		n := 0
		for _, r := range all[0].Replicas {
			if r.State == scheduler.StateReady && seen[m.names[r.Peer]].State == "alive" {
				n++
			}
		}
		return n >= replicas
	})
}

// heard is an answer as it came in.
type heard struct {
	status          int
	header, trailer http.Header
	events          []string // The data of each.
	names           []string // What each is called, where it has a name.
	pieces          int      // How many have something of the answer in them.
	comments        []string
	continued       []continued
	body            []byte // Of an answer that is no stream.
}

// continued is a comment that tells of a new peer.
type continued struct {
	from, to, by   string
	tokens, events int // That came before.
}

var continuedComment = regexp.MustCompile(`^: relay continued from=(\S+) to=(\S+) tokens=(\d+) by=(ids|text)$`)

// kindsPatience bounds one answer.
const kindsPatience = time.Minute

// cut asks, and kills the peer that serves when so many pieces of the answer have come,
// 0 for never. It returns when the answer has ended, with that peer on its way back.
func (m *kindsMesh) cut(ctx context.Context, path string, body map[string]any, after int) (h heard, err error) {
	if err := m.ready(ctx, 2); err != nil {
		return h, err
	}
	var killed *stage.Peer
	h, err = m.ask(ctx, path, body, func(h *heard) error {
		if h.pieces != after || killed != nil || after == 0 {
			return nil
		}
		if killed = m.Peer(m.names[h.header.Get("X-Relay-Peer")]); killed == nil {
			return fmt.Errorf("served by %q", h.header.Get("X-Relay-Peer"))
		}
		return syscall.Kill(killed.Pid(), syscall.SIGKILL)
	})
	if after > 0 && killed == nil {
		return h, errors.Join(err, fmt.Errorf("no cut after %d pieces of %d", after, h.pieces))
	}
	return h, errors.Join(err, m.back(ctx, killed))
}

// cutWhole asks for an answer that is no stream, and kills the peer whose engine works
// on it.
func (m *kindsMesh) cutWhole(ctx context.Context, path string, body map[string]any) (h heard, err error) {
	if err := m.ready(ctx, 2); err != nil {
		return h, err
	}
	before, err := m.worked()
	if err != nil {
		return h, err
	}
	done := make(chan error, 1)
	go func() {
		h, err = m.ask(ctx, path, body, func(*heard) error { return nil })
		done <- err
	}()
	var killed *stage.Peer
	for killed == nil {
		select {
		case err := <-done:
			return h, errors.Join(err, errors.New("it was answered before a peer could be seen to work on it"))
		case <-time.After(5 * time.Millisecond):
		}
		now, err := m.worked()
		if err != nil {
			return h, err
		}
		for name, ticks := range now {
			if ticks > before[name]+5 {
				killed = m.Peer(name)
			}
		}
	}
	err = syscall.Kill(killed.Pid(), syscall.SIGKILL)
	return h, errors.Join(err, <-done, m.back(ctx, killed))
}

// worked is how much each engine has computed since it began, in hundredths of a second.
func (m *kindsMesh) worked() (map[string]int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, path := range lines {
		line, _ := os.ReadFile(path)
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil || !strings.HasPrefix(filepath.Base(strings.SplitN(string(line), "\x00", 2)[0]), "llama-server") {
			continue
		}
		for _, name := range m.serving {
			if !strings.Contains(string(line), filepath.Join(m.Dir, name)+string(filepath.Separator)) {
				continue
			}
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			user, err := strconv.Atoi(fields[11])
			if err != nil {
				return nil, err
			}
			found[name] = user
		}
	}
	return found, nil
}

// back puts a killed peer up again.
func (m *kindsMesh) back(ctx context.Context, killed *stage.Peer) error {
	if killed == nil {
		return nil
	}
	select {
	case <-killed.Ended():
		return m.up(ctx, killed.Name)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask asks the entrance, and reads the answer to its end. each is called after every
// event.
func (m *kindsMesh) ask(ctx context.Context, path string, body map[string]any, each func(*heard) error) (h heard, err error) {
	ctx, cancel := context.WithTimeout(ctx, kindsPatience)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return h, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.entrance.Door+path, bytes.NewReader(data))
	if err != nil {
		return h, err
	}
	r.Header.Set("Authorization", "Bearer "+m.Key)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return h, err
	}
	defer response.Body.Close()
	h.status, h.header = response.StatusCode, response.Header
	if !strings.HasPrefix(h.header.Get("Content-Type"), "text/event-stream") {
		h.body, err = io.ReadAll(response.Body)
		h.trailer = response.Trailer
		return h, err
	}
	name := ""
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			h.trailer = response.Trailer
			return h, nil
		}
		if err != nil {
			return h, fmt.Errorf("it broke off behind %d events: %w", len(h.events), err)
		}
		line = strings.TrimSuffix(line, "\n")
		if c := continuedComment.FindStringSubmatch(line); c != nil {
			tokens, _ := strconv.Atoi(c[3])
			h.continued = append(h.continued, continued{c[1], c[2], c[4], tokens, len(h.events)})
		} else if strings.HasPrefix(line, ":") {
			h.comments = append(h.comments, line)
		}
		if is, ok := strings.CutPrefix(line, "event: "); ok {
			name = is
		}
		is, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		h.events, h.names, name = append(h.events, is), append(h.names, name), ""
		if hasPiece(is) {
			h.pieces++
		}
		if err := each(&h); err != nil {
			return h, err
		}
	}
}

// hasPiece says whether an event has something of the answer in it.
func hasPiece(data string) bool {
	var is struct {
		Choices []struct {
			Text  string
			Delta map[string]json.RawMessage
		}
		Delta json.RawMessage
		Type  string
	}
	if json.Unmarshal([]byte(data), &is) != nil {
		return false
	}
	for _, c := range is.Choices {
		if c.Text != "" {
			return true
		}
		for _, part := range []string{"content", "reasoning_content", "tool_calls"} {
			if v := string(c.Delta[part]); v != "" && v != "null" && v != `""` {
				return true
			}
		}
	}
	return slices.Contains([]string{"response.output_text.delta", "response.reasoning_text.delta", "content_block_delta"}, is.Type)
}
