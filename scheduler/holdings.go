package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// holdingsEvery is how often the files are looked at: one that was moved or
// overwritten is no longer offered.
const holdingsEvery = 15 * time.Second

// watchHoldings keeps this peer's holding records true.
func (s *Scheduler) watchHoldings(ctx context.Context) error {
	tick := time.NewTicker(holdingsEvery)
	defer tick.Stop()
	for {
		if err := s.publishHoldings(); err != nil {
			s.log.Warn("holdings not published", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// publishHoldings writes what differs between the files here and the records.
// An unfinished pull is told of as soon as there is something to get from it.
func (s *Scheduler) publishHoldings() error {
	s.holding.Lock()
	defer s.holding.Unlock()
	here, gone := map[string]Holding{}, map[string]Holding{}
	partials, err := s.Content.Partials()
	if err != nil {
		return err
	}
	for _, p := range partials {
		if p.Done > 0 && p.Bytes > 0 {
			here[p.CID.String()] = Holding{Bytes: p.Bytes, Pulled: true}
		}
	}
	for _, c := range s.Content.List() {
		h := Holding{Bytes: c.Bytes, Whole: true, Pulled: !c.InPlace}
		if c.Complete {
			here[c.CID.String()] = h
		} else if _, err := s.Content.Path(c.CID); err != nil {
			h.Whole, h.Gone = false, bounded(err.Error(), maxSentence)
			gone[c.CID.String()] = h
			delete(here, c.CID.String()) // Why it is gone matters more.
		}
	}
	table := s.Mesh.Table()
	for _, r := range table.List(KindHolding) {
		owner, c, _ := splitPair(r.ID)
		if owner != s.self {
			continue
		}
		was, err := decode[Holding](r.Record)
		now, ok := here[c]
		if !ok {
			if now, ok = gone[c]; ok { // What was offered once says why it no longer is.
				here[c] = now
			}
		}
		switch {
		case !ok:
			s.log.Info("no longer held", "cid", c)
			if _, err := table.DeleteOwned(KindHolding, r.ID); err != nil {
				return fmt.Errorf("withdraw a holding: %w", err)
			}
		case err == nil && was == now:
			delete(here, c)
		}
	}
	for c, h := range here {
		if err := s.Mesh.PutOwned(KindHolding, pairID(s.self, c), h); err != nil {
			return fmt.Errorf("publish a holding: %w", err)
		}
	}
	return nil
}

// LastCopies names the models of which a peer has pulled a copy while nobody else
// who is up has the file whole, by name. What its owner registered is not one:
// relay does not erase it.
func (s *Scheduler) LastCopies(id string) []string {
	v := s.newView()
	var names []string
	for _, m := range v.models {
		if slices.ContainsFunc(m.roots(), func(r Root) bool {
			h := v.holding(id, r.CID)
			return h.Whole && h.Pulled && !v.elsewhere(id, r.CID)
		}) {
			names = append(names, m.shown)
		}
	}
	return names
}

// elsewhere says whether another peer than one has a content whole and is up.
func (v *view) elsewhere(id, cid string) bool {
	return slices.ContainsFunc(v.holdings[cid], func(h holdingView) bool {
		return h.peer != id && h.Whole && v.serves(h.peer) && v.peer[h.peer].alive()
	})
}
