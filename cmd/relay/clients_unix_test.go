//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/cmd/stage"
	"relay/llama/demo"
	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
)

// clientsDir has the clients that /v1 is tested with.
const clientsDir = "../../api/clients"

// toolScript has a model that is asked for the weather in two places ask for both at once.
const toolScript = `[{"match": "weather in Rome and Oslo", "turns": [
  {"tool_calls": [{"name": "weather", "arguments": {"place": "Rome"}}, {"name": "weather", "arguments": {"place": "Oslo"}}]},
  {"content": "It is sunny in both."}
]}]`

// TestClients drives the door as people do: with the clients that they have, as
// they come. The peer that they ask lends nothing: each answer comes from the
// other one, whose engines are the stand-in.
func TestClients(t *testing.T) {
	node := installClients(t)
	m := newClientMesh(t, stage.Options{}, toolScript)
	files, err := filepath.Glob(clientsDir + "/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test of a client: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".test.mjs"), func(t *testing.T) {
			m.command(t, 2*time.Minute, node, "--test", "--test-reporter=spec", filepath.Base(file))
		})
	}
}

// TestClientsGo runs openai-go: our tests with it, and its own, which send every field
// that there is. Each of those passes, or fails on what the door says it cannot do;
// which, is in testdata/openai_go.golden.
func TestClientsGo(t *testing.T) {
	m := newClientMesh(t, stage.Options{}, toolScript)
	for model, names := range map[string][]string{
		"chat": {"gpt-5.4", "model", "gpt-5.1", "gpt-4o-mini", "gpt-3.5-turbo-instruct"}, "embed": {"text-embedding-3-small"},
	} {
		args := []string{"model", "set", model}
		for _, name := range names {
			args = append(args, "--alias", name)
		}
		if _, err := m.Relay(t.Context(), m.serving, args...); err != nil {
			t.Fatal(err)
		}
	}
	// -vet=off: it is theirs.
	out, _ := m.run(t, 8*time.Minute, "go", "test", "-count=1", "-vet=off", "-json", "-run", "^Test(ChatCompletion|Completion|Embedding|Model|Response|InputItem|InputToken)(Message)?(New|Get|Update|List|Delete|Cancel|Compact|Count)(WithOptionalParams)?$",
		"github.com/openai/openai-go/v3", "github.com/openai/openai-go/v3/responses")
	got := outcomes(t, out, strings.NewReplacer(m.entrance.Door, "http://DOOR"))
	if len(got) < 15 {
		t.Fatalf("%d of openai-go's own tests ran:\n%s", len(got), tail(out, 4000))
	}
	text := strings.Join(got, "\n") + "\n"
	const path = "testdata/openai_go.golden"
	if updating() {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != text {
		t.Errorf("%s is not what it was (-update if it should not be): %v\n%s", path, err, text)
	}
	m.command(t, 5*time.Minute, "go", "test", "-count=1", ".")
}

func updating() bool { return flag.Lookup("update").Value.String() == "true" }

// outcomes are the tests of `go test -json`, with what failed.
func outcomes(t *testing.T, out string, tidy *strings.Replacer) (list []string) {
	t.Helper()
	said := map[string]string{}
	for line := range strings.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal([]byte(line), &event) != nil || event.Test == "" {
			continue
		}
		switch event.Action {
		case "output":
			if _, text, ok := strings.Cut(event.Output, "err should be nil: "); ok {
				said[event.Test] = strings.TrimSpace(requestID.ReplaceAllString(tidy.Replace(text), "req-…"))
			}
		case "pass":
			list = append(list, event.Test+"\n  passes")
		case "fail":
			if !strings.Contains(said[event.Test], ": 400 Bad Request ") {
				t.Errorf("%s fails, and not by a refusal: %q", event.Test, said[event.Test])
			}
			list = append(list, event.Test+"\n  "+said[event.Test])
		}
	}
	slices.Sort(list)
	return list
}

var requestID = regexp.MustCompile(`req-[0-9a-f]{8,}`)

// TestClientsDocs runs what docs/clients.md has to copy.
func TestClientsDocs(t *testing.T) {
	node := installClients(t)
	text, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	m := newClientMesh(t, stage.Options{}, toolScript)
	modules, err := filepath.Abs(clientsDir + "/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllSubmatch(text, -1) {
		language, code := string(block[1]), block[2]
		how, ok := map[string]struct {
			file string
			line []string
		}{
			"bash": {"snippet.sh", []string{"bash", "-euo", "pipefail"}},
			"ts":   {"snippet.mts", []string{node, "--disable-warning=ExperimentalWarning"}},
			"go":   {"main.go", []string{"go", "run"}},
		}[language]
		if !ok {
			continue
		}
		ran[language]++
		t.Run(fmt.Sprintf("%s %d", language, ran[language]), func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, how.file)
			// The packages are looked for where the file is.
			if err := errors.Join(os.WriteFile(path, code, 0o600), os.Symlink(modules, filepath.Join(dir, "node_modules"))); err != nil {
				t.Fatal(err)
			}
			out, err := m.run(t, 2*time.Minute, how.line[0], append(how.line[1:], path)...)
			if err != nil || strings.TrimSpace(out) == "" {
				t.Errorf("%v\n%s\n%s", err, tail(out, 4000), code)
			}
		})
	}
	if ran["bash"] < 3 || ran["ts"] < 5 || ran["go"] < 1 {
		t.Errorf("only these ran: %v", ran)
	}
}

// installClients has npm install the clients at the versions of the lock file,
// unless they are there, and returns the node that runs them.
func installClients(t *testing.T) (node string) {
	t.Helper()
	lock, err := os.ReadFile(clientsDir + "/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(clientsDir + "/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	// npm itself keeps no copy of the lock file that it has installed from.
	mark := filepath.Join(dir, ".installed")
	if done, err := os.ReadFile(mark); err != nil || !bytes.Equal(done, lock) {
		npm, err := exec.LookPath("npm")
		if err != nil {
			t.Fatalf("npm is missing, which installs the clients that the door is tested with: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, npm, "ci")
		cmd.Dir = clientsDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm ci in api/clients: %v (is the npm registry in reach?)\n%s", err, tail(string(out), 2000))
		}
		if err := os.WriteFile(mark, lock, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if node = filepath.Join(dir, ".bin", "node"); isFile(node) {
		return node
	}
	// There is none for this machine among the packages.
	if node, err = exec.LookPath("node"); err != nil {
		t.Fatalf("node is missing, which runs the clients: %v", err)
	}
	return node
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// A clientMesh is a peer that serves models on stand-ins, and one that only passes
// requests on, which is the one that clients know.
type clientMesh struct {
	*stage.Stage
	serving, entrance *stage.Peer
	// engines is where each stand-in has written the path of its socket, by the
	// model's name.
	engines string
	// control is the URL below which /MODEL/sim/… are the stand-ins' control routes.
	control string
	// script is the path of what the stand-ins say in chats that it is for.
	script string
	// keys are the secrets of named keys.
	keys map[string]string
}

// agentContext is the context of the model that coding agents use, in tokens: they have
// much to say before they ask.
const agentContext = 1 << 16

// clientModels are those of a clientMesh, with what their stand-ins are told besides.
var clientModels = []struct {
	name, options string
	add           []string
	projector     bool
}{
	{name: "chat", add: []string{"--slots", "4", "--ctx", "4096"}},
	// One request at a time, 25 tokens a second: to be left in the middle.
	{name: "slow", options: "--decode 25", add: []string{"--slots", "1", "--ctx", "4096"}},
	{name: "agent", add: []string{"--slots", "2", "--ctx", strconv.Itoa(agentContext)}},
	{name: "faulty", add: []string{"--slots", "2", "--ctx", "4096"}},
	{name: "embed", add: []string{"--kind", "embed", "--slots", "2", "--ctx", "1024"}},
	{name: "rank", add: []string{"--kind", "rerank", "--slots", "2", "--ctx", "1024"}},
	{name: "vision", add: []string{"--slots", "2", "--ctx", "4096"}, projector: true},
}

// clientKeys are keys with limits.
var clientKeys = map[string][]string{
	"embed":  {"--models", "embed"},
	"single": {"--max-concurrency", "1"},
	"rare":   {"--requests-per-minute", "1"},
}

// toolTemplate is a chat template with a place for tools, which the stand-in does not read.
const toolTemplate = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

// apiKey is what openai-go's own tests send.
const apiKey = "My API Key"

// newClientMesh makes one of peers that are started as o says, whose stand-ins say in
// chats what a script of sim-engine has.
func newClientMesh(t *testing.T, o stage.Options, script string) *clientMesh {
	t.Helper()
	m := &clientMesh{}
	own := t.TempDir()
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	o.Env = func(peer string) []string {
		if peer == "entrance" {
			return append(withoutEngine(peer), "RELAY_API_KEY="+apiKey)
		}
		return []string{"RELAY_SANDBOX=off", "RELAY_LLAMA_BIN=" + filepath.Join(own, "llama-server")}
	}
	m.Stage = newStage(t, o)
	t.Cleanup(func() {
		if t.Failed() {
			m.tell(t)
		}
	})
	m.engines = filepath.Join(own, "engines")
	m.script = filepath.Join(own, "script.json")
	must(os.Mkdir(m.engines, 0o700), os.WriteFile(m.script, []byte(script), 0o600))
	must(os.WriteFile(filepath.Join(own, "llama-server"), []byte(m.wrapper()), 0o700))
	ctx := t.Context()
	var err error
	m.serving, err = m.Up(ctx, "serving")
	must(err)
	invite, err := m.Invite(ctx, m.serving)
	must(err)
	m.entrance, err = m.Up(ctx, "entrance", "--join", invite, "--lend", "none")
	must(err)

	file, projector := filepath.Join(own, "model.gguf"), filepath.Join(own, "projector.gguf")
	shape, err := gguftest.Parse(demo.GGUF())
	must(err)
	must(os.WriteFile(file, shape.With("llama.context_length", uint32(agentContext)).With("tokenizer.chat_template", toolTemplate).Bytes(), 0o600))
	header, err := gguf.Read(file)
	must(err)
	must(os.WriteFile(projector, gguftest.Projector(int(header.EmbeddingLength)).Bytes(), 0o600))
	for _, model := range clientModels {
		args := append([]string{"model", "add", model.name, file}, model.add...)
		if model.projector {
			args = append(args, "--mmproj", projector)
		}
		_, err := m.Relay(ctx, m.serving, args...)
		must(err)
	}
	must(stage.Until(ctx, "the entrance knows the models", func() bool {
		st, ok := m.Status(ctx, m.entrance)
		return ok && len(st.Models) == len(clientModels)
	}))
	m.control = m.controls(t)
	m.keys = map[string]string{}
	for name, limits := range clientKeys {
		out, err := m.Relay(ctx, m.serving, append([]string{"key", "add", name}, limits...)...)
		must(err)
		m.keys[name] = regexp.MustCompile(`rk-\S+`).FindString(out)
	}
	return m
}

// wrapper is the script that stands for llama-server. It leaves a note of where
// the stand-in of each model listens.
func (m *clientMesh) wrapper() string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nfor arg; do\n  case $before in --alias) name=$arg;; --host) host=$arg;; esac\n  before=$arg\ndone\ncase $name in\n")
	for _, model := range clientModels {
		if model.options != "" {
			fmt.Fprintf(&b, "%s) options='%s';;\n", model.name, model.options)
		}
	}
	fmt.Fprintf(&b, "esac\n[ -z \"$name\" ] || printf %%s \"$host\" >'%s'/\"$name\"\n", m.engines)
	fmt.Fprintf(&b, "exec '%s' sim-engine --script '%s' $options \"$@\"\n", m.Binary, m.script)
	return b.String()
}

// controls serves the control routes of the stand-ins on a port of this machine.
func (m *clientMesh) controls(t *testing.T) string {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			model, rest, _ := strings.Cut(strings.TrimPrefix(r.In.URL.Path, "/"), "/")
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = "http", model, "/"+rest
		},
		Transport: &http.Transport{
			DisableKeepAlives: true, // The stand-in may be another one the next time.
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				model, _, _ := net.SplitHostPort(address)
				path, err := os.ReadFile(filepath.Join(m.engines, model))
				if err != nil {
					return nil, err
				}
				return (&net.Dialer{}).DialContext(ctx, "unix", string(path))
			},
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}

// environ is what a client is told of the mesh.
func (m *clientMesh) environ() []string {
	return append(os.Environ(),
		"OPENAI_BASE_URL="+m.entrance.Door+"/v1", "OPENAI_API_KEY="+m.Key, "TEST_API_BASE_URL="+m.entrance.Door+"/v1",
		"ANTHROPIC_BASE_URL="+m.entrance.Door, "ANTHROPIC_API_KEY="+m.Key,
		"RELAY_TEST_CONTROL="+m.control,
		"RELAY_TEST_EMBED_KEY="+m.keys["embed"], "RELAY_TEST_SINGLE_KEY="+m.keys["single"], "RELAY_TEST_RARE_KEY="+m.keys["rare"])
}

// command runs one in the clients' folder, and wants it to succeed.
func (m *clientMesh) command(t *testing.T, within time.Duration, name string, args ...string) {
	t.Helper()
	if out, err := m.run(t, within, name, args...); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, tail(out, 12000))
	}
}

// run runs one in the clients' folder, however it ends, and returns what it prints.
func (m *clientMesh) run(t *testing.T, within time.Duration, name string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = clientsDir, m.environ()
	cmd.WaitDelay = time.Second
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// tell shows the logs of the peers.
func (m *clientMesh) tell(t *testing.T) {
	for _, p := range []*stage.Peer{m.serving, m.entrance} {
		if p == nil {
			continue
		}
		log, _ := os.ReadFile(p.Log())
		t.Logf("--- %s\n%s\n%s", p.Name, tail(p.Printed(), 1000), tail(string(log), 4000))
	}
}
