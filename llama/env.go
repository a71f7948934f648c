package llama

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// mayPass says whether an engine may inherit a variable: what finding
// libraries, choosing GPUs and showing text need. Everything else stays out,
// above all keys, tokens, and LLAMA_ARG_*, by which llama.cpp takes options.
func mayPass(name string) bool {
	switch name {
	case "PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH",
		"SystemRoot", "SYSTEMROOT", "windir", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
		"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HSA_OVERRIDE_GFX_VERSION",
		"ONEAPI_DEVICE_SELECTOR", "ZES_ENABLE_SYSMAN", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
		"VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_LOADER_DRIVERS_SELECT":
		return true
	}
	for _, prefix := range []string{"LC_", "CUDA_", "GGML_CUDA_", "GGML_VK_", "GGML_METAL_", "GGML_SYCL_", "GGML_HIP_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// maxEnv is how many variables a model's record may carry.
const maxEnv = 16

// allowedEnv are the variables that a model's record may carry, with what they
// may be: switches of how a GPU's kernels compute. Missing on purpose is
// whatever picks devices, moves memory from a GPU to the host or back, names a
// file, or makes the engine log more.
func allowedEnv() map[string]argKind {
	on := oneOf("1") // they count as set whatever they are
	all := map[string]argKind{
		"GGML_CUDA_DISABLE_FUSION":      oneOf("0", "1"),
		"GGML_CUDA_GRAPH_OPT":           oneOf("0", "1"),
		"GGML_CUDA_PDL":                 oneOf("0", "1"),
		"GGML_CUDA_CUBLAS_COMPUTE_TYPE": oneOf("f32", "f16", "bf16"),
		"GGML_VK_MAX_NODES_PER_SUBMIT":  number(1, 10_000),
	}
	for _, name := range []string{
		"GGML_CUDA_DISABLE_GRAPHS",
		"GGML_VK_DISABLE_ASYNC", "GGML_VK_DISABLE_BFLOAT16", "GGML_VK_DISABLE_COOPMAT", "GGML_VK_DISABLE_COOPMAT2",
		"GGML_VK_DISABLE_COOPMAT2_DECODE_VECTOR", "GGML_VK_DISABLE_DOT2", "GGML_VK_DISABLE_F16", "GGML_VK_DISABLE_FUSION",
		"GGML_VK_DISABLE_GRAPH_OPTIMIZE", "GGML_VK_DISABLE_INTEGER_DOT_PRODUCT", "GGML_VK_DISABLE_MMVQ", "GGML_VK_DISABLE_MULTI_ADD",
		"GGML_VK_DISABLE_OCP_FP4", "GGML_VK_FORCE_MMVQ", "GGML_VK_SERIALIZE_SUBMISSIONS",
		"GGML_METAL_BF16_DISABLE", "GGML_METAL_CONCURRENCY_DISABLE", "GGML_METAL_FUSION_DISABLE", "GGML_METAL_GRAPH_OPTIMIZE_DISABLE",
		"GGML_METAL_TENSOR_DISABLE",
	} {
		all[name] = on
	}
	return all
}

// CheckEnv says whether a model's record may carry these variables for its
// engine, each as NAME=VALUE. The error names the first that may not be.
func CheckEnv(env []string) error {
	if len(env) > maxEnv {
		return fmt.Errorf("%w: more than %d", ErrVariable, maxEnv)
	}
	allowed, seen := allowedEnv(), map[string]bool{}
	for _, v := range env {
		name, value, ok := strings.Cut(v, "=")
		shown := printable(name, 60)
		kind, may := allowed[name]
		switch {
		case !ok:
			return fmt.Errorf("%w: %q is not NAME=VALUE", ErrVariable, shown)
		case !may:
			return fmt.Errorf("%w: a model may not set %q; what may be set are switches of a GPU's kernels, such as GGML_CUDA_DISABLE_GRAPHS", ErrVariable, shown)
		case seen[name]:
			return fmt.Errorf("%w: %s is there twice", ErrVariable, name)
		case !kind.check(value):
			return fmt.Errorf("%w: %s wants %s, not %q", ErrVariable, name, kind.form, printable(value, 60))
		}
		seen[name] = true
	}
	return nil
}

// withModelEnv is env with a model's own variables, which CheckEnv has seen.
// What this machine's owner has set stands.
func withModelEnv(env, own []string) []string {
	for _, v := range own {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") }) {
			env = append(env, v)
		}
	}
	return env
}

// engineEnv is the environment for an engine whose own folder is home.
func engineEnv(environ []string, home, cache string) []string {
	set := map[string]string{
		// ggml would fork gdb at an abort, and llama.cpp look for its cache,
		// and CUDA for its own, in the user's home.
		"GGML_NO_BACKTRACE": "1",
		"HOME":              home,
		"USERPROFILE":       home,
		"TMPDIR":            home,
		"TEMP":              home,
		"TMP":               home,
		"XDG_CACHE_HOME":    cache,
		"LLAMA_CACHE":       filepath.Join(cache, "llama.cpp"),
		"CUDA_CACHE_PATH":   filepath.Join(cache, "cuda"),
	}
	var env []string
	for _, v := range environ {
		name, _, ok := strings.Cut(v, "=")
		if _, ours := set[name]; ok && !ours && mayPass(name) {
			env = append(env, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	// CUDA counts GPUs as nvidia-smi does, unless this machine's owner says otherwise.
	const order = "CUDA_DEVICE_ORDER="
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, order) }) {
		env = append(env, order+"PCI_BUS_ID")
	}
	return env
}
