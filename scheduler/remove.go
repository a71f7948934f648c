package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cid "github.com/ipfs/go-cid"

	"relay/p2p/record"
	"relay/scheduler/eviction"
	"relay/store/content"
)

// Removed is a model that was taken out of the mesh.
type Removed struct {
	ModelState
	// FileKept says why its files, or some of them, were not deleted although that
	// was asked for; empty where they were, or where this machine has none.
	FileKept string `json:"file_kept,omitempty"`
	// Warnings say what is worse for it, in sentences.
	Warnings []string `json:"warnings,omitempty"`
}

// Remove takes a model out of the mesh; an alias does not name it here. Files registered in place are forgotten,
// unless another model needs them. All files stay unless files is set, and
// then only pulled ones are deleted that no other model needs, and what may be
// the last whole copy only with lastCopy: another one must be confirmed as it is
// for Prune. What is here of it in part goes as well then.
func (s *Scheduler) Remove(ctx context.Context, name string, files, lastCopy bool) (Removed, error) {
	if err := s.mayChangeModels(); err != nil {
		return Removed{}, err
	}
	if files {
		s.freeing.Lock()
		defer s.freeing.Unlock()
	}
	v := s.look()
	m := v.find(name)
	if m == nil {
		return Removed{}, v.unknown(name)
	}
	removed := Removed{ModelState: s.modelState(v, m, s.unfinished(v)), Warnings: v.leanOn(m)}
	var deleted []cid.Cid
	var kept []string
	if files {
		var err error
		if deleted, kept, err = s.deletable(v, m); err != nil {
			return Removed{}, err
		}
	}
	for _, root := range deleted {
		if lastCopy {
			break
		}
		if why := s.lastCopyText(ctx, v, root); why != "" {
			return Removed{}, Errorf(NotAllowed, "the copy of %q here is not deleted: %s; say --last-copy to delete it all the same", m.shown, why)
		}
	}
	if err := s.takeOut(m); err != nil {
		return Removed{}, err
	}
	s.log.Info("model removed", "model", m.shown, "files", len(deleted))
	s.wake()
	var errs []error
	for _, root := range deleted {
		gone, err := s.Content.RemovePulled(root)
		if err == nil && gone.Files == 0 && len(gone.Kept) > 0 {
			kept = append(kept, changedText)
		}
		errs = append(errs, err)
	}
	removed.FileKept = strings.Join(kept, "; ")
	for _, p := range removed.Pulls {
		if root, err := cid.Decode(p.CID); files && err == nil && v.needing(m, p.CID) == "" {
			s.pulls.stop(p.CID, content.ErrRemoved)
			if err := s.Content.RemovePartial(root); !errors.Is(err, content.ErrNotFound) {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return removed, fmt.Errorf("the model is out of the mesh, not all of its files are deleted: %w", err)
	}
	return removed, errors.Join(s.unregister(m), s.publishHoldings())
}

// takeOut deletes the record of a model.
func (s *Scheduler) takeOut(m *modelView) error {
	s.registering.Lock()
	defer s.registering.Unlock()
	if _, err := s.Mesh.Table().DeleteShared(KindModel, m.uid); err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	return nil
}

// unregister forgets the files of a model that is out of the mesh which lie here
// where their owner has them, unless another one needs them. Pulled ones stay
// known: that is how they are freed.
func (s *Scheduler) unregister(m *modelView) error {
	s.registering.Lock()
	defer s.registering.Unlock()
	v := s.newView()
	var errs []error
	for _, r := range m.roots() {
		root, err := cid.Decode(r.CID)
		if err != nil || v.needing(nil, r.CID) != "" || slices.ContainsFunc(s.Coming, func(c Carried) bool { return c.UID != m.uid && c.Model.has(r.CID) }) {
			continue
		}
		if here, err := s.Content.Get(root); err != nil || here.Pulled != "" {
			continue
		}
		if _, err := s.Content.Remove(root, false); err != nil && !errors.Is(err, content.ErrNotFound) {
			errs = append(errs, fmt.Errorf("the model is out of the mesh, and its file stays registered here: %w", err))
		}
	}
	return errors.Join(errs...)
}

// deletable lists the contents of a model that are here and go with it, and says
// why others stay.
func (s *Scheduler) deletable(v *view, m *modelView) (roots []cid.Cid, kept []string, err error) {
	for i, r := range m.roots() {
		root, err := cid.Decode(r.CID)
		if err != nil {
			return nil, nil, Errorf(NotFound, "model %q: its CID is none", m.shown)
		}
		what := "it"
		if i > 0 {
			what = "its projector"
		}
		here, err := s.Content.Get(root)
		other := v.needing(m, r.CID)
		switch {
		case err != nil:
		case here.Pulled == "":
			kept = append(kept, what+" was registered where it lies")
		case other != "" && i == 0:
			kept = append(kept, fmt.Sprintf("model %q is the same file", other))
		case other != "":
			kept = append(kept, fmt.Sprintf("model %q needs %s too", other, what))
		default:
			roots = append(roots, root)
		}
	}
	return roots, kept, nil
}

// lastCopyText says why a whole copy here may be the last one, or "" where another
// is confirmed.
func (s *Scheduler) lastCopyText(ctx context.Context, v *view, root cid.Cid) string {
	if here, err := s.Content.Get(root); err == nil && here.InPlace && here.Complete {
		return "" // Its owner's, which stays.
	}
	c := candidate{piece: Piece{CID: root.String()}, root: root, witnesses: s.witnesses(v, root.String())}
	if len(c.witnesses) == 0 {
		return s.staysText(c, eviction.Last)
	}
	return s.confirm(ctx, c)
}

// needing names a model other than one that needs a content; "" where none does.
func (v *view) needing(m *modelView, cid string) string {
	if i := slices.IndexFunc(v.models, func(o *modelView) bool { return o != m && o.has(cid) }); i >= 0 {
		return v.models[i].shown
	}
	return ""
}
