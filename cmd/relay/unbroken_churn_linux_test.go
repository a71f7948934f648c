package main_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/llama/sim"
	"relay/scheduler"
)

// churnFor is a minute in `make test`, and ten in `make test-long`.
var churnFor = flag.Duration("churn", time.Minute, "how long TestChurn goes on")

const (
	churnKey   = "rk-churn"
	churnModel = "sim"
	churnSeed  = 7
	// churnRate is the tokens a second of each answer: all streams together are as many
	// events as two cores can carry three times.
	churnRate = 8
	// crowd is how many clients ask at a time, each anew once it has its answer.
	crowd = 200
	// servers is the peers that serve. One of them is away at a time.
	servers, entrances = 4, 3
	// churnSlots is the most that a model may have. What is left cannot take all clients,
	// so some wait.
	churnSlots = 64
	// between is the time from one death to the next, and away how long the peer is.
	between, away = 3 * time.Second, time.Second
)

// TestChurn has many clients ask all the time, at three entrances, while the peers that
// serve are killed one after another and return. Every answer is exactly what the
// stand-in's function gives, or, of the kinds that cannot be continued, ends by an error
// that says why. The entrances live; a client whose entrance dies has nothing to be
// continued by. At the end they have as many goroutines and files as at its beginning,
// and no more memory than in its first third.
func TestChurn(t *testing.T) {
	c := newChurn(t)
	c.together(crowd, 0) // The connections that a crowd needs are there.
	idle := c.eachIdle()

	ctx, stop := context.WithTimeout(t.Context(), *churnFor)
	defer stop()
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			for ctx.Err() == nil {
				c.ask(i)
			}
		})
	}
	var used [entrances][]float64 // The memory in use, by entrance.
	all.Go(func() {
		for tick := time.Tick(2 * time.Second); ctx.Err() == nil; {
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
			for i, p := range c.entrances {
				if m, err := c.metrics(p); err == nil {
					used[i] = append(used[i], m["go_memstats_next_gc_bytes"])
				}
			}
		}
	})
	deaths := c.killing(ctx)
	all.Wait()
	c.tell(deaths)

	now := c.eachIdle()
	for i, p := range c.entrances {
		third := len(used[i]) / 3
		early, late := middle(used[i][:third]), middle(used[i][len(used[i])-third:])
		t.Logf("%s: %.0f goroutines, then %.0f; %.0f open files, then %.0f; memory in use %.1f MiB in the first third, %.1f in the last", p.Name,
			idle[i].goroutines, now[i].goroutines, idle[i].files, now[i].files, early/(1<<20), late/(1<<20))
		if now[i].goroutines > idle[i].goroutines+churnSlack || now[i].files > idle[i].files+churnSlack {
			t.Errorf("%s does not let go of all", p.Name)
		}
		if late > 1.3*early+(8<<20) {
			t.Errorf("%s takes more and more memory", p.Name)
		}
	}
}

// churnSlack is by how many goroutines and files two moments of rest differ: those of
// links to peers that have just come back, and of what goes on now and then.
const churnSlack = 60

func middle(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

type churn struct {
	*testing.T
	*stage.Stage
	entrances []*stage.Peer
	bare      http.Handler // The stand-in's function, at once.
	client    *http.Client

	mu     sync.Mutex
	counts map[string]*counts
}

// counts are the answers of one kind.
type counts struct{ whole, continued, named, wrong int }

func newChurn(t *testing.T) *churn {
	t.Helper()
	c := &churn{T: t, counts: map[string]*counts{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: crowd}}}
	own := t.TempDir()
	c.Stage = newStage(t, stage.Options{Env: func(peer string) []string {
		engine := filepath.Join(own, "llama-server")
		if strings.HasPrefix(peer, "entrance") {
			engine = os.DevNull
		}
		return []string{"RELAY_API_KEY=" + churnKey, "RELAY_SANDBOX=off", "RELAY_LLAMA_BIN=" + engine}
	}})
	c.Key = churnKey
	c.must(os.WriteFile(filepath.Join(own, "llama-server"), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' sim-engine --quiet --seed %d --decode %d \"$@\"\n", c.Binary, churnSeed, churnRate), 0o700))
	s, err := sim.New(sim.Options{Seed: churnSeed, Slots: crowd, Context: 1024})
	c.must(err)
	c.bare = s.Handler()

	ctx := t.Context()
	invite := ""
	for i := range entrances {
		args := []string{"--lend", "none"}
		if i > 0 {
			args = append(args, "--join", invite)
		}
		p, err := c.Up(ctx, fmt.Sprint("entrance", i), args...)
		c.must(err)
		if c.entrances = append(c.entrances, p); i == 0 {
			invite, err = c.Invite(ctx, p, "--uses", fmt.Sprint(servers+entrances))
			c.must(err)
		}
	}
	file, err := demo.Write(own)
	c.must(err)
	c.must(c.entrances[0].Follow(ctx, "/v0/model/add", scheduler.AddOptions{Name: churnModel, Paths: []string{file}, Context: 1024, Slots: churnSlots}, &struct{}{}))
	for i := range servers {
		p, err := c.Up(ctx, fmt.Sprint("server", i), "--join", invite)
		c.must(err)
		c.must(stage.Until(ctx, p.Name+" knows who has the model", func() bool {
			var all []scheduler.ModelState
			return p.Ask(ctx, "/v0/models", nil, &all) == nil && len(all) > 0 && len(all[0].Holders) > 0
		}))
		c.must(p.Follow(ctx, "/v0/model/pull", map[string]string{"name": churnModel}, &struct{}{}))
	}
	c.must(c.entrances[0].Ask(ctx, "/v0/model/set", map[string]any{"name": churnModel, "min": servers}, nil))
	for _, p := range c.entrances {
		c.ready(p, servers)
	}
	return c
}

func (c *churn) must(errs ...error) {
	c.Helper()
	if err := errors.Join(errs...); err != nil {
		c.Fatal(err)
	}
}

// ready waits until an entrance sees so many replicas.
func (c *churn) ready(p *stage.Peer, replicas int) {
	c.Helper()
	c.must(stage.Until(context.WithoutCancel(c.Context()), fmt.Sprintf("%s sees %d replicas", p.Name, replicas), func() bool {
		var all []scheduler.ModelState
		if p.Ask(c.Context(), "/v0/models", nil, &all) != nil || len(all) == 0 {
			return false
		}
		n := 0
		for _, r := range all[0].Replicas {
			if r.State == scheduler.StateReady {
				n++
			}
		}
		return n >= replicas
	}))
}

// killing kills one peer that serves after another, and starts it again, until the time
// is up. It returns how many died.
func (c *churn) killing(ctx context.Context) (deaths int) {
	for tick := time.Tick(between); ; deaths++ {
		select {
		case <-tick:
		case <-ctx.Done():
			return deaths
		}
		name := fmt.Sprint("server", deaths%servers)
		c.ready(c.entrances[deaths%entrances], servers-1) // Whoever was away last is back, or nearly.
		if err := c.Kill(c.Peer(name)); err != nil {
			c.Error(err)
			return deaths
		}
		select {
		case <-time.After(away):
		case <-ctx.Done():
		}
		if _, err := c.Up(context.WithoutCancel(ctx), name); err != nil {
			c.Error(err)
			return deaths
		}
	}
}

// together has so many clients ask once each, at the same time.
func (c *churn) together(clients, from int) {
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { c.ask(from + i) })
	}
	all.Wait()
}

// ask has one client ask one question, at its entrance, and counts what comes of it.
func (c *churn) ask(client int) {
	a := draw()
	bare := map[string]any{"model": churnModel, "max_tokens": 24 + rand.IntN(40), "temperature": 0}
	question := fmt.Sprintf("client %d asks %d", client, rand.Uint64())
	if a.text {
		bare["prompt"] = question
	} else {
		bare["messages"] = []map[string]string{{"role": "user", "content": question}}
	}
	for k, v := range a.more {
		bare[k] = v
	}
	want, err := c.said(a, bare)
	if err != nil {
		c.Error(err)
		return
	}
	p := c.entrances[client%entrances]
	g := c.send(p, a, a.body(bare))
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[a.name]
	if n == nil {
		n = &counts{}
		c.counts[a.name] = n
	}
	switch {
	case g.err == nil && slices.Equal(g.said(), want):
		if n.whole++; g.continued {
			n.continued++
		}
	case g.reason == "cannot_continue" && a.named && prefixes(g.texts, want):
		n.named++
	default:
		if n.wrong++; n.wrong <= 3 {
			c.Errorf("%s at %s, request %s: %v (%s, continued: %t)\nhad  %q\nwant %q\n%s", a.name, p.Name, g.id, g.err, g.reason, g.continued, g.texts, want, logged(p, g.id))
		}
	}
}

// logged is what a peer's log says of a request.
func logged(p *stage.Peer, id string) string {
	log, _ := os.ReadFile(p.Log())
	var found strings.Builder
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, id) {
			found.WriteString(line)
		}
	}
	return found.String()
}

func prefixes(texts, of []string) bool {
	for i, text := range texts {
		if i >= len(of) || !strings.HasPrefix(of[i], text) {
			return false
		}
	}
	return true
}

// said is what the stand-in answers, asked without relay.
func (c *churn) said(a asking, bare map[string]any) ([]string, error) {
	body, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	path := "/v1/chat/completions"
	if a.text {
		path = "/v1/completions"
	}
	w := httptest.NewRecorder()
	c.bare.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	g := got{}
	err = g.whole(w.Body.Bytes())
	return g.said(), err
}

// send sends a request, and reads its answer to the end.
func (c *churn) send(p *stage.Peer, a asking, body map[string]any) (g got) {
	data, err := json.Marshal(body)
	if err != nil {
		return got{err: err}
	}
	// The time that is up does not end a stream that has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Door+a.path, bytes.NewReader(data))
	if err != nil {
		return got{err: err}
	}
	r.Header.Set("Authorization", "Bearer "+churnKey)
	r.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(r)
	if err != nil {
		return got{err: err}
	}
	defer response.Body.Close()
	g.id = response.Header.Get("X-Request-Id")
	if body["stream"] == true && response.StatusCode == http.StatusOK {
		g.err = g.stream(response.Body)
	} else {
		said, err := io.ReadAll(response.Body)
		g.err = errors.Join(err, g.whole(said))
	}
	g.continued = g.continued || cmp.Or(response.Header.Get("X-Relay-Continued"), response.Trailer.Get("X-Relay-Continued")) != ""
	return g
}

// tell prints the counts, and fails where nothing was put to the test.
func (c *churn) tell(deaths int) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum counts
	for _, a := range askings {
		n := c.counts[a.name]
		if n == nil {
			c.Errorf("nobody asked: %s", a.name)
			continue
		}
		c.Logf("%-12s %5d whole, %d of them continued, %d ended by name, %d wrong", a.name, n.whole, n.continued, n.named, n.wrong)
		sum.whole, sum.continued, sum.named, sum.wrong = sum.whole+n.whole, sum.continued+n.continued, sum.named+n.named, sum.wrong+n.wrong
	}
	c.Logf("%d peers died in %s; of %d answers %d were whole, %d of them continued, %d ended by an error that names why, %d were wrong", deaths, *churnFor,
		sum.whole+sum.named+sum.wrong, sum.whole, sum.continued, sum.named, sum.wrong)
	if deaths < int(*churnFor/between)/3 || sum.continued < 10*deaths {
		c.Errorf("that was no churn")
	}
}

// rest is what an entrance has while nobody asks.
type rest struct{ goroutines, files float64 }

// eachIdle waits until every entrance has nothing under way and stays as it is, and says
// what it has.
func (c *churn) eachIdle() (all []rest) {
	c.Helper()
	c.client.CloseIdleConnections()
	for _, p := range c.entrances {
		var is rest
		same := 0
		c.must(stage.Until(context.WithoutCancel(c.Context()), p.Name+" is at rest", func() bool {
			m, err := c.metrics(p)
			if err != nil {
				return false
			}
			now := rest{m["go_goroutines"], m["process_open_fds"]}
			if m["relay_in_flight"] > 0 || now.goroutines > is.goroutines+2 || now.goroutines < is.goroutines-2 {
				is, same = now, 0
				return false
			}
			same++
			return same > 100
		}))
		all = append(all, is)
	}
	return all
}

// metrics are a peer's, those of one name added up.
func (c *churn) metrics(p *stage.Peer) (map[string]float64, error) {
	r, err := http.NewRequest(http.MethodGet, p.Door+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+churnKey)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(lines.Text()[:at], "{")
		all[name] += v
	}
	if all["go_goroutines"] == 0 {
		return nil, fmt.Errorf("%s shows no metrics: %s", p.Name, response.Status)
	}
	return all, nil
}
