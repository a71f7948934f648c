package llama

import (
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
