package scheduler

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"relay/p2p"
	"relay/p2p/liveness"
	"relay/scheduler/ways"
)

const (
	measureEvery = 2 * time.Second
	refreshEvery = time.Minute
	// advertStep is the change of memory, as a share of what it was, that is
	// worth telling the mesh.
	advertStep = 0.05
)

// advertiser measures what this machine has and tells the mesh what it lends.
type advertiser struct {
	s *Scheduler

	mu        sync.Mutex
	current   Advert
	gpus      []Device        // As they were last found.
	unified   map[string]bool // The devices whose memory is the host's.
	draining  bool
	fetchRate float64
	told      Advert
	toldAt    time.Time
	now       chan struct{} // A reason to measure now.
}

func newAdvertiser(s *Scheduler) *advertiser {
	return &advertiser{s: s, now: make(chan struct{}, 1)}
}

// again has the machine measured now rather than at the next tick.
func (a *advertiser) again() {
	select {
	case a.now <- struct{}{}:
	default:
	}
}

// fetching notes what a pull gets, in bytes a second.
func (a *advertiser) fetching(rate float64) {
	if rate <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fetchRate = rate
}

// tell measures and tells the mesh at once: what is said next rests on it.
func (a *advertiser) tell() {
	err := a.measure()
	if err == nil {
		err = a.publish()
	}
	if err != nil {
		a.s.log.Warn("advert not published", "error", err)
	}
}

// measure looks at the machine once and sets the ledger accordingly.
func (a *advertiser) measure() error {
	total, available, err := a.s.Memory()
	if err != nil {
		return fmt.Errorf("measure this machine's memory: %w", err)
	}
	own := a.s.work.own()
	diskFree, diskTotal, err := a.s.Disk()
	if err != nil {
		a.s.log.Warn("disk not measured", "error", err)
	} else {
		a.s.measuredDisk(diskFree, diskTotal)
	}
	evictable, links := a.s.work.evictable(), a.s.Mesh.Peers()
	a.mu.Lock()
	defer a.mu.Unlock()
	next := Advert{
		Total: total, Free: available, Cores: a.s.Cores, CoresLent: a.s.CoresLent, FetchRate: math.Round(a.fetchRate),
		Settled: time.Since(a.s.started) >= settledAfter, Draining: a.draining,
		DiskFree: diskFree, DiskTotal: diskTotal, RTT: roundTrips(a.told.RTT, links),
	}
	lends := false
	switch {
	case a.s.Engine == nil:
		next.NoEngine = bounded(a.s.NoEngine, maxSentence)
	default:
		next.Engine = a.s.Engine.Build()
		lends = !a.s.Lend.None
	}
	host := Device{ID: ways.HostID, Name: "host memory", Kind: "ram", Total: total, Free: available, Known: true}
	devices := append(slices.Clone(a.gpus), host)
	if lends {
		a.s.Lend.share(devices, own)
	}
	lent, unified := map[string]uint64{}, map[string]bool{}
	for _, d := range devices {
		if unified[d.ID] = d.Unified; !d.Unified {
			lent[d.ID] = d.Lent
		}
	}
	a.unified = unified
	a.s.ledger.SetLent(lent)
	free := a.s.ledger.Free()
	for i := range devices {
		d := &devices[i]
		rates := a.s.speeds.of(d.ID)
		d.Room, d.Evictable, d.Decode, d.Prefill = free[d.ID], evictable[d.ID], rates.Decode, rates.Prefill
		if d.Unified {
			d.Room, d.Evictable = min(d.Lent, unifiedShare(free[ways.HostID])), evictable[ways.HostID]
		}
	}
	next.Devices = devices
	next.Lent, next.Room = devices[len(devices)-1].Lent, devices[len(devices)-1].Room
	a.current = next
	return nil
}

const (
	// nearRTT is below which it makes no difference how near a peer is, and farther how
	// often a distance has to be another one to be told anew: it wobbles, and every
	// advert goes to everybody.
	nearRTT = time.Millisecond
	farther = 4
	// toldRTTs bounds the peers whose distance is told.
	toldRTTs = 32
)

// roundTrips are this peer's distances to others, in microseconds by peer id. What was
// told stands while it is about right.
func roundTrips(told map[string]uint64, peers []p2p.Peer) map[string]uint64 {
	list := map[string]uint64{}
	for _, p := range peers {
		id, now := p.ID.String(), uint64(p.RTT.Microseconds())
		was := told[id]
		switch {
		case p.Self || p.State != liveness.Alive || len(list) == toldRTTs:
		case was > 0 && now < farther*was && farther*now > was:
			list[id] = was
		case p.RTT >= nearRTT:
			list[id] = min(now, maxRTT)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// share works out how much of each device is lent in all: what is free and what
// this peer's engines hold already, less what its owner keeps, and of each no more
// than the owner allows. Host memory is the last of the devices.
func (l Lend) share(devices []Device, own owned) {
	for i := range devices {
		d := &devices[i]
		switch {
		case d.Unusable != "" || d.Unified || !d.Known:
			continue
		case d.ID == ways.HostID:
			// Memory that is mapped from files counts as available although the models of
			// this peer are in it; what is their own does not.
			d.Lent = d.Free + own.private
			d.Lent -= min(d.Lent, l.Reserve)
		default:
			used := d.Total - min(d.Total, d.Free)
			used -= min(used, d.Foreign)
			// What is reserved may not be taken yet, and what was may have been given back since.
			d.Lent = d.Free + min(d.own, used)
			d.Lent -= min(d.Lent, l.VRAMReserve)
		}
		if l.Bytes > 0 {
			d.Lent = min(d.Lent, l.Bytes)
		}
	}
	host := devices[len(devices)-1]
	for i := range devices {
		if d := &devices[i]; d.Unified && d.Unusable == "" && d.Known {
			d.Lent = min(d.Total, unifiedShare(host.Lent))
		}
	}
}

// unifiedShare is how much of host memory a GPU that has none of its own may be
// given: the rest is for what its engine takes besides.
func unifiedShare(host uint64) uint64 { return host - host/8 }

// Of works out how much of each device a peer would lend that runs nothing yet.
func (l Lend) Of(devices []Device) []Device {
	devices = slices.Clone(devices)
	if !l.None {
		l.share(devices, owned{})
	}
	return devices
}

// booked is memory by device as the ledger keeps it: what a GPU without memory of
// its own takes is the host's.
func (a *advertiser) booked(need map[string]uint64) map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := map[string]uint64{}
	for device, bytes := range need {
		if a.unified[device] {
			device = ways.HostID
		}
		list[device] += bytes
	}
	return list
}

// found takes in the GPUs as they are now.
func (a *advertiser) found(gpus []Device) {
	a.mu.Lock()
	a.gpus = gpus
	a.mu.Unlock()
	a.again()
}

func (a *advertiser) hasGPU() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.gpus) > 0
}

// lends says whether a GPU is one that this peer offers.
func (a *advertiser) lends(device string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.gpus, func(d Device) bool { return d.ID == device && d.Unusable == "" && d.Known })
}

// short says whether this machine is about to run out of memory.
func (a *advertiser) short() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current.Free < a.current.Total/20
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
	pairs := [][2]uint64{{old.Free, now.Free}, {old.Lent, now.Lent}, {old.Room, now.Room}}
	for i, d := range now.Devices {
		if i < len(old.Devices) {
			o := old.Devices[i]
			pairs = append(pairs, [2]uint64{o.Lent, d.Lent}, [2]uint64{o.Room, d.Room}, [2]uint64{o.Evictable, d.Evictable},
				[2]uint64{uint64(o.Decode), uint64(d.Decode)}, [2]uint64{uint64(o.Prefill), uint64(d.Prefill)})
		}
	}
	for _, pair := range pairs {
		if more, less := max(pair[0], pair[1]), min(pair[0], pair[1]); float64(more-less) > advertStep*float64(more) {
			return true
		}
	}
	// What does not wobble is told at any difference.
	for _, p := range []*Advert{&old, &now} {
		p.Free, p.Lent, p.Room, p.DiskFree, p.FetchRate = 0, 0, 0, 0, 0
		p.Devices = steady(p.Devices)
	}
	return !reflect.DeepEqual(old, now)
}

// steady leaves out what wobbles.
func steady(devices []Device) []Device {
	var list []Device
	for _, d := range devices {
		d.Free, d.Lent, d.Room, d.Evictable, d.Decode, d.Prefill, d.Foreign, d.ForeignKnown, d.own = 0, 0, 0, 0, 0, 0, 0, false, 0
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
		if err := a.measure(); err != nil {
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
