package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/membership"
	"relay/store/content"
)

// reportPatience bounds the telling of a mesh that this machine has erased itself.
const reportPatience = 20 * time.Second

// wipeOrder is what this machine is to erase. It is on disk before anything is
// erased, and until all of it is: a start after a crash goes on with it.
type wipeOrder struct {
	Mesh membership.MeshID `json:"mesh"`
	// Revoked: an admin ordered it, and the mesh is told when it is done. Peers
	// are its members, whose addresses go with the records.
	Revoked bool            `json:"revoked,omitempty"`
	Peers   []peer.AddrInfo `json:"peers,omitempty"`
	// Erased: only the mesh has still to be told.
	Erased bool `json:"erased,omitempty"`
}

// noteWipe puts down that this machine is to erase itself, where an admin said so
// when it was taken out of the mesh.
func (m *machine) noteWipe(node *p2p.Node) error {
	if !node.WipeOrdered() {
		return nil
	}
	return m.save(keyWipe, wipeOrder{Mesh: node.Mesh, Revoked: true, Peers: node.Contacts()})
}

// finishWipe erases what is to be erased, if anything is, tells the mesh, and says
// on w what it did. Nothing else of this machine may run. revoked says that it has
// erased itself just now, by the order of an admin. Again is for what an earlier
// run left to be done: a mesh that cannot be told then either is left be.
func (m *machine) finishWipe(ctx context.Context, w io.Writer, again bool) (revoked bool, err error) {
	var order wipeOrder
	if err := m.load(keyWipe, &order); err != nil || order.Mesh == "" {
		return false, err
	}
	if !order.Erased {
		text, err := m.erase(order.Mesh)
		if err != nil {
			return false, fmt.Errorf("not everything could be erased, the next start goes on with it: %w", err)
		}
		fmt.Fprintln(w, text)
		order.Erased = true
		if err := m.saveAll(map[string]any{keyWipe: order}, m.keysOf(order.Mesh)...); err != nil {
			return false, err
		}
		revoked = order.Revoked
	}
	if order.Revoked {
		ctx, cancel := context.WithTimeout(ctx, reportPatience)
		defer cancel()
		if err := p2p.ReportWiped(ctx, m.identity, order.Mesh, order.Peers); err != nil {
			m.log.Warn("the mesh does not know that this machine has erased itself", "error", err)
			if !again {
				return revoked, nil
			}
		}
	}
	return revoked, m.forget(keyWipe)
}

// keysOf are the keys of the space "machine" that are about a mesh which is left.
func (m *machine) keysOf(id membership.MeshID) []string {
	if current, err := m.mesh(); err != nil || current != "" && current != id {
		return nil // It has gone on to another one.
	}
	return []string{keyMesh, keyMeshName, keyAdmission, keyCarried, keyUnshown}
}

// erase deletes the models that this machine pulled, finished or not, what
// engines left behind, the logs, and last what it knows of the mesh. It keeps its
// identity, its keys, and every file that somebody else put where it is. It may be
// repeated.
func (m *machine) erase(id membership.MeshID) (text string, err error) {
	done, err := m.content.Erase()
	errs := []error{err}
	for _, dir := range []string{m.enginesDir(), m.kernelsDir(), m.shareKernelsDir(), m.tree.RPC()} {
		errs = append(errs, os.RemoveAll(dir))
	}
	errs = append(errs, m.eraseLogs(), m.tree.Create()) // The folders, empty.
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	for _, name := range []string{schedulerSpace(id), auditSpace(id), meshSpace(id)} {
		if err := m.db.Space(name).Drop(); err != nil {
			return "", err
		}
	}
	return erasedText(id, done, m.content.List()), nil
}

// eraseLogs empties the log that is being written, and deletes the others. Of a
// link only the name goes: it may lead to what is not relay's.
func (m *machine) eraseLogs() error {
	entries, err := os.ReadDir(m.tree.Log())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "relay.log") {
			continue
		}
		path := filepath.Join(m.tree.Log(), e.Name())
		if e.Type().IsRegular() {
			if err := os.Truncate(path, 0); err != nil {
				return err
			}
			if e.Name() == "relay.log" {
				continue
			}
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// erasedText says what was erased, and what was not.
func erasedText(id membership.MeshID, done content.Erased, left []content.Content) string {
	parts := []string{fmt.Sprintf("%s (%s)", plural(done.Files, "pulled model"), size(uint64(done.Bytes)))}
	if done.Unfinished > 0 {
		parts = append(parts, plural(done.Unfinished, "unfinished download"))
	}
	text := fmt.Sprintf("erased: %s, caches, logs, and the records of mesh %s", strings.Join(parts, ", "), id)
	for _, path := range done.Kept {
		text += fmt.Sprintf("\nkept: %s (it was changed since it was pulled)", path)
	}
	for _, c := range left {
		text += fmt.Sprintf("\nkept: %s (registered where it lies)", c.Path)
	}
	return text
}
