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
}

// Remove takes a model out of the mesh. Its files stay unless files is set, and
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
		return Removed{}, Errorf(ModelNotFound, "no model %q in this mesh; %s", name, v.names())
	}
	removed := Removed{ModelState: s.modelState(v, m, s.unfinished(v))}
	var deleted []cid.Cid
	var kept []string
	if files {
		var err error
		if deleted, kept, err = s.deletable(v, m); err != nil {
			return Removed{}, err
		}
	}
	removed.FileKept = strings.Join(kept, "; ")
	for _, root := range deleted {
		if lastCopy {
			break
		}
		if why := s.lastCopyText(ctx, v, root); why != "" {
			return Removed{}, Errorf(NotAllowed, "the copy of %q here is not deleted: %s; say --last-copy to delete it all the same", m.shown, why)
		}
	}
	if _, err := s.Mesh.Table().DeleteShared(KindModel, m.uid); err != nil && !errors.Is(err, record.ErrNotFound) {
		return Removed{}, err
	}
	s.log.Info("model removed", "model", m.shown, "files", len(deleted))
	s.wake()
	if !files {
		return removed, nil
	}
	var errs []error
	for _, root := range deleted {
		_, err := s.Content.RemovePulled(root)
		errs = append(errs, err)
	}
	for _, p := range removed.Pulls {
		if root, err := cid.Decode(p.CID); err == nil && v.needing(m, p.CID) == "" {
			s.pulls.stop(p.CID, content.ErrRemoved)
			if err := s.Content.RemovePartial(root); !errors.Is(err, content.ErrNotFound) {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return removed, fmt.Errorf("the model is out of the mesh, not all of its files are deleted: %w", err)
	}
	return removed, s.publishHoldings()
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
