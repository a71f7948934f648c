package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"relay/store"
)

// maxSocketPath is what every system takes as the path of a unix socket (macOS
// the least, 104 bytes with the zero at its end).
const maxSocketPath = 103

// controlSocket is where commands reach the peer of a state folder: inside it,
// or, where that path is too long for a socket, in a folder of this user's own.
func controlSocket(tree store.Tree) (string, error) {
	path := tree.ControlSocket()
	if len(path) <= maxSocketPath {
		return path, nil
	}
	who := "user"
	if u, err := user.Current(); err == nil {
		who = u.Uid
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "relay-"+filepath.Base(who))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for the control socket: %w", err)
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || openToOthers(info) {
		return "", fmt.Errorf("%s is open to others, so the control socket cannot lie there: set RELAY_STATE_DIR to a shorter path", dir)
	}
	sum := sha256.Sum256([]byte(tree.Root))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock"), nil
}
