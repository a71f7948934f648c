package llama

import "strings"

// Engine is one llama.cpp build on this machine, asked for its version and its
// options once, when it was found.
type Engine struct {
	// Server is the absolute path of llama-server.
	Server string
	// RPCServer is the absolute path of ggml-rpc-server (or rpc-server, its
	// older name) beside it; empty where the build has none.
	RPCServer string
	// Version is what the engine calls itself, such as "0.4.0-dev".
	Version string
	// Commit is the llama.cpp commit it was built from, as short as the engine
	// prints it. Two builds of one commit may share a model.
	Commit string
	// RPC is the version of the protocol between coordinator and RPC servers,
	// such as "6.0.0"; empty where it could not be learnt.
	RPC string
	// Source says where it was found.
	Source Source
	// Passed lists builds that were looked at before this one and could not be
	// used, one sentence each.
	Passed []string

	flags map[string]bool // every option its --help names
	trace bool            // whether -lv 4 means "more info, no text of prompts"
}

// Source is a place where engines are looked for.
type Source string

// The places, in the order in which they are searched.
const (
	SourceSetting Source = "RELAY_LLAMA_BIN"
	SourceState   Source = "state folder"
	SourceCache   Source = "build cache"
	SourcePath    Source = "PATH"
)

// SameBuild says whether two commits, either of which may be shortened, are
// the same one. Unknown commits are never the same.
func SameBuild(a, b string) bool {
	const least = 7 // what git shortens a commit to
	return len(a) >= least && len(b) >= least && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// String names the build for people: "llama.cpp 0.4.0-dev (80fb11a)".
func (e Engine) String() string {
	s := "llama.cpp"
	if e.Version != "" {
		s += " " + e.Version
	}
	if e.Commit != "" {
		s += " (" + e.Commit + ")"
	}
	return s
}
