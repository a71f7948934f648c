package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
)

// maxCarried bounds the models that a machine brings along into a mesh.
const maxCarried = 64

// carryEvery is how often an admin is looked for who takes them.
const carryEvery = 3 * time.Second

// Carried is a model that a machine brings along when it leaves a mesh of its
// own for another.
type Carried struct {
	UID   string `json:"uid"`
	Model Model  `json:"model"`
}

// CarriedFrom lists the models of a mesh that is about to be left.
func CarriedFrom(table *record.Table) []Carried {
	var list []Carried
	for _, r := range table.List(KindModel) {
		if m, err := decode[Model](r.Record); err == nil && len(list) < maxCarried {
			list = append(list, Carried{r.ID, m})
		}
	}
	return list
}

// Carry registers the models in the mesh: by itself where this machine is an
// admin's, else through an admin's peer that is up. It returns when that is
// done, or ctx ends.
func (s *Scheduler) Carry(ctx context.Context, list []Carried) error {
	tick := time.NewTicker(carryEvery)
	defer tick.Stop()
	for {
		err := s.carryOnce(ctx, list)
		if err == nil {
			return nil
		}
		s.log.Info("models not registered yet", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Scheduler) carryOnce(ctx context.Context, list []Carried) error {
	if s.mayChangeModels() == nil {
		return s.TakeIn(s.Mesh.Self(), list)
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
		failure = fmt.Errorf("%s answered %s", p.Name, response.Status)
	}
	return failure
}

// TakeIn registers the models that a member brought along. What the mesh has
// already, by uid, is left as it is; a name that is taken gets the member's
// name behind it.
func (s *Scheduler) TakeIn(from peer.ID, list []Carried) error {
	if err := s.mayChangeModels(); err != nil {
		return err
	}
	if len(list) > maxCarried {
		return Errorf(InvalidRequest, "%d models at once: %d are the most", len(list), maxCarried)
	}
	if m, ok := s.Mesh.Roster().Member(from); !ok || m.Trust != membership.TrustReplicas {
		return Errorf(NotAllowed, "only a member with trust %q brings models along", membership.TrustReplicas)
	}
	v := s.newView()
	for _, c := range list {
		if _, known := s.Mesh.Table().Latest(KindModel, c.UID); known {
			continue
		}
		if v.find(c.Model.Name) != nil {
			c.Model.Name += "-" + from.String()[len(from.String())-6:]
		}
		if err := s.Mesh.PutShared(KindModel, c.UID, c.Model); err != nil {
			return err
		}
	}
	s.wake()
	return nil
}
