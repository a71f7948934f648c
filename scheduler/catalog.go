package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	cid "github.com/ipfs/go-cid"

	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/store/content"
)

// defaultContext is the context of a slot, in tokens, where neither the caller
// nor the model's header asks for less.
const defaultContext = 8192

// AddOptions say what to register, and how it is to be served. Zero values mean
// what the header says, or the defaults.
type AddOptions struct {
	Name    string   `json:"name"`
	Path    string   `json:"path"`
	Kind    string   `json:"kind,omitempty"`
	Context int      `json:"context,omitempty"`
	Slots   int      `json:"slots,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// Add registers the GGUF file at a path under a name: its blocks refer to the
// file where it lies, and the mesh learns of the model.
func (s *Scheduler) Add(ctx context.Context, o AddOptions, progress func(content.Progress)) (ModelState, error) {
	if err := CheckModelName(o.Name); err != nil {
		return ModelState{}, err
	}
	if err := s.CheckArgs(o.Args); err != nil {
		return ModelState{}, err
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return ModelState{}, Errorf(InvalidRequest, "%q is not a path: %w", o.Path, err)
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // To open a pipe is to wait for its other end.
		return ModelState{}, Errorf(FileInvalid, "%s is not a file that a model could be in", path)
	}
	lost := s.lostFile(o.Name)
	if lost == nil || err != nil || info.Size() != lost.Bytes {
		if err := s.mayAdd(o.Name); err != nil {
			return ModelState{}, err
		}
	}
	header, err := s.ReadHeader(path)
	if err != nil {
		return ModelState{}, fmt.Errorf("%s: %w", path, err)
	}
	m, err := s.define(o, header)
	if err != nil {
		return ModelState{}, err
	}
	added, err := s.Content.Add(ctx, []string{path}, progress)
	if err != nil {
		return ModelState{}, fmt.Errorf("%s: %w", path, err)
	}
	m.CID, m.Bytes, m.Created = added.CID.String(), added.Bytes, time.Now().Unix()
	if err := s.publishHoldings(); err != nil {
		return ModelState{}, err
	}
	if lost != nil && lost.CID == m.CID { // Nothing was missing but the file.
		s.log.Info("model's file found again", "model", m.Name, "cid", m.CID)
		s.look()
		s.wake()
		return s.Model(lost.uid)
	}
	if err := s.mayAdd(o.Name); err != nil { // Hashing takes its time.
		return ModelState{}, err
	}
	uid, err := newUID()
	if err != nil {
		return ModelState{}, err
	}
	if err := s.Mesh.PutShared(KindModel, uid, m); err != nil {
		return ModelState{}, err
	}
	s.log.Info("model added", "model", m.Name, "cid", m.CID, "bytes", m.Bytes)
	s.look()
	s.wake()
	return s.Model(uid)
}

// define works out how a model is served, from what was asked and its header.
func (s *Scheduler) define(o AddOptions, h Header) (Model, error) {
	longest := h.TrainContext
	if longest <= 0 {
		longest = defaultContext
	}
	m := Model{
		Name: o.Name, Kind: cmp.Or(o.Kind, h.Kind, "chat"), Args: o.Args,
		Context: cmp.Or(o.Context, min(longest, defaultContext)), Slots: cmp.Or(o.Slots, s.DefaultSlots),
		Arch: h.Arch, Parameters: h.Parameters, Layers: h.Layers, TrainContext: h.TrainContext,
	}
	if m.Context < 1 || m.Context > longest {
		return m, Errorf(InvalidRequest, "a context of %d tokens: this model was made for 1 to %d", m.Context, longest)
	}
	if m.Slots < 1 || m.Slots > 64 {
		return m, Errorf(InvalidRequest, "%d slots: 1 to 64 are possible", m.Slots)
	}
	if !slices.Contains([]string{"chat", "embed", "rerank"}, m.Kind) {
		return m, Errorf(InvalidRequest, "%q is no kind of model: chat, embed or rerank", m.Kind)
	}
	need, err := h.Need(m.Context, m.Slots)
	if err != nil {
		return m, Errorf(FileInvalid, "the memory that this model needs cannot be worked out: %w", err)
	}
	m.Need = need
	return m, nil
}

func newUID() (string, error) {
	var random [10]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(random[:])), nil
}

func (s *Scheduler) mayChangeModels() error {
	if m, ok := s.Mesh.Roster().Member(s.Mesh.Self()); !ok || m.Role != membership.RoleAdmin {
		return Errorf(NotAllowed, "models are added and removed on an admin's machine (relay peer ls shows which): %w", membership.ErrNotAllowed)
	}
	return nil
}

// mayHoldModels refuses whole models on a machine that may not have them.
func (s *Scheduler) mayHoldModels(v *view) error {
	if me := v.peer[s.self]; me != nil && !me.trusted() {
		return Errorf(NotAllowed, "this machine's trust is %q: whole models are for peers with trust %q only", me.Trust, membership.TrustReplicas)
	}
	return nil
}

func (s *Scheduler) mayAdd(name string) error {
	if err := s.mayChangeModels(); err != nil {
		return err
	}
	v := s.newView()
	if err := s.mayHoldModels(v); err != nil {
		return err
	}
	if m := v.find(name); m != nil {
		return Errorf(NameTaken, "the mesh has a model %q already: choose another name, or remove it first (relay model rm %s)", name, name)
	}
	return nil
}

// lostFile is the model of that name if this peer held its file whole and has
// lost it: it may be added again under its name, from where it lies now.
func (s *Scheduler) lostFile(name string) *modelView {
	v := s.newView()
	if m := v.find(name); m != nil && v.gone(s.self, m.CID) != "" {
		return m
	}
	return nil
}

// Pull brings a model here from the peers that hold it. A model that is here
// already is no work and no error.
func (s *Scheduler) Pull(ctx context.Context, name string, progress func(content.Progress)) (ModelState, error) {
	v := s.newView()
	m := v.find(name)
	if m == nil {
		return ModelState{}, Errorf(ModelNotFound, "no model %q in this mesh; %s", name, v.names())
	}
	root, err := cid.Decode(m.CID)
	if err != nil {
		return ModelState{}, Errorf(NotFound, "model %q: its CID is none", m.shown)
	}
	if err := s.mayHoldModels(v); err != nil {
		return ModelState{}, err
	}
	if here, err := s.Content.Get(root); err == nil && here.Complete {
		return s.Model(m.uid)
	}
	if err := s.somebodyHas(v, m); err != nil {
		return ModelState{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // Ends the session of the exchange.
	s.reachHolders(ctx, v, m)
	_, err = s.Content.Pull(ctx, content.PullOptions{
		Root: root, Bytes: m.Bytes, Name: m.Name, Progress: progress,
		Swarm: &swarm{BlockGetter: s.Mesh.Fetch(ctx), s: s, cid: m.CID},
	})
	if err != nil {
		return ModelState{}, fmt.Errorf("model %q: %w", m.shown, err)
	}
	s.log.Info("model pulled", "model", m.shown, "bytes", m.Bytes)
	if err := s.publishHoldings(); err != nil {
		return ModelState{}, err
	}
	s.look()
	return s.Model(m.uid)
}

const (
	// reachedHolders bounds the holders of a model that are connected to before it
	// is pulled, and reachPatience the time for that.
	reachedHolders = 8
	reachPatience  = 5 * time.Second
)

// reachHolders connects to those who have a model whole and are up: in a large
// mesh few of them have a link to this peer, and blocks are asked for on links.
func (s *Scheduler) reachHolders(ctx context.Context, v *view, m *modelView) {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	var dials sync.WaitGroup
	dialled := 0
	for _, id := range v.wholeHolders(m.CID) {
		p := v.peer[id]
		if p == nil || p.Self || !p.alive() || dialled == reachedHolders {
			continue
		}
		dialled++
		dials.Go(func() {
			if err := s.Mesh.Reach(ctx, p.ID); err != nil {
				s.log.Debug("holder not reached", "peer", p.Name, "error", err)
			}
		})
	}
	dials.Wait()
}

func (s *Scheduler) somebodyHas(v *view, m *modelView) error {
	var away []string
	for _, id := range v.wholeHolders(m.CID) {
		if id == s.self {
			continue
		}
		if v.peer[id].alive() {
			return nil
		}
		away = append(away, v.peer[id].Name)
	}
	if len(away) > 0 {
		return Errorf(NoHolder, "model %q: the peers that hold it are away: %s", m.shown, strings.Join(away, ", "))
	}
	return Errorf(NoHolder, "model %q: no peer holds it whole", m.shown)
}

// Removed is a model that was taken out of the mesh.
type Removed struct {
	ModelState
	// FileKept says why its file was not deleted although that was asked for;
	// empty where it was, or where this machine has none.
	FileKept string `json:"file_kept,omitempty"`
}

// Remove takes a model out of the mesh. Its file stays unless files is set, and
// then only a pulled one is deleted that no other model needs, and the last
// whole copy that can be reached only with lastCopy.
func (s *Scheduler) Remove(name string, files, lastCopy bool) (Removed, error) {
	if err := s.mayChangeModels(); err != nil {
		return Removed{}, err
	}
	v := s.look()
	m := v.find(name)
	if m == nil {
		return Removed{}, Errorf(ModelNotFound, "no model %q in this mesh; %s", name, v.names())
	}
	removed := Removed{ModelState: s.modelState(v, m)}
	root, err := cid.Decode(m.CID)
	if err != nil {
		return Removed{}, Errorf(NotFound, "model %q: its CID is none", m.shown)
	}
	here, err := s.Content.Get(root)
	other := slices.IndexFunc(v.models, func(o *modelView) bool { return o.CID == m.CID && o.uid != m.uid })
	switch {
	case !files || err != nil:
		files = false
	case here.InPlace:
		files, removed.FileKept = false, "it was registered where it lies"
	case other >= 0:
		files, removed.FileKept = false, fmt.Sprintf("model %q is the same file", v.models[other].shown)
	}
	elsewhere := slices.ContainsFunc(v.wholeHolders(m.CID), func(id string) bool { return id != s.self && v.peer[id].alive() })
	if files && !elsewhere && !lastCopy {
		return Removed{}, Errorf(NotAllowed, "no other peer that is up has a whole copy of %q: say --last-copy to delete this one all the same", m.shown)
	}
	if _, err := s.Mesh.Table().DeleteShared(KindModel, m.uid); err != nil && !errors.Is(err, record.ErrNotFound) {
		return Removed{}, err
	}
	s.log.Info("model removed", "model", m.shown, "files", files)
	s.wake()
	if files {
		if err := s.Content.Remove(root, true); err != nil {
			return removed, fmt.Errorf("the model is out of the mesh, its file is not deleted: %w", err)
		}
		if err := s.publishHoldings(); err != nil {
			return removed, err
		}
	}
	return removed, nil
}
