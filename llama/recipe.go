package llama

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// Recipe is how the engine is built from source for one platform.
type Recipe struct {
	// Flags are the arguments for cmake that describe the build.
	Flags []string
	// Include is a file that cmake reads with the project.
	Include string
	// Targets are the programs that are built, and kept.
	Targets []string
}

//go:embed unity.cmake
var unityCMake string

// RecipeFor is the recipe for a platform, in Go's names. avx2 says whether an
// amd64 machine has AVX2, FMA, F16C and BMI2, as nearly all since 2013 do.
//
// GGML_NATIVE is off on amd64, so that one build runs on every machine with the
// same flags and the cache may be copied. LLAMA_BUILD_UI and
// LLAMA_USE_PREBUILT_UI are off because the latter downloads. GGML_OPENMP is
// off: ggml's own threads take part in --poll, and two engines on one CPU do
// not spin against one another.
func RecipeFor(goos, goarch string, avx2 bool) Recipe {
	r := Recipe{
		Flags: []string{
			"-DCMAKE_BUILD_TYPE=Release",
			"-DBUILD_SHARED_LIBS=OFF",
			"-DGGML_RPC=ON",
			"-DGGML_OPENMP=OFF",
			"-DGGML_CCACHE=OFF",
			"-DLLAMA_CURL=OFF",
			"-DLLAMA_OPENSSL=OFF",
			"-DLLAMA_BUILD_APP=OFF",
			"-DLLAMA_BUILD_TESTS=OFF",
			"-DLLAMA_BUILD_EXAMPLES=OFF",
			"-DLLAMA_BUILD_UI=OFF",
			"-DLLAMA_USE_PREBUILT_UI=OFF",
			"-DLLAMA_TOOLS_INSTALL=OFF",
		},
		Include: unityCMake,
		Targets: []string{"llama-server", "ggml-rpc-server", "llama-bench"},
	}
	switch {
	case goarch == "amd64" && avx2:
		r.Flags = append(r.Flags, "-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON")
	case goarch == "amd64":
		r.Flags = append(r.Flags, "-DGGML_NATIVE=OFF", "-DGGML_AVX2=OFF", "-DGGML_FMA=OFF", "-DGGML_F16C=OFF", "-DGGML_BMI2=OFF")
	default: // the dot product instructions differ too much from arm64 to arm64
		r.Flags = append(r.Flags, "-DGGML_NATIVE=ON")
	}
	if goos == "darwin" {
		r.Flags = append(r.Flags, "-DGGML_METAL_EMBED_LIBRARY=ON") // one file that runs anywhere
	}
	return r
}

// HostRecipe is the recipe for this machine.
func HostRecipe() Recipe {
	return RecipeFor(runtime.GOOS, runtime.GOARCH, cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasBMI2)
}

// Key names a build of the pinned source by a recipe: another source or
// another recipe gets another key.
func (p Pins) Key(r Recipe) string {
	h := sha256.New()
	for _, s := range append(append([]string{p.Source.Integrity, p.Source.Commit, r.Include}, r.Flags...), r.Targets...) {
		h.Write([]byte(s + "\x00"))
	}
	return p.Source.Commit[:7] + "-" + hex.EncodeToString(h.Sum(nil))[:8]
}

// CachedBuild is the folder where a build of that key is kept under the user's
// cache folder.
func CachedBuild(cacheDir, key string) string {
	return filepath.Join(cacheDir, "relay", "engines", key)
}

// BuildInfo is build.json, which lies beside the binaries of a finished build.
type BuildInfo struct {
	Key     string   `json:"key"`
	Commit  string   `json:"commit"`
	Version string   `json:"version"`
	RPC     string   `json:"rpc"`
	Flags   []string `json:"flags"`
	Seconds int      `json:"seconds"`
}

// Program is the file name of a program on an operating system.
func Program(goos, name string) string {
	if goos == "windows" && !strings.HasSuffix(name, ".exe") {
		return name + ".exe"
	}
	return name
}
