package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/llama"
	"relay/llama/tensorcache"
	"relay/p2p"
	"relay/p2p/keys"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler"
	"relay/store"
	"relay/store/content"
)

// machine is what this machine keeps between two starts, opened: the locked
// state folder, the database, the identity, and which mesh it belongs to.
type machine struct {
	tree     store.Tree
	lock     *store.Lock
	db       *store.DB
	own      *store.Space // What belongs to no mesh: settings, the mesh's id.
	content  *content.Store
	tensors  *tensorcache.Cache
	running  atomic.Pointer[scheduler.Scheduler] // Of the mesh that it is in; nil while none runs.
	identity crypto.PrivKey
	log      *slog.Logger
	kept     remembered // As in the database, with what this command line says.
	settings
}

// Keys of the space "machine".
const (
	keyMesh      = "mesh"      // The id of the mesh this machine is in.
	keyMeshName  = "mesh-name" // What it is to be called, until it has been founded.
	keySettings  = "settings"
	keyAdmission = "admission"      // Records of a join that no node has taken in yet.
	keyCarried   = "carried"        // Models on their way from a mesh that was left.
	keyPending   = "pending-invite" // Of `relay peer join` while no peer ran.
	keyLeaving   = "leaving"        // An order to leave the mesh, until that is done.
	keyWipe      = "wipe"           // What is to be erased, until it is.
	keyUnshown   = "unshown"        // Set from founding until the mesh's secrets were shown.
)

func openMachine(s settings, log *slog.Logger) (*machine, error) {
	lock, err := store.LockDir(s.stateDir)
	if err != nil {
		return nil, err
	}
	m := &machine{tree: lock.Tree, lock: lock, log: log, settings: s}
	if err := m.open(); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *machine) open() (err error) {
	if m.db, err = store.Open(m.tree.DB(), m.log.With("part", "store")); err != nil {
		return err
	}
	m.own = m.db.Space("machine")
	if m.identity, err = loadIdentity(m.tree); err != nil {
		return err
	}
	if m.modelsDir == "" {
		m.modelsDir = m.tree.Models()
	}
	if m.modelsDir, err = filepath.Abs(m.modelsDir); err != nil {
		return fmt.Errorf("RELAY_MODELS_DIR: %w", err)
	}
	if m.content, err = content.New(content.Options{Space: m.db.Space("content"), Dir: m.modelsDir, Logger: m.log.With("part", "content")}); err != nil {
		return err
	}
	if m.tensors, err = tensorcache.Open(m.tree.RPC(), tensorcache.Options{Room: m.tensorRoom}); err != nil {
		return err
	}
	var earlier remembered
	if err := m.load(keySettings, &earlier); err != nil {
		return err
	}
	m.kept, m.remembered = m.flags.over(earlier), m.remembered.over(earlier)
	if m.Name == "" {
		m.Name = hostName()
	}
	if m.kept != earlier {
		return m.save(keySettings, m.kept)
	}
	return nil
}

// tensorRoom refuses a tensor for which the disk has no room: as much stays free as
// relay wants there.
func (m *machine) tensorRoom(_ context.Context, bytes int64) error {
	free, total, err := store.DiskFree(m.tree.RPC())
	if err != nil {
		return err
	}
	if need := uint64(bytes) + scheduler.WantsFree(total); free < need {
		return scheduler.Errorf(scheduler.DiskFull, "its layers need %s more on the disk of %s, where %s are free", store.FormatBytes(need), m.tree.RPC(), store.FormatBytes(free))
	}
	return nil
}

func (m *machine) close() {
	if m.db != nil {
		if err := m.db.Close(); err != nil {
			m.log.Error("database not closed", "error", err)
		}
	}
	if err := m.lock.Release(); err != nil {
		m.log.Error("state folder not released", "error", err)
	}
}

func loadIdentity(tree store.Tree) (crypto.PrivKey, error) {
	data, err := store.ReadSecret(tree.IdentityKey())
	if err == nil {
		key, err := p2p.LoadIdentity(data)
		if err != nil {
			return nil, fmt.Errorf("%s is damaged: %w; put it back from a copy, or move it away: this machine is then another peer, and needs an invite to its mesh",
				tree.IdentityKey(), err)
		}
		return key, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	key, data, err := p2p.NewIdentity()
	if err != nil {
		return nil, err
	}
	return key, store.WriteSecret(tree.IdentityKey(), data)
}

func (m *machine) save(key string, v any) error { return m.saveAll(map[string]any{key: v}) }

func (m *machine) forget(key string) error { return m.saveAll(nil, key) }

// saveAll saves some and forgets others, all or nothing.
func (m *machine) saveAll(values map[string]any, forget ...string) error {
	var writes []store.Write
	for key, v := range values {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Key: []byte(key), Value: data})
	}
	for _, key := range forget {
		writes = append(writes, store.Write{Key: []byte(key), Delete: true})
	}
	return m.own.Apply(writes)
}

// load leaves v as it is where nothing was saved.
func (m *machine) load(key string, v any) error {
	data, ok, err := m.own.Get([]byte(key))
	if err != nil || !ok {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("the saved %s cannot be read: %w", key, err)
	}
	return nil
}

// coming are the models that are on their way from a mesh that was left.
func (m *machine) coming() (list []scheduler.Carried, err error) {
	err = m.load(keyCarried, &list)
	return list, err
}

// mesh is the id of the mesh that this machine is in, or "".
func (m *machine) mesh() (id membership.MeshID, err error) {
	err = m.load(keyMesh, &id)
	return id, err
}

// meshSpace is the space of the records of one mesh, schedulerSpace that of what
// a worker in it must not forget.
func meshSpace(id membership.MeshID) string      { return "mesh/" + string(id) }
func schedulerSpace(id membership.MeshID) string { return "scheduler/" + string(id) }

// auditSpace is the space of the requests that this machine's door answered as one of a
// mesh.
func auditSpace(id membership.MeshID) string { return "audit/" + string(id) }

// enginesDir holds a folder for each engine that runs, kernelsDir what GPUs keep
// compiled, shareKernelsDir that of rpc-servers.
func (m *machine) enginesDir() string      { return filepath.Join(m.tree.Run(), "engines") }
func (m *machine) kernelsDir() string      { return filepath.Join(m.tree.Run(), "kernels") }
func (m *machine) shareKernelsDir() string { return filepath.Join(m.tree.Run(), "kernels-rpc") }

// recordSpace is where the records of one mesh are kept.
func (m *machine) recordSpace(id membership.MeshID) record.Storage {
	return spaceStorage{m.db.Space(meshSpace(id))}
}

// spaceStorage is a store.Space in the words of package record.
type spaceStorage struct{ *store.Space }

func (s spaceStorage) Apply(writes []record.Write) error {
	list := make([]store.Write, len(writes))
	for i, w := range writes {
		list[i] = store.Write(w)
	}
	return s.Space.Apply(list)
}

// found makes a mesh of this machine's own: its key on disk first, then its id.
// The records are written by the first node (see newNode).
func (m *machine) found(name string) error {
	key, err := membership.NewMeshKey()
	if err != nil {
		return err
	}
	if err := m.moveAsideKeys(""); err != nil {
		return err
	}
	if err := store.WriteSecret(m.tree.MeshKey(), key.Seed()); err != nil {
		return err
	}
	if m.apiKey == "" {
		secret, _, err := keys.New()
		if err != nil {
			return err
		}
		if err := store.WriteSecret(m.tree.DefaultKey(), []byte(secret+"\n")); err != nil {
			return err
		}
	}
	if name == "" {
		name = m.Name + "'s mesh"
	}
	return m.saveAll(map[string]any{keyMeshName: name, keyMesh: key.ID(), keyUnshown: true})
}

// moveAsideKeys puts aside the keys of another mesh than the one given:
// nothing that may still be of use to somebody is deleted unasked. The mesh's
// own key comes last, as it tells whose the other one is.
func (m *machine) moveAsideKeys(id membership.MeshID) error {
	seed, err := store.ReadSecret(m.tree.MeshKey())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	former := membership.MeshID("damaged")
	if key, err := membership.MeshKeyFromSeed(seed); err == nil {
		former = key.ID()
	}
	if former == id {
		return nil
	}
	for _, path := range []string{m.tree.DefaultKey(), m.tree.MeshKey()} {
		err := os.Rename(path, path+"."+string(former))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// secrets of a mesh that was founded here, and its name.
type secrets struct{ mesh, recovery, key string }

// unshown are the secrets that nobody has been shown yet; none where they have.
func (m *machine) unshown(id membership.MeshID) (s secrets, err error) {
	var due bool
	if err := m.load(keyUnshown, &due); err != nil || !due {
		return s, err
	}
	key, mine := m.meshKey(id)
	if !mine {
		return s, fmt.Errorf("%s is not the key of mesh %s", m.tree.MeshKey(), id)
	}
	s.recovery = key.RecoveryCode()
	s.key, _ = m.defaultKey()
	return s, m.load(keyMeshName, &s.mesh)
}

// meshKey is the root key of the mesh, where this machine has it.
func (m *machine) meshKey(id membership.MeshID) (membership.MeshKey, bool) {
	seed, err := store.ReadSecret(m.tree.MeshKey())
	if err != nil {
		return membership.MeshKey{}, false
	}
	key, err := membership.MeshKeyFromSeed(seed)
	return key, err == nil && key.ID() == id
}

// defaultKey is the text of the default API key, where it was made here.
func (m *machine) defaultKey() (string, bool) {
	data, err := store.ReadSecret(m.tree.DefaultKey())
	return strings.TrimSpace(string(data)), err == nil && len(data) > 0
}

// admit joins the mesh of an invite and remembers it; whoever is in another
// mesh must have left it.
func (m *machine) admit(ctx context.Context, invite membership.Invite, carried []scheduler.Carried) (p2p.Admission, error) {
	admission, err := p2p.Join(ctx, m.identity, invite, m.Name, agent())
	if err != nil {
		return admission, err
	}
	return admission, m.saveAll(map[string]any{keyAdmission: admission, keyCarried: carried, keyMesh: admission.Mesh}, keyPending, keyUnshown)
}

// newNode opens the mesh's records, and writes those that founding or joining
// left to be written.
func (m *machine) newNode(id membership.MeshID, listen []string) (*p2p.Node, error) {
	node, err := m.openNode(id, listen)
	if err != nil {
		return nil, err
	}
	if err := m.settleIn(node, id); err != nil {
		node.Close()
		return nil, err
	}
	return node, nil
}

// openNode opens the mesh's records as they are.
func (m *machine) openNode(id membership.MeshID, listen []string) (*p2p.Node, error) {
	addrs, err := multiaddrs(listen)
	if err != nil {
		return nil, err
	}
	return p2p.New(p2p.Options{
		Identity: m.identity, Mesh: id, Storage: m.recordSpace(id), Name: m.Name, Agent: agent(),
		Kinds:  append(scheduler.Kinds(llama.CheckArgs, llama.CheckEnv), keys.RecordKind(), keys.UsageKind()),
		Listen: addrs, Blocks: m.content.Blocks(), Files: m.content,
		MayHave: func(id peer.ID, trust membership.Trust, c cid.Cid, from, to int64) bool {
			if s := m.running.Load(); s != nil {
				return s.MayHave(id, trust, c, from, to)
			}
			return trust == membership.TrustReplicas
		},
		Log: m.log.With("part", "p2p"),
	})
}

func (m *machine) settleIn(node *p2p.Node, id membership.MeshID) error {
	if err := m.moveAsideKeys(id); err != nil {
		return err
	}
	var admission p2p.Admission
	if err := m.load(keyAdmission, &admission); err != nil {
		return err
	}
	if admission.Mesh == id {
		if err := node.Adopt(admission); err != nil {
			return err
		}
		if err := m.forget(keyAdmission); err != nil {
			return err
		}
	}
	if node.Roster().Revoked(node.Self()) {
		return nil // Whether it stays so shows when others were heard: Run says it.
	}
	key, mine := m.meshKey(id)
	if _, in := node.Member(node.Self()); !in {
		if !mine {
			return fmt.Errorf("this machine is not a member of mesh %s any more: join it again with an invite, or start with a fresh RELAY_STATE_DIR", id)
		}
		var name string
		if err := m.load(keyMeshName, &name); err != nil {
			return err
		}
		if err := node.Found(key, name); err != nil {
			return err
		}
	}
	secret, made := m.defaultKey()
	if id8, ok := keys.IDOf(secret); made && mine && ok {
		if _, known := node.Table().Latest(keys.Kind, id8); !known {
			return node.PutShared(keys.Kind, id8, keys.Key{Name: keys.DefaultName, Hash: keys.Hash(secret), Created: time.Now().Unix()})
		}
	}
	return nil
}

// alone says whether nobody else is a member of the mesh this machine is in,
// and which models it would take along.
func (m *machine) alone(id membership.MeshID) (bool, []scheduler.Carried, error) {
	node, err := m.newNode(id, nil)
	if err != nil {
		return false, nil, err
	}
	defer node.Close()
	return len(node.Roster().Members()) == 1, scheduler.CarriedFrom(node.Table()), nil
}

func agent() string { return "relay/" + version }
