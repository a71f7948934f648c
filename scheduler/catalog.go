package scheduler

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"relay/p2p/membership"
	"relay/scheduler/placement"
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
		return Errorf(NotAllowed, "the trust of %s is %q: whole models are for peers with trust %q only", me.Name, me.Trust, membership.TrustReplicas)
	}
	return nil
}

// mayAdd says whether a model may be added here, or returns the one that has the
// name: its files may be added again, served as they are.
func (s *Scheduler) mayAdd(o AddOptions) (taken *modelView, err error) {
	v := s.newView()
	if taken = v.find(o.Name); taken == nil {
		if err = s.mayChangeModels(); err == nil {
			err = v.nameFree(o.Name)
		}
	} else if o.servedOtherwise(taken.Model) {
		err = s.nameTaken(o.Name)
	} else if len(o.Aliases) > 0 {
		err = s.mayChangeModels()
	}
	if err == nil {
		var has []string
		if taken != nil {
			has = taken.Aliases
		}
		_, err = v.called(taken, o.Name, has, o.Aliases)
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
	// Aliases are further names that it gets; "" takes away those that it has.
	Aliases *[]string `json:"aliases,omitempty"`
	// Fallback is the model that may answer in its stead, by name, uid or CID; "" for
	// none.
	Fallback *string `json:"fallback,omitempty"`
}

// Set changes how a model is treated, and says in words what is another now. A
// minimum, or a peer that it is to be on, that cannot be had however little else
// runs is refused with the reason. An alias does not name a model here.
func (s *Scheduler) Set(name string, o SetOptions) (ModelState, []string, error) {
	if err := s.mayChangeModels(); err != nil {
		return ModelState{}, nil, err
	}
	if o == (SetOptions{}) {
		return ModelState{}, nil, Errorf(InvalidRequest, "say what is to be changed")
	}
	m, changed, err := s.change(name, o)
	if err != nil {
		return ModelState{}, nil, err
	}
	if len(changed) > 0 {
		s.log.Info("model changed", "model", m.shown, "change", strings.Join(changed, ", "))
		s.look()
		s.wake()
	}
	state, err := s.Model(m.uid)
	return state, changed, err
}

// change writes a model's record anew, if anything of it is to be another.
func (s *Scheduler) change(name string, o SetOptions) (*modelView, []string, error) {
	s.registering.Lock() // Two at a time could give one alias to two models.
	defer s.registering.Unlock()
	v := s.newView()
	m := v.find(name)
	if m == nil {
		return nil, nil, v.unknown(name)
	}
	next, changed, err := o.change(v, m)
	if err == nil {
		err = v.contested(m, next)
	}
	if err == nil {
		err = s.canBeHad(v, m, next)
	}
	if err == nil && len(changed) > 0 {
		err = s.Mesh.PutShared(KindModel, m.uid, next)
	}
	return m, changed, err
}

// change is a model as it is to be, and in words what is another then.
func (o SetOptions) change(v *view, m *modelView) (next Model, changed []string, err error) {
	next, changed = m.Model, []string{}
	say := func(is bool, yes, no string) {
		if !is {
			yes = no
		}
		changed = append(changed, yes)
	}
	if o.Pinned != nil && *o.Pinned != next.Pinned {
		next.Pinned = *o.Pinned
		say(next.Pinned, "pinned: it stays loaded, and no copy of it is deleted to make room", "not pinned any more")
	}
	if o.Min != nil && *o.Min != next.Min {
		next.Min = *o.Min
		say(next.Min > 0, counted(next.Min, "replica")+" at least", "no replicas in particular: one where there is room")
	}
	if o.Max != nil && *o.Max != next.Max {
		next.Max = *o.Max
		say(next.Max > 0, counted(next.Max, "replica")+" at most", "as many replicas as the load asks for, on peers that have the file")
	}
	if o.Only != nil {
		id, name, err := v.named(*o.Only)
		if err != nil {
			return next, nil, err
		}
		if id != next.Only {
			next.Only = id
			say(id != "", fmt.Sprintf("runs on %s and nowhere else", name), "runs on any peer")
		}
	}
	if o.IdleUnload != nil && *o.IdleUnload != next.IdleUnload {
		next.IdleUnload = *o.IdleUnload
		say(next.IdleUnload > 0, fmt.Sprintf("unloaded after %s without a request", time.Duration(next.IdleUnload)*time.Second), "never unloaded only because nobody asks")
	}
	if o.Aliases != nil {
		if next.Aliases, err = v.called(m, m.Name, m.Aliases, *o.Aliases); err != nil {
			return next, nil, err
		}
		changed = append(changed, aliasChanges(m.Aliases, next.Aliases)...)
	}
	if o.Fallback != nil {
		uid, shown, err := v.fallbackFor(m, *o.Fallback)
		if err != nil {
			return next, nil, err
		}
		if uid != next.Fallback {
			next.Fallback = uid
			say(uid != "", fmt.Sprintf("%s may answer in its stead", shown), "no other model answers in its stead")
		}
	}
	switch {
	case next.Min < 0 || next.Min > maxListed || next.Max < 0 || next.Max > maxListed:
		return next, nil, Errorf(InvalidRequest, "replicas are counted from 0 to %d", maxListed)
	case next.Max > 0 && next.Max < max(1, next.Min):
		return next, nil, Errorf(InvalidRequest, "%s at most and %d at least: that cannot be", counted(next.Max, "replica"), next.Min)
	case next.Only != "" && next.Min > 1:
		return next, nil, Errorf(InvalidRequest, "%d replicas at least, and all on one peer: there is one on each", next.Min)
	case next.IdleUnload < 0 || next.IdleUnload > maxIdleUnload:
		return next, nil, Errorf(InvalidRequest, "unloading after %d seconds: 0 (never) to a year is possible", next.IdleUnload)
	}
	return next, changed, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// named finds a peer by its name, its id, or the beginning of one of them that
// could be no other's; "" is none.
func (v *view) named(name string) (id, shown string, err error) {
	if name == "" {
		return "", "", nil
	}
	var found []*peerView
	for i := range v.peers {
		p := &v.peers[i]
		if p.id == name || p.Name == name {
			return p.id, p.Name, nil
		}
		if strings.HasPrefix(p.id, name) || strings.HasPrefix(p.Name, name) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return "", "", Errorf(NotFound, "no peer %q in this mesh (relay peer ls)", name)
	case 1:
		return found[0].id, found[0].Name, nil
	}
	var names []string
	for _, p := range found {
		names = append(names, p.Name)
	}
	return "", "", Errorf(InvalidRequest, "%q could be %s", name, strings.Join(names, " or "))
}

// canBeHad refuses what could not be placed even if nothing else ran.
func (s *Scheduler) canBeHad(v *view, m *modelView, next Model) error {
	if next.Min <= m.Min && (next.Only == m.Only || next.Only == "") {
		return nil
	}
	wanted := *m
	wanted.Model = next
	could, why := placement.Ever(placement.Model{
		UID: m.uid, Name: m.shown, CID: next.CID, Bytes: next.size(), Shape: next.shape(), Want: max(1, next.Min), Only: next.Only, Evict: true, Fetch: true,
	}, v.snapshot(&wanted, s.self))
	least := next.Min
	if next.Only != "" {
		least = max(1, least)
	}
	if could >= least {
		return nil
	}
	var texts []string
	for _, r := range why[:min(len(why), 4)] {
		texts = append(texts, r.Text)
	}
	text := fmt.Sprintf("model %q: %s wanted, and it could run on %s", m.shown, counted(least, "replica"), counted(could, "peer"))
	if len(texts) > 0 {
		text += ": " + strings.Join(texts, "; ")
	}
	return Errorf(NoCapacity, "%s", text)
}
