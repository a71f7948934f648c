package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"relay/scheduler/cores"
	"relay/scheduler/ledger"
	"relay/scheduler/routing"
)

// Scheduler decides and carries out on one peer.
type Scheduler struct {
	Options
	self    string
	log     *slog.Logger
	started time.Time

	ledger    *ledger.Ledger
	cores     *cores.Cores
	speeds    *speeds
	asks      *asker
	lead      *leading
	work      *worker
	advert    *advertiser
	devices   *devices
	decisions *decisions
	routes    *routing.Book
	cuts      *cuts
	aways     *aways
	pulls     *pulls
	layouts   *layouts

	mu      sync.Mutex
	stuck   string        // Why no room can be made on a disk that is nearly full.
	view    *view         // As of the last look at the mesh.
	changed chan struct{} // Closed and replaced when view is another.

	freeing     sync.Mutex // Held while files are deleted to free disk; before registering.
	registering sync.Mutex // Held from the question whether a model may be registered until it is; before holding and mu.
	holding     sync.Mutex // Held while this peer's holdings are compared and written.

	diskFull chan struct{} // A reason to make room.

	kick  chan struct{}
	ready chan struct{}
	ended chan struct{} // Closed when Run is told to end.
}

// New builds a scheduler; it does nothing before Run.
func New(o Options) (*Scheduler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DefaultSlots == 0 {
		o.DefaultSlots = 2
	}
	s := &Scheduler{
		Options: o, self: o.Mesh.Self().String(), log: o.Log, started: time.Now(),
		changed: make(chan struct{}), kick: make(chan struct{}, 1), ready: make(chan struct{}), ended: make(chan struct{}),
		decisions: newDecisions(), routes: routing.New(), cuts: newCuts(), aways: newAways(o.Log),
		pulls: newPulls(), diskFull: make(chan struct{}, 1),
	}
	if o.CoresLent == 0 {
		o.CoresLent = max(1, o.Cores/2)
	}
	s.Options = o
	s.ledger, s.cores, s.speeds, s.asks = ledger.New(), cores.New(o.CoresLent), newSpeeds(s), newAsker(s)
	s.lead = newLeading(s)
	s.work = newWorker(s)
	s.advert = newAdvertiser(s)
	s.devices = newDevices(s)
	s.layouts = newLayouts(s)
	s.look()
	return s, nil
}

// Run works until ctx ends; then it lets requests finish, stops the engines and
// returns when they are gone.
func (s *Scheduler) Run(ctx context.Context) error {
	s.devices.look(ctx)
	if err := s.advert.measure(); err != nil {
		return err
	}
	if err := s.forgetFormerLife(); err != nil {
		return err
	}
	if err := s.advert.publish(); err != nil {
		return err
	}
	s.look()
	close(s.ready)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.plan(ctx) })
	group.Go(func() error { return s.advert.run(ctx) })
	group.Go(func() error { return s.devices.run(ctx) })
	group.Go(func() error { return s.asks.run(ctx) })
	group.Go(func() error { return s.watchHoldings(ctx) })
	group.Go(func() error { return s.watchDisk(ctx) })
	err := group.Wait()
	close(s.ended) // Nothing that a request could wait for will come up here.
	s.work.stopAll()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Ready is closed once this machine has been measured.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// plan looks at the mesh whenever something changed, and acts.
func (s *Scheduler) plan(ctx context.Context) error {
	records, cancel := s.Mesh.Table().Subscribe()
	defer cancel()
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	for {
		v := s.look()
		s.work.judgeGroups(v) // First: requests hang until a lost worker is noticed.
		s.lead.decide(v)
		s.forgetMeasured(v)
		s.work.carryOut(ctx, v)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-records:
		case <-s.Mesh.StatesChanged():
		case <-s.kick:
		case <-tick.C:
		}
	}
}

// wake has the mesh looked at now.
func (s *Scheduler) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// look takes a new view of the mesh and tells whoever waits for one.
func (s *Scheduler) look() *view {
	v := s.newView()
	s.mu.Lock()
	s.view = v
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.cuts.judge(v)
	s.aways.judge(v)
	s.asks.forget(v)
	s.routes.Keep(func(uid string) bool { return v.model[uid] != nil })
	s.decisions.note(v)
	return v
}

// latest returns the last view, and a channel that is closed at the next one.
func (s *Scheduler) latest() (*view, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view, s.changed
}

// barred says whether this peer may not run whole models any more, and what it
// runs has to end at once: its trust is another, or it was taken out of the mesh.
// One that leaves by itself ends in good order.
func (s *Scheduler) barred(v *view) bool {
	if me := v.peer[s.self]; me != nil {
		return !me.trusted()
	}
	return s.Mesh.Roster().Revoked(s.Mesh.Self())
}

// forgetFormerLife takes back what this peer said of its replicas and shares before it
// was started: none of them runs.
func (s *Scheduler) forgetFormerLife() error {
	for _, kind := range []string{KindReplica, KindShare} {
		for _, r := range s.Mesh.Table().List(kind) {
			if owner, _, _ := splitPair(r.ID); owner == s.self {
				if _, err := s.Mesh.Table().DeleteOwned(kind, r.ID); err != nil {
					return fmt.Errorf("take back what ran in the last run: %w", err)
				}
			}
		}
	}
	return nil
}

// nameOf is what a peer is called.
func (s *Scheduler) nameOf(id string) string {
	p, err := peer.Decode(id)
	if err != nil {
		return id
	}
	return s.Mesh.NameOf(p)
}
