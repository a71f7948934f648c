package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/cmd/lab"
	"relay/cmd/stage"
)

// TestNetCodingAgents has coding agents do one edit, on a machine without a route to
// anywhere, by what the stand-in of a model says. They speak to a peer that only passes
// on: opencode by chat completions, codex by responses.
func TestNetCodingAgents(t *testing.T) {
	if err := lab.Needs(); err != nil {
		t.Skip(err)
	}
	node := installClients(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"serving", "entrance"} {
		if err := l.Add(name); err != nil {
			t.Fatal(err)
		}
	}
	repo := map[string]string{"opencode": t.TempDir(), "codex": t.TempDir()}
	m := newClientMesh(t, stage.Options{On: l.On, Dial: l.Dial}, agentScript(t, repo))
	on := func(t *testing.T, agent string, env []string, args ...string) {
		t.Helper()
		program := filepath.Join(clientsDir, "node_modules", args[0])
		if !isFile(program) {
			t.Skipf("%s has no program for this machine", agent)
		}
		program, err := filepath.Abs(program)
		if err != nil {
			t.Fatal(err)
		}
		edits(t, repo[agent], func(ctx context.Context) *exec.Cmd {
			line := append(l.On("entrance"), program)
			line = append(line, args[1:]...)
			cmd := exec.CommandContext(ctx, line[0], line[1:]...)
			cmd.Dir = repo[agent]
			cmd.Env = append([]string{"PATH=" + filepath.Dir(node) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "RELAY_KEY=" + m.Key}, env...)
			return cmd
		})
	}

	t.Run("opencode", func(t *testing.T) {
		config, err := json.Marshal(map[string]any{
			"provider": map[string]any{"relay": map[string]any{
				"npm": "@ai-sdk/openai-compatible", "options": map[string]any{"baseURL": m.entrance.Door + "/v1", "apiKey": "{env:RELAY_KEY}"},
				"models": map[string]any{"agent": map[string]any{"limit": map[string]any{"context": agentContext, "output": 4096}}},
			}},
			"model": "relay/agent", "permission": "allow", "autoupdate": false, "share": "disabled",
		})
		if err != nil {
			t.Fatal(err)
		}
		on(t, "opencode", []string{"OPENCODE_CONFIG_CONTENT=" + string(config), "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1"},
			"opencode-linux-x64-baseline/bin/opencode", "run", "Correct the greeting in hello.txt")
	})
	t.Run("codex", func(t *testing.T) {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, "config.toml"), fmt.Appendf(nil, codexConfig, m.entrance.Door), 0o600); err != nil {
			t.Fatal(err)
		}
		on(t, "codex", []string{"CODEX_HOME=" + home}, ".bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Mend the greeting in hello.txt")
	})
}

// codexConfig is where codex finds the door. What it has from OpenAI's machines is off: a
// web search, and tools that are named in groups.
const codexConfig = `model = "agent"
model_provider = "relay"
model_context_window = 65536
web_search = "disabled"

[model_providers.relay]
name = "relay"
base_url = "%s/v1"
env_key = "RELAY_KEY"
wire_api = "responses"

[features]
multi_agent = false
`

// agentScript is what a model does that is asked for a correction by each agent, whose
// tools have names of their own.
func agentScript(t *testing.T, repo map[string]string) string {
	t.Helper()
	type call struct {
		Name      string `json:"name"`
		Arguments any    `json:"arguments"`
	}
	type turn struct {
		Content string `json:"content,omitempty"`
		Calls   []call `json:"tool_calls,omitempty"`
	}
	type script struct {
		Match string `json:"match"`
		Turns []turn `json:"turns"`
	}
	file := filepath.Join(repo["opencode"], "hello.txt")
	b, err := json.Marshal([]script{
		{"Correct the greeting", []turn{
			{Content: "I look at the file first.", Calls: []call{{"read", map[string]string{"filePath": file}}}},
			{Calls: []call{{"edit", map[string]string{"filePath": file, "oldString": "hello wrold", "newString": "hello world"}}}},
			{Content: "The greeting is right now."},
		}},
		{"Mend the greeting", []turn{
			{Content: "I look at the file first.", Calls: []call{{"exec_command", map[string]string{"cmd": "cat hello.txt"}}}},
			{Calls: []call{{"exec_command", map[string]string{"cmd": "sed -i s/wrold/world/ hello.txt"}}}},
			{Content: "The greeting is right now."},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// edits runs an agent in a repository with a mistake, and wants it corrected.
func edits(t *testing.T, repo string, agent func(context.Context) *exec.Cmd) {
	t.Helper()
	file := filepath.Join(repo, "hello.txt")
	if err := os.WriteFile(file, []byte("hello wrold\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", repo, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := agent(ctx)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text, _ := os.ReadFile(file)
	if err != nil || string(text) != "hello world\n" || !strings.Contains(string(out), "The greeting is right now.") {
		t.Errorf("%v; the file says %q\n%s", err, text, tail(string(out), 6000))
	}
}
