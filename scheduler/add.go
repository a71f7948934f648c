package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"relay/scheduler/ways"
	"relay/store/content"
)

// defaultContext is the context of a slot, in tokens, where neither the caller
// nor the model's header asks for less.
const defaultContext = 8192

// AddOptions say what to register, and how it is to be served. Zero values mean
// what the header says, or the defaults.
type AddOptions struct {
	Name string `json:"name"`
	// Paths are the model's file, or one or more parts of a split one: the others
	// are found beside it.
	Paths []string `json:"paths"`
	// Projector is the path of the projector by which the model reads images.
	Projector string   `json:"projector,omitempty"`
	Kind      string   `json:"kind,omitempty"`
	Context   int      `json:"context,omitempty"`
	Slots     int      `json:"slots,omitempty"`
	Args      []string `json:"args,omitempty"`
	// Env is for the engine's environment, NAME=VALUE.
	Env []string `json:"env,omitempty"`
	// Aliases are further names of it.
	Aliases []string `json:"aliases,omitempty"`
}

// servedOtherwise says whether something is asked for that a model is not.
func (o AddOptions) servedOtherwise(m Model) bool {
	return o.Kind != "" && o.Kind != m.Kind || o.Context != 0 && o.Context != m.Context ||
		o.Slots != 0 && o.Slots != m.Slots || len(o.Args) > 0 && !slices.Equal(o.Args, m.Args) && !slices.Equal(pooled(o.Args), m.Args) || len(o.Env) > 0 && !slices.Equal(o.Env, m.Env)
}

// pooled are arguments for the engine by which it makes one vector of a text, where
// nothing else says how.
func pooled(args []string) []string { return append(slices.Clone(args), "--pooling", "mean") }

// pools says whether arguments for the engine say how.
func pools(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return arg == "--pooling" || strings.HasPrefix(arg, "--pooling=") })
}

// Outcome is a model that was added or pulled, and what that gives reason to warn
// of, in sentences.
type Outcome struct {
	ModelState
	Warnings []string `json:"warnings,omitempty"`
	// Limit is the one that another machine was told for its pull, in bytes a second.
	Limit int64 `json:"limit,omitempty"`
}

// Add registers GGUF files under a name: their blocks refer to the files where
// they lie, and the mesh learns of the model. A model that the mesh has may be added
// again from files that are the same: this peer then holds them, or has found again
// where they lie now. On an admin's machine it then also gets the aliases, and its
// record says what it can if it did not.
func (s *Scheduler) Add(ctx context.Context, o AddOptions, progress func(content.Progress)) (Outcome, error) {
	if err := CheckModelName(o.Name); err != nil {
		return Outcome{}, err
	}
	if err := errors.Join(s.CheckArgs(o.Args), s.CheckEnv(o.Env), checkAliases(o.Aliases)); err != nil {
		return Outcome{}, err
	}
	if err := o.resolve(); err != nil {
		return Outcome{}, err
	}
	if err := s.publishHoldings(); err != nil { // A file may have been lost a moment ago.
		return Outcome{}, err
	}
	taken, err := s.mayAdd(o)
	if err != nil {
		return Outcome{}, err
	}
	files, err := s.readFiles(o)
	if taken != nil && (err != nil || !files.mayBe(taken.Model)) {
		return Outcome{}, s.notItsFiles(taken, err)
	}
	if err != nil {
		return Outcome{}, err
	}
	m, err := s.define(o, files)
	if err != nil {
		return Outcome{}, err
	}
	uid, err := s.register(ctx, o, files, m, progress)
	if err != nil {
		return Outcome{}, err
	}
	out, err := s.outcome(uid)
	if err != nil {
		return out, err
	}
	if taken == nil && len(m.Args) > len(o.Args) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the file of %q does not say how one vector is made of a text: it is served with --pooling mean; where the model wants another way, remove it and add it with --engine-arg --pooling=last, or cls", o.Name))
	}
	return out, s.lostStill(uid)
}

// lostStill says what of a model is not where it was although its files were just
// added.
func (s *Scheduler) lostStill(uid string) error {
	v := s.newView()
	m := v.model[uid]
	if m == nil {
		return nil
	}
	if why := v.holding(s.self, m.CID).Gone; why != "" {
		return Errorf(FileChanged, "model %q: its file was registered and is lost again: %s", m.shown, why)
	}
	if why := v.holding(s.self, m.Projector.CID).Gone; why != "" {
		return Errorf(FileChanged, "model %q: its file is registered, its projector is lost still (%s): name it as well, with --mmproj", m.shown, why)
	}
	return nil
}

// outcome tells the mesh what is held here now, and shows a model as it then is.
func (s *Scheduler) outcome(uid string) (Outcome, error) {
	if err := s.publishHoldings(); err != nil {
		return Outcome{}, err
	}
	s.look()
	s.wake()
	m, err := s.Model(uid)
	return Outcome{ModelState: m, Warnings: s.DiskUse().overCaps()}, err
}

// resolve makes the paths absolute, and wants files there. To open a pipe is to
// wait for its other end.
func (o *AddOptions) resolve() error {
	if len(o.Paths) == 0 {
		return Errorf(InvalidRequest, "say where the file of %q is", o.Name)
	}
	if len(o.Paths) > maxPaths {
		return Errorf(InvalidRequest, "%d paths: %d are the most; one part of a split model is enough", len(o.Paths), maxPaths)
	}
	o.Paths = slices.Clone(o.Paths)
	paths := make([]*string, 0, len(o.Paths)+1)
	for i := range o.Paths {
		paths = append(paths, &o.Paths[i])
	}
	if o.Projector != "" {
		paths = append(paths, &o.Projector)
	}
	for _, p := range paths {
		path, err := filepath.Abs(*p)
		if err != nil {
			return Errorf(InvalidRequest, "%q is not a path: %w", *p, err)
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return Errorf(FileInvalid, "%s is not a file that a model could be in", path)
		}
		*p = path
	}
	return nil
}

// maxPaths bounds the paths that are named for one model.
const maxPaths = 1000

// modelFiles are the files of a model, with their headers.
type modelFiles struct {
	header, projector         Header
	paths                     []string // All parts, in order.
	projectorPath             string
	mainBytes, projectorBytes int64
}

// can is what the files let a model do.
func (f modelFiles) can() *Can {
	return &Can{Tools: f.header.Can.Tools, Images: f.projector.Can.Images, Audio: f.projector.Can.Audio}
}

// mayBe says whether the files have the size of those of a model.
func (f modelFiles) mayBe(m Model) bool {
	return f.mainBytes == m.Bytes && (f.projectorPath == "" || f.projectorBytes == m.Projector.Bytes)
}

// readFiles reads the headers, and finds the parts that were not named.
func (s *Scheduler) readFiles(o AddOptions) (f modelFiles, err error) {
	first := o.Paths[0]
	if f.header, err = s.ReadHeader(first); err != nil {
		return f, err
	}
	if f.paths = f.header.Parts; len(f.paths) == 0 {
		f.paths = []string{first}
	}
	for i, path := range o.Paths {
		switch {
		case len(f.header.Parts) == 0 && i > 0:
			return f, Errorf(FileInvalid, "%s is a whole model by itself: several paths are the parts of one split model (a projector comes with --mmproj)", first)
		case !slices.Contains(f.paths, path):
			return f, Errorf(FileInvalid, "%s is not one of the %d parts that %s belongs to", path, len(f.paths), first)
		case slices.Contains(o.Paths[:i], path):
			return f, Errorf(InvalidRequest, "%s is named twice", path)
		}
	}
	switch {
	case f.header.Projector:
		return f, Errorf(FileInvalid, "%s is a projector: name it with --mmproj beside the model that it belongs to", first)
	case f.header.Kind == partKind:
		return f, Errorf(FileInvalid, "%s is no model by itself (its header says %q)", first, f.header.Arch)
	}
	if f.mainBytes, err = sizeOf(f.paths...); err != nil || o.Projector == "" {
		return f, err
	}
	f.projectorPath = o.Projector
	if f.projector, err = s.ReadHeader(o.Projector); err != nil {
		return f, err
	}
	if !f.projector.Projector || len(f.projector.Parts) > 0 {
		return f, Errorf(FileInvalid, "%s is no projector: its header says %q, of kind %s", o.Projector, f.projector.Arch, f.projector.Kind)
	}
	f.projectorBytes, err = sizeOf(o.Projector)
	return f, err
}

// partKind is what a header says of a file that is no model by itself.
const partKind = "part"

// sizeOf is the length of files together, in bytes.
func sizeOf(paths ...string) (n int64, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return 0, Errorf(FileInvalid, "%s cannot be read: %w", path, err)
		}
		n += info.Size()
	}
	return n, nil
}

// define works out how a model is served, from what was asked and its headers.
func (s *Scheduler) define(o AddOptions, f modelFiles) (Model, error) {
	h := f.header
	longest := h.TrainContext
	if longest <= 0 {
		longest = defaultContext
	}
	m := Model{
		Name: o.Name, Kind: cmp.Or(o.Kind, h.Kind, "chat"), Args: o.Args, Env: o.Env, Aliases: o.Aliases, Can: f.can(),
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
	if m.Kind == "embed" && !h.Pools && !pools(m.Args) {
		if m.Args = pooled(m.Args); s.CheckArgs(m.Args) != nil {
			return m, Errorf(InvalidRequest, "its file does not say how one vector is made of a text: add --engine-arg --pooling=mean, and leave others out")
		}
	}
	if f.projectorPath != "" && m.Kind != "chat" {
		return m, Errorf(InvalidRequest, "a projector is for a model that chats, and this one is to %s", m.Kind)
	}
	shape, err := h.Shape(m)
	if err == nil && f.projectorPath != "" { // One process reads both.
		var projector ways.Shape
		if projector, err = f.projector.Shape(Model{Context: m.Context, Slots: m.Slots}); err == nil {
			shape.Host += projector.CPU()
		}
	}
	if err == nil {
		err = shape.Check()
	}
	if err != nil {
		return m, Errorf(FileInvalid, "the memory that this model needs cannot be worked out: %w", err)
	}
	m.Shape, m.Need = &shape, shape.CPU()
	return m, nil
}

// register hashes the files of a model, registers them here, and has the mesh learn
// of it. Nothing is registered that was not before where it fails.
func (s *Scheduler) register(ctx context.Context, o AddOptions, f modelFiles, m Model, progress func(content.Progress)) (uid string, err error) {
	files, err := s.hash(ctx, f, &m, progress)
	if err != nil {
		return "", err
	}
	s.registering.Lock() // Not while files are hashed: that takes its time.
	defer s.registering.Unlock()
	taken, err := s.mayAdd(o)
	if err != nil {
		return "", err
	}
	if taken != nil && (taken.CID != m.CID || m.Projector.CID != "" && m.Projector != taken.Projector) {
		return "", s.notItsFiles(taken, nil)
	}
	takeBack, err := s.addHashed(files)
	if err == nil && taken != nil {
		s.log.Info("model's files registered here", "model", taken.shown, "cid", m.CID)
		return taken.uid, s.complete(taken, m)
	}
	if err == nil {
		uid, err = newUID()
	}
	if err == nil {
		m.Created = time.Now().Unix()
		err = s.Mesh.PutShared(KindModel, uid, m)
	}
	if err != nil {
		takeBack()
		return "", err
	}
	s.log.Info("model added", "model", m.Name, "cid", m.CID, "bytes", m.size())
	return uid, nil
}

// complete has the record of a model that was added again say what it did not: m is the
// same model as its files and the options have it now. registering is held.
func (s *Scheduler) complete(taken *modelView, m Model) error {
	v := s.newView()
	if taken = v.model[taken.uid]; taken == nil || s.mayChangeModels() != nil || v.contested(taken, taken.Model) != nil {
		return nil
	}
	next := taken.Model
	if next.Can == nil && m.Projector == next.Projector { // Else one header was not read.
		next.Can = m.Can
	}
	var err error
	if next.Aliases, err = v.called(taken, taken.Name, taken.Aliases, m.Aliases); err != nil {
		return err
	}
	if reflect.DeepEqual(next, taken.Model) {
		return nil
	}
	return s.Mesh.PutShared(KindModel, taken.uid, next)
}

// hash reads the files of a model, and fills in what they are.
func (s *Scheduler) hash(ctx context.Context, f modelFiles, m *Model, progress func(content.Progress)) (files []content.Hashes, err error) {
	sum := newSum(f.mainBytes+f.projectorBytes, progress)
	read := func(paths ...string) (Root, error) {
		h, err := s.Content.Hash(ctx, paths, sum.progress)
		if err != nil {
			return Root{}, err
		}
		files = append(files, h)
		sum.next(h.Bytes)
		return Root{h.CID.String(), h.Bytes}, nil
	}
	root, err := read(f.paths...)
	if err == nil && f.projectorPath != "" {
		m.Projector, err = read(f.projectorPath)
	}
	m.CID, m.Bytes = root.CID, root.Bytes
	return files, err
}

// addHashed registers files. takeBack, never nil, undoes that for what was not
// registered before. registering is held.
func (s *Scheduler) addHashed(files []content.Hashes) (takeBack func(), err error) {
	var added []content.Content
	takeBack = func() {
		for _, c := range added {
			if _, err := s.Content.Remove(c.CID, false); err != nil {
				s.log.Warn("a file that no model needs stays registered", "path", c.Path, "error", err)
			}
		}
	}
	for _, h := range files {
		_, before := s.Content.Get(h.CID)
		c, err := s.Content.AddHashed(h)
		if err != nil {
			return takeBack, err
		}
		if before != nil {
			added = append(added, c)
		}
	}
	return takeBack, nil
}
