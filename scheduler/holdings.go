package scheduler

import (
	"context"
	"fmt"
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
func (s *Scheduler) publishHoldings() error {
	here := map[string]Holding{}
	for _, c := range s.Content.List() {
		if c.Complete {
			here[c.CID.String()] = Holding{Bytes: c.Bytes, Whole: true, Pulled: !c.InPlace}
		}
	}
	table := s.Mesh.Table()
	for _, r := range table.List(KindHolding) {
		owner, c, _ := splitPair(r.ID)
		if owner != s.self {
			continue
		}
		was, err := decode[Holding](r.Record)
		switch now, ok := here[c]; {
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
