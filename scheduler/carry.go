package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
)

const (
	// maxCarried bounds the models that a machine brings along into a mesh, ever.
	maxCarried = 64
	// carryFirst is how soon an admin is looked for again who takes them: the mesh
	// is reached, and this machine's records are heard of, in a moment. The pause
	// doubles up to carryEvery.
	carryFirst = 50 * time.Millisecond
	carryEvery = 3 * time.Second
	// maxCarryTries is how often one who refuses is asked again: what this
	// machine holds may not have come to its ears yet.
	maxCarryTries = 100
)

// Carried is a model that a machine brings along when it leaves a mesh of its
// own for another.
type Carried struct {
	UID   string `json:"uid"`
	Model Model  `json:"model"`
}

// CarriedFrom lists the models of a mesh that is about to be left, whose files
// this machine holds whole.
func CarriedFrom(table *record.Table) []Carried {
	var list []Carried
	for _, r := range table.List(KindModel) {
		m, err := decode[Model](r.Record)
		if err == nil && holdsWhole(table, table.Self(), m) && len(list) < maxCarried {
			list = append(list, Carried{r.ID, m})
		}
	}
	return list
}

func holdsWhole(table *record.Table, id peer.ID, m Model) bool {
	return !slices.ContainsFunc(m.roots(), func(root Root) bool {
		r, ok := table.Get(KindHolding, pairID(id.String(), root.CID))
		if !ok {
			return true
		}
		h, err := decode[Holding](r.Record)
		return err != nil || !h.Whole
	})
}

// Carry registers the models in the mesh: by itself where this machine is an
// admin's, else through an admin's peer that is up. It returns nil when that is
// done, or given up; else ctx has ended.
func (s *Scheduler) Carry(ctx context.Context, list []Carried) error {
	pause := carryFirst
	for tries := 0; ; {
		err := s.carryOnce(ctx, list)
		if err == nil {
			return nil
		}
		if no := (*carryRefusal)(nil); errors.As(err, &no) {
			if tries++; tries == maxCarryTries {
				s.log.Warn("models that were brought along are not registered; add them on an admin's machine", "error", err)
				return nil
			}
		}
		s.log.Info("models not registered yet", "error", err)
		again := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		case <-again.C:
		}
		pause = min(2*pause, carryEvery)
	}
}

// carryRefusal is the answer of somebody who did not take everything.
type carryRefusal struct {
	who string
	why error
}

func (r *carryRefusal) Error() string { return r.who + ": " + r.why.Error() }
func (r *carryRefusal) Unwrap() error { return r.why }

func (s *Scheduler) carryOnce(ctx context.Context, list []Carried) error {
	if err := s.publishHoldings(); err != nil { // What is brought along must be seen to be held.
		return err
	}
	if s.mayChangeModels() == nil {
		if err := s.TakeIn(s.Mesh.Self(), list); err != nil {
			return &carryRefusal{"this machine", err}
		}
		return nil
	}
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	failure := error(Errorf(Unreachable, "no admin's machine is up"))
	for _, p := range s.Mesh.Peers() {
		if p.Self || p.Role != membership.RoleAdmin || p.State != liveness.Alive {
			continue
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://peer/carried", bytes.NewReader(body))
		if err != nil {
			return err
		}
		response, err := s.Mesh.Control(p.ID).RoundTrip(r)
		if err != nil {
			failure = err
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		failure = &carryRefusal{p.Name, fmt.Errorf("it answered %d", response.StatusCode)}
	}
	return failure
}

// TakeIn registers the models that a member brought along: no more than
// maxCarried in all, and only those whose files it is known to hold whole; while
// it is not, the error is NoHolder and the member may ask again. What the mesh
// has already, by uid, is left as it is, and what has not the form of a model is
// left out; a name that is taken gets the end of the member's id behind it, and an
// alias that is taken is dropped.
func (s *Scheduler) TakeIn(from peer.ID, list []Carried) error {
	if err := s.mayChangeModels(); err != nil {
		return err
	}
	if len(list) > maxCarried {
		return Errorf(InvalidRequest, "%d models at once: %d are the most", len(list), maxCarried)
	}
	if !s.newView().serves(from.String()) {
		return Errorf(NotAllowed, "only a member with trust %q brings models along", membership.TrustReplicas)
	}
	s.registering.Lock()
	defer s.registering.Unlock()
	table := s.Mesh.Table()
	room := maxCarried - s.broughtBy(from)
	var unseen []string
	for _, c := range list {
		m := c.Model
		m.BroughtBy = from.String()
		if err := errors.Join(checkUID(c.UID), m.check(s.CheckArgs, s.CheckEnv)); err != nil {
			s.log.Warn("a model that was brought along is left out", "from", s.Mesh.NameOf(from), "error", err)
			continue
		}
		if _, known := table.Latest(KindModel, c.UID); known {
			continue
		}
		if !holdsWhole(table, from, m) {
			unseen = append(unseen, m.Name)
			continue
		}
		if room == 0 {
			return Errorf(QuotaExceeded, "a member brings along %d models at most", maxCarried)
		}
		v := s.newView()
		if v.calledOther(nil, m.Name) != nil {
			end := from.String()
			end = "-" + end[len(end)-6:]
			m.Name = m.Name[:min(len(m.Name), maxModelName-len(end))] + end
		}
		m.Aliases = slices.DeleteFunc(slices.Clone(m.Aliases), func(alias string) bool { return v.calledOther(nil, alias) != nil })
		if err := s.Mesh.PutShared(KindModel, c.UID, m); err != nil {
			return err
		}
		room--
	}
	s.wake()
	if len(unseen) > 0 {
		return Errorf(NoHolder, "that %s holds %s whole is not known here yet", s.Mesh.NameOf(from), strings.Join(unseen, ", "))
	}
	return nil
}

// broughtBy counts the models that a member ever brought along.
func (s *Scheduler) broughtBy(id peer.ID) (n int) {
	for _, r := range s.Mesh.Table().History(KindModel) {
		if m, err := decode[Model](r.Record); err == nil && m.BroughtBy == id.String() {
			n++
		}
	}
	return n
}
