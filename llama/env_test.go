package llama

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckEnv(t *testing.T) {
	for _, env := range [][]string{
		nil,
		{"GGML_CUDA_DISABLE_GRAPHS=1"},
		{"GGML_CUDA_DISABLE_FUSION=0", "GGML_VK_DISABLE_COOPMAT=1", "GGML_VK_MAX_NODES_PER_SUBMIT=64"},
	} {
		if err := CheckEnv(env); err != nil {
			t.Errorf("%q: %v", env, err)
		}
	}
	var many []string
	for i := range maxEnv + 1 {
		many = append(many, fmt.Sprintf("A%d=1", i))
	}
	for _, c := range []struct {
		env  []string
		text string
	}{
		{[]string{"GGML_CUDA_DISABLE_GRAPHS"}, "NAME=VALUE"},
		{[]string{""}, "NAME=VALUE"},
		{[]string{"=1"}, "may not set"},
		{[]string{"PATH=/tmp"}, "may not set"},
		{[]string{"LD_PRELOAD=/x.so"}, "may not set"},
		{[]string{"LD_LIBRARY_PATH=/x"}, "may not set"},
		{[]string{"LLAMA_ARG_HOST=0.0.0.0"}, "may not set"},
		{[]string{"CUDA_VISIBLE_DEVICES=1"}, "may not set"},
		{[]string{"GGML_VK_VISIBLE_DEVICES=1"}, "may not set"},
		{[]string{"GGML_CUDA_ENABLE_UNIFIED_MEMORY=1"}, "may not set"},
		{[]string{"GGML_VK_PREFER_HOST_MEMORY=1"}, "may not set"},
		{[]string{"GGML_VK_PERF_LOGGER=1"}, "may not set"},
		{[]string{"GGML_METAL_CAPTURE_COMPUTE=1"}, "may not set"},
		{[]string{"ggml_cuda_disable_graphs=1"}, "may not set"},
		{[]string{" GGML_CUDA_DISABLE_GRAPHS=1"}, "may not set"},
		{[]string{"GGML_CUDA_DISABLE_GRAPHS="}, "wants one of 1"},
		{[]string{"GGML_CUDA_DISABLE_GRAPHS=1 "}, "wants one of 1"},
		{[]string{"GGML_CUDA_DISABLE_GRAPHS=1\x00A=b"}, "wants one of 1"},
		{[]string{"GGML_VK_MAX_NODES_PER_SUBMIT=0"}, "from 1 to 10000"},
		{[]string{"GGML_VK_MAX_NODES_PER_SUBMIT=" + strings.Repeat("9", 1000)}, "from 1 to 10000"},
		{[]string{"GGML_CUDA_DISABLE_GRAPHS=1", "GGML_CUDA_DISABLE_GRAPHS=1"}, "twice"},
		{many, "more than 16"},
	} {
		err := CheckEnv(c.env)
		if !errors.Is(err, ErrVariable) || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 400 {
			t.Errorf("%.80q: %v", c.env, err)
		}
	}
}

// Whatever is let through is one of the names on the list with a short value,
// and is nothing that finds programs, libraries, files or devices.
func TestCheckEnvLetsNothingElseThrough(t *testing.T) {
	names := []string{"GGML_CUDA_DISABLE_GRAPHS", "GGML_VK_MAX_NODES_PER_SUBMIT", "PATH", "LD_PRELOAD", "GGML_CUDA_DEVICES", "GGML_VK_VISIBLE_DEVICES"}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.SampledFrom(names), rapid.StringMatching(`[A-Z_ ]{0,30}`)).Draw(t, "name") +
			rapid.SampledFrom([]string{"=", "", "==", "= "}).Draw(t, "sign") + rapid.OneOf(rapid.SampledFrom([]string{"0", "1", "64"}), rapid.String()).Draw(t, "value")
		if CheckEnv([]string{v}) != nil {
			return
		}
		name, value, _ := strings.Cut(v, "=")
		if _, ok := allowedEnv()[name]; !ok || len(value) > 8 || strings.ContainsAny(value, "\x00\n/ ") {
			t.Errorf("%q", v)
		}
	})
}

func TestModelEnv(t *testing.T) {
	got := withModelEnv([]string{"A=1", "GGML_CUDA_DISABLE_FUSION=0"}, []string{"GGML_CUDA_DISABLE_GRAPHS=1", "GGML_CUDA_DISABLE_FUSION=1"})
	if want := []string{"A=1", "GGML_CUDA_DISABLE_FUSION=0", "GGML_CUDA_DISABLE_GRAPHS=1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
