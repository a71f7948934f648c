//go:build linux

package seam

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// engine is a peer's llama-server: its process, and the words that started it.
type engine struct {
	pid   int
	words []string
}

// engines finds those of all peers, by the peers' names.
func (m *Mesh) engines() (map[string]engine, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	found := map[string]engine{}
	for _, path := range lines {
		said, err := os.ReadFile(path)
		words := strings.Split(strings.TrimSuffix(string(said), "\x00"), "\x00")
		at := slices.Index(words, "--host") + 1 // The socket, which lies with the peer.
		if err != nil || filepath.Base(words[0]) != "llama-server" || at == 0 || at == len(words) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		for _, name := range m.serving {
			if p := m.Peer(name); p != nil && strings.HasPrefix(words[at], p.State()+string(filepath.Separator)) {
				found[name] = engine{pid, words}
			}
		}
	}
	return found, nil
}

// signal sends a signal to a peer's process and to its engine's.
func (v victim) signal(s syscall.Signal) error {
	return errors.Join(syscall.Kill(v.peer.Pid(), s), syscall.Kill(v.engine.pid, s))
}
