package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckArgs(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--temp", "0.7", "--top-k", "40", "--seed", "-1"},
		{"--temp=0.7", "--min-p=0.05"},
		{"-fa", "on", "-ctk", "q8_0", "--cache-type-v=q8_0"},
		{"-b", "512", "-ub", "128"},
		{"-ub", "1"},
		{"--chat-template-kwargs", `{"enable_thinking":false}`},
		{"--chat-template-kwargs={\"a\":\"b=c\"}"},
		{"--chat-template", "chatml", "--no-jinja"},
		{"--reasoning-format", "none", "--reasoning-budget", "0"},
		{"--rope-scaling", "yarn", "--rope-freq-base", "1000000", "--yarn-orig-ctx", "32768"},
		{"--pooling", "mean", "--swa-full", "--samplers", "top_k;temperature"},
	} {
		if err := CheckArgs(args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"temp", "1"}, "begin with -"},
		{[]string{"--temp"}, "wants a value"},
		{[]string{"--temp", "hot"}, "a number from 0 to 100"},
		{[]string{"--temp", "1e9"}, "a number"},
		{[]string{"--temp", "NaN"}, "a number"},
		{[]string{"--temp", "0x1p4"}, "a number"},
		{[]string{"--temp", "--top-k"}, "a number"},
		{[]string{"--top-k", "1.5"}, "a whole number"},
		{[]string{"--swa-full=1"}, "takes no value"},
		{[]string{"--pooling mean"}, "write it --pooling=mean"},
		{[]string{"--jinja on"}, "may not set"},
		{[]string{"--swa-full", "1"}, "begin with -"},
		{[]string{"-b", "100000"}, "from 32 to 8192"},
		{[]string{"--chat-template", "{{ x }}"}, "built-in template"},
		{[]string{"--chat-template", "/etc/passwd"}, "built-in template"},
		{[]string{"--chat-template", "a\nb"}, "built-in template"},
		{[]string{"--chat-template-kwargs", "[1]"}, "a JSON object"},
		{[]string{"--chat-template-kwargs", "null"}, "a JSON object"},
		{[]string{"--chat-template-kwargs", `{"a":"` + strings.Repeat("x", maxArgBytes) + `"}`}, "a JSON object"},
		{slices.Repeat([]string{"--temp", "1"}, maxArgs+1), "more than 64"},
		{slices.Repeat([]string{"--temp=1"}, maxArgs+1), "more than 64"},
	} {
		err := CheckArgs(c.args)
		if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%.80q: %v", c.args, err)
		}
	}
}

// What opens files, hosts, ports, programs or logs, decides where a model runs,
// or would undo what relay sets.
func TestCheckArgsForbidden(t *testing.T) {
	for _, name := range []string{
		"-m", "--model", "-mu", "--model-url", "-hf", "--hf-repo", "-hff", "-hft", "--hf-token", "-dr", "--docker-repo",
		"--lora", "--lora-scaled", "--control-vector", "--mmproj", "-mm", "--mmproj-url", "-mmu", "--model-draft", "-md", "-hfd",
		"--grammar-file", "--json-schema-file", "-jf", "--chat-template-file", "--log-file", "--log-prompts-dir", "--slot-save-path", "--media-path",
		"--lookup-cache-static", "--lookup-cache-dynamic", "-lcs", "-lcd", "--path", "--models-dir", "--models-preset", "--ui-config-file",
		"--host", "--port", "--reuse-port", "--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file", "--api-prefix", "--cors-origins",
		"--rpc", "--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json", "--agent", "--ui", "--ui-mcp-proxy", "--props",
		"--slots", "--metrics", "--video-ffmpeg-dir", "-v", "--verbose", "-lv", "--verbosity", "--log-disable",
		"-c", "--ctx-size", "-np", "--parallel", "-ngl", "--gpu-layers", "-dev", "--device", "-ts", "-sm", "-mg", "-ot", "--fit", "-fit",
		"-cram", "--cache-ram", "-kvu", "--kv-unified", "--ctx-checkpoints", "-t", "--threads", "--threads-http", "--prio", "-C", "--numa",
		"--mlock", "--load-mode", "--no-mmap", "--timeout", "--alias", "--embeddings", "--reranking", "--override-kv", "--offline", "--spec-type",
		"--completion-bash", "--version", "--help", "--list-devices", "--fim-qwen-7b-default", "--gpt-oss-20b-default",
	} {
		for _, args := range [][]string{{name}, {name, "1"}, {name + "=1"}} {
			if err := CheckArgs(args); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "may not set") {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
}

// Whatever passes comes out as known names with values that are one word each.
func TestSplitArgs(t *testing.T) {
	names := []string{}
	for name := range allowedArgs() {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(
			rapid.SampledFrom(names), rapid.String(), rapid.SampledFrom([]string{"1", "0.5", "on", "f16", "none", "{}", "--model", "/etc/passwd", "-1"}),
			rapid.Custom(func(t *rapid.T) string {
				return rapid.SampledFrom(names).Draw(t, "name") + "=" + rapid.SampledFrom([]string{"1", "0.5", "on", "x y", "\n"}).Draw(t, "value")
			}),
		)
		list, err := splitArgs(rapid.SliceOfN(word, 0, 8).Draw(t, "args"))
		if err != nil {
			return
		}
		var words []string
		for _, a := range list {
			kind, ok := allowedArgs()[a.name]
			if !ok || a.bare != (kind.check == nil) || !a.bare && !kind.check(a.value) {
				t.Fatalf("%+v passed", a)
			}
			words = append(words, a.words()...)
		}
		if again, err := splitArgs(words); err != nil || !slices.Equal(again, list) {
			t.Fatalf("%q became %v %v", words, again, err)
		}
	})
}

func FuzzCheckArgs(f *testing.F) {
	f.Add("--temp\x000.7\x00--top-k=1")
	f.Add("--chat-template-kwargs\x00{\"a\":1}")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := splitArgs(strings.Split(s, "\x00"))
		if err != nil {
			if !errors.Is(err, ErrArgument) {
				t.Error(err)
			}
			return
		}
		for _, a := range list {
			if _, ok := allowedArgs()[a.name]; !ok || strings.ContainsAny(a.value, "\x00\r\n") {
				t.Errorf("%+v passed", a)
			}
		}
	})
}
