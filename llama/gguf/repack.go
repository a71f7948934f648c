package gguf

import (
	"runtime"

	parser "github.com/gpustack/gguf-parser-go"
)

// Repacked says whether llama.cpp keeps some of the model's weights in an order
// of its own where it computes with them on this machine's CPU: in memory that
// is not the file's, so that mapping the file would take them a second time.
// args are the engine arguments of the model's record.
func (h Header) Repacked(args []string) bool {
	if h.file == nil || !(Serving{Args: args}).flags().repack {
		return false
	}
	for _, t := range h.file.TensorInfos {
		if repacks(runtime.GOARCH, t) {
			return true
		}
	}
	return false
}

// repacks says whether llama.cpp may repack a tensor on a CPU of that kind. The
// types are those of ggml_repack_get_optimal_repack_type; some of them depend
// on what a processor has, and are taken for repacked on all.
func repacks(goarch string, t parser.GGUFTensorInfo) bool {
	if t.NDimensions < 2 || t.Dimensions[1]%4 != 0 {
		return false
	}
	switch t.Type {
	case parser.GGMLTypeQ4_0, parser.GGMLTypeQ4_K, parser.GGMLTypeIQ4_NL, parser.GGMLTypeMXFP4:
		return goarch == "amd64" || goarch == "arm64"
	case parser.GGMLTypeQ2_K:
		return goarch == "amd64"
	case parser.GGMLTypeQ5_K, parser.GGMLTypeQ6_K, parser.GGMLTypeQ8_0:
		return goarch == "arm64"
	}
	return false
}
