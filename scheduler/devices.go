package scheduler

import (
	"context"
	"fmt"
	"time"

	"relay/llama/gpu"
	"relay/p2p/membership"
	"relay/scheduler/ways"
	"relay/store"
)

const (
	// deviceTime bounds the question which devices there are, and dueEvery is how
	// often it is looked whether to ask it.
	deviceTime = 40 * time.Second
	dueEvery   = time.Second
)

// devices finds this machine's GPUs, again and again, and decides which of them
// are left to other programs.
type devices struct {
	s     *Scheduler
	watch gpu.Watch
	busy  map[string]*gpu.Busy
	said  string // The last trouble that was told.

	foreign map[string]uint64 // What other programs held of a GPU when that was last known.
}

func newDevices(s *Scheduler) *devices {
	return &devices{s: s, busy: map[string]*gpu.Busy{}, foreign: map[string]uint64{}}
}

// run looks when it is time to, until ctx ends.
func (d *devices) run(ctx context.Context) error {
	tick := time.NewTicker(dueEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			d.look(ctx)
		}
	}
}

// look asks the engine and the machine's tools for GPUs, when it is time to. What
// cannot be learnt leaves what is known as it is: models run on it.
func (d *devices) look(ctx context.Context) {
	if d.s.Engine == nil {
		return
	}
	now := gpu.Moment{Wall: time.Now(), Mono: time.Since(d.s.started)}
	build := d.s.Engine.Build().Commit
	due, list := d.watch.Due(now, build)
	if !due {
		return
	}
	own := d.s.work.own()
	ctx, cancel := context.WithTimeout(ctx, deviceTime)
	defer cancel()
	found, err := d.s.Engine.Devices(ctx, own.Own, list)
	if err != nil {
		d.watch.Looked(now, build, list, d.s.advert.hasGPU())
		if said := err.Error(); said != d.said && ctx.Err() == nil {
			d.said = said
			d.s.log.Warn("devices not listed", "error", err)
			d.s.decisions.say("", fmt.Sprintf("%s: %s; what was known of its GPUs stands", d.s.Mesh.NameOf(d.s.Mesh.Self()), said))
		}
		return
	}
	d.said = ""
	var gpus []Device
	for _, g := range found[:min(len(found), maxListed-1)] {
		if g.ID == ways.HostID {
			continue // It is measured more often.
		}
		g.ID, g.Name, g.Kind = bounded(g.ID, membership.MaxNameLength), bounded(g.Name, maxModelName), bounded(g.Kind, maxModelName)
		g.Unusable = bounded(g.Unusable, maxSentence)
		switch {
		case own.starting[g.ID]: // What that holds is not told from what others do.
			g.Foreign, g.ForeignKnown = min(g.Foreign, d.foreign[g.ID]), false
		case g.ForeignKnown:
			d.foreign[g.ID] = g.Foreign
		}
		g.own = own.Bytes[g.ID]
		g.Busy = bounded(d.judge(g, now.Mono), maxSentence)
		gpus = append(gpus, g)
	}
	d.watch.Looked(now, build, list, len(gpus) > 0)
	d.s.advert.found(gpus)
}

// judge says why nothing new is to go to a GPU, or "".
func (d *devices) judge(g Device, now time.Duration) string {
	b := d.busy[g.ID]
	if b == nil {
		b = &gpu.Busy{}
		d.busy[g.ID] = b
	}
	busy := b.Look(g.Foreign, g.ForeignKnown, d.s.Lend.BusyIgnore, now)
	switch {
	case g.Unusable != "":
		return g.Unusable
	case !busy:
		return ""
	}
	text := fmt.Sprintf("another program uses %s (%s of its memory)", g.ID, store.FormatBytes(g.Foreign))
	if d.s.Lend.AutoPause {
		d.s.work.pause(g.ID, Errorf(DeviceBusy, "unloaded because %s", text))
	}
	return text
}
