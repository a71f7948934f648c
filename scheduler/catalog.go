package scheduler

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"

	"relay/p2p/membership"
)

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

// mayAdd says whether a model may be added here, or returns the one that has the
// name: its files may be added again, served as they are.
func (s *Scheduler) mayAdd(o AddOptions) (taken *modelView, err error) {
	v := s.newView()
	if taken = v.find(o.Name); taken == nil {
		err = s.mayChangeModels()
	} else if o.servedOtherwise(taken.Model) {
		err = s.nameTaken(o.Name)
	}
	if err == nil {
		err = s.mayHoldModels(v)
	}
	return taken, err
}

func (s *Scheduler) nameTaken(name string) error {
	return Errorf(NameTaken, "the mesh has a model %q already: choose another name, or remove it first (relay model rm %s)", name, name)
}

// notItsFiles refuses files that are not those of the model of that name; err is
// why they are no model, if they are none.
func (s *Scheduler) notItsFiles(taken *modelView, err error) error {
	if s.newView().gone(s.self, taken) == "" {
		return s.nameTaken(taken.shown)
	}
	if err == nil {
		err = Errorf(FileInvalid, "these are not the files of %q", taken.shown)
	}
	return fmt.Errorf("%w; what was named is not its file, which is lost here: %w", s.nameTaken(taken.shown), err)
}

// SetOptions say what is to be another of a model; nil leaves it as it is.
type SetOptions struct {
	// Pinned keeps relay from deleting copies of it to make room, and one replica of
	// it loaded whatever else is asked for.
	Pinned *bool `json:"pinned,omitempty"`
	// Min is how many replicas are always to be loaded, 0 for none in particular;
	// Max the most that load may bring about, 0 for one on each peer that has the file.
	Min *int `json:"min,omitempty"`
	Max *int `json:"max,omitempty"`
	// Only is the one peer it may run on, by name or id; "" for any.
	Only *string `json:"only,omitempty"`
	// IdleUnload is after how many seconds without a request a replica is unloaded;
	// 0 for never.
	IdleUnload *int64 `json:"idle_unload_s,omitempty"`
}

// Set changes how a model is treated, and says in words what is another now.
func (s *Scheduler) Set(name string, o SetOptions) (ModelState, []string, error) {
	if err := s.mayChangeModels(); err != nil {
		return ModelState{}, nil, err
	}
	if o.Pinned == nil {
		return ModelState{}, nil, Errorf(InvalidRequest, "say what is to be changed")
	}
	v := s.newView()
	m := v.find(name)
	if m == nil {
		return ModelState{}, nil, Errorf(ModelNotFound, "no model %q in this mesh; %s", name, v.names())
	}
	// The older record owns a name: a change would hand it to the other.
	for _, o := range v.models {
		if o != m && o.Name == m.Name {
			return ModelState{}, nil, Errorf(NameTaken, "there are two models called %q: remove one of them first (relay model ls)", m.Name)
		}
	}
	changed := []string{}
	if *o.Pinned != m.Pinned {
		next := m.Model
		next.Pinned = *o.Pinned
		if err := s.Mesh.PutShared(KindModel, m.uid, next); err != nil {
			return ModelState{}, nil, err
		}
		text := "not pinned any more"
		if next.Pinned {
			text = "pinned: no copy of it is deleted to make room"
		}
		changed = append(changed, text)
		s.log.Info("model changed", "model", m.shown, "change", text)
		s.look()
	}
	state, err := s.Model(m.uid)
	return state, changed, err
}
