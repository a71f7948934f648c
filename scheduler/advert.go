package scheduler

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"relay/p2p/membership"
)

const (
	measureEvery = 2 * time.Second
	refreshEvery = time.Minute
	// advertStep is the change of memory, as a share of what it was, that is
	// worth telling the mesh.
	advertStep = 0.05
	// devicesEvery is how often the engine is asked for its devices.
	devicesEvery = time.Minute
	deviceTime   = 10 * time.Second
)

// advertiser measures what this machine has and tells the mesh what it lends.
type advertiser struct {
	s *Scheduler

	mu       sync.Mutex
	current  Advert
	devices  []Device
	devError string
	asked    time.Time
	draining bool
	told     Advert
	toldAt   time.Time
	now      chan struct{} // A reason to measure now.
}

func newAdvertiser(s *Scheduler) *advertiser { return &advertiser{s: s, now: make(chan struct{}, 1)} }

// again has the machine measured now rather than at the next tick.
func (a *advertiser) again() {
	select {
	case a.now <- struct{}{}:
	default:
	}
}

// measure looks at the machine once and sets the ledger accordingly.
func (a *advertiser) measure(ctx context.Context) error {
	total, available, err := a.s.Memory()
	if err != nil {
		return fmt.Errorf("measure this machine's memory: %w", err)
	}
	a.askDevices(ctx)
	diskFree, diskTotal, err := a.s.Disk()
	if err != nil {
		a.s.log.Warn("disk not measured", "error", err)
	} else {
		a.s.measuredDisk(diskFree, diskTotal)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	next := Advert{
		Total: total, Free: available, Cores: a.s.Cores, Devices: a.devices,
		Settled: time.Since(a.s.started) >= settledAfter, Draining: a.draining,
		DiskFree: diskFree, DiskTotal: diskTotal,
	}
	switch {
	case a.s.Engine == nil:
		next.NoEngine = bounded(a.s.NoEngine, maxSentence)
	case a.devError != "":
		next.NoEngine = bounded(a.devError, maxSentence)
	default:
		next.Engine = a.s.Engine.Build()
		next.Lent = a.s.Lend.Of(available, a.s.ledger.Reserved())
	}
	a.s.ledger.SetLent(next.Lent)
	next.Room = a.s.ledger.Free()
	a.current = next
	return nil
}

// Of is how much is lent in all: what models hold already and what is free,
// less the reserve, and never more than the owner allows.
func (l Lend) Of(available, reserved uint64) uint64 {
	if l.None {
		return 0
	}
	lent := available + reserved
	lent -= min(lent, l.Reserve)
	if l.Bytes > 0 {
		lent = min(lent, l.Bytes)
	}
	return lent
}

func (a *advertiser) askDevices(ctx context.Context) {
	if a.s.Engine == nil || time.Since(a.asked) < devicesEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deviceTime)
	defer cancel()
	devices, err := a.s.Engine.Devices(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.devError = time.Now(), ""
	if err != nil {
		a.devError = err.Error()
		return
	}
	a.devices = nil
	for _, d := range devices[:min(len(devices), maxListed)] {
		d.ID, d.Name, d.Kind = bounded(d.ID, membership.MaxNameLength), bounded(d.Name, maxModelName), bounded(d.Kind, maxModelName)
		a.devices = append(a.devices, d)
	}
}

// publish tells the mesh, when there is something to tell.
func (a *advertiser) publish() error {
	a.mu.Lock()
	now := a.current
	tell := time.Since(a.toldAt) >= refreshEvery || worthTelling(a.told, now)
	a.mu.Unlock()
	if !tell {
		return nil
	}
	if err := a.s.Mesh.PutOwned(KindAdvert, a.s.self, now); err != nil {
		return err
	}
	a.mu.Lock()
	a.told, a.toldAt = now, time.Now()
	a.mu.Unlock()
	return nil
}

func worthTelling(old, now Advert) bool {
	for _, pair := range [][2]uint64{{old.Free, now.Free}, {old.Lent, now.Lent}, {old.Room, now.Room}} {
		if more, less := max(pair[0], pair[1]), min(pair[0], pair[1]); float64(more-less) > advertStep*float64(more) {
			return true
		}
	}
	// What does not wobble is told at any difference.
	for _, p := range []*Advert{&old, &now} {
		p.Free, p.Lent, p.Room, p.DiskFree = 0, 0, 0, 0
		p.Devices = withoutFree(p.Devices)
	}
	return !reflect.DeepEqual(old, now)
}

func withoutFree(devices []Device) []Device {
	var list []Device
	for _, d := range devices {
		d.Free = 0
		list = append(list, d)
	}
	return list
}

func (a *advertiser) run(ctx context.Context) error {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		if err := a.publish(); err != nil {
			a.s.log.Warn("advert not published", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-a.now:
		}
		if err := a.measure(ctx); err != nil {
			a.s.log.Warn("machine not measured", "error", err)
		}
	}
}

// drain says that this peer takes nothing new from now on, and tells the mesh.
func (a *advertiser) drain() error {
	a.mu.Lock()
	a.draining = true
	a.current.Draining = true
	a.mu.Unlock()
	return a.publish()
}

// Leave says that this peer goes, and waits until its models are led and served
// by others or patience ends; alone in the mesh it returns at once.
func (s *Scheduler) Leave(patience time.Duration) {
	if err := s.advert.drain(); err != nil {
		s.log.Warn("leaving not announced", "error", err)
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		v, changed := s.latest()
		if s.nothingLeft(v) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			return
		}
	}
}

// nothingLeft says whether nobody else could take over anything from this peer.
func (s *Scheduler) nothingLeft(v *view) bool {
	for _, m := range v.models {
		others := false
		for i := range v.peers {
			if p := &v.peers[i]; p.id != s.self && p.alive() && p.able() {
				others = true
			}
		}
		if others && v.placements[m.uid].leader == s.self {
			return false
		}
	}
	return true
}
