package scheduler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay/p2p/record"
	"relay/scheduler/speed"
	"relay/scheduler/ways"
	"relay/store"
)

const (
	// watchEvery is how often an engine's load is looked at, and memoryEvery how often
	// its memory is.
	watchEvery  = time.Second
	memoryEvery = 5 * time.Second
	// pressedAfter is how long requests wait before that is told, quietAfter how long
	// there is none.
	pressedAfter = time.Minute
	quietAfter   = 10 * time.Minute
	// An engine is replaced when it takes half as much again as was to be expected, or
	// as it took at first, and half a gibibyte more: it leaks. The pause until that is
	// done again doubles, up to an hour. There is a gap only where memory is short.
	leakShare, leakBytes = 2, 512 << 20
	leakEvery            = 5 * time.Minute
	// measuredStep is the change of a speed, as a share, that is worth telling, and
	// measuredEvery how often it is told at most.
	measuredStep  = 0.1
	measuredEvery = 30 * time.Second
)

// observe looks at what an engine has to do and what it takes, and tells the mesh
// what is news of that.
func (w *worker) observe(r *run, e *engine) {
	now := time.Now()
	w.mu.Lock()
	switch {
	case e.waiting() == 0:
		e.since = time.Time{}
	case e.since.IsZero():
		e.since = now
	}
	last := e.ready
	if e.used.After(last) {
		last = e.used
	}
	pressure := ""
	switch {
	case !e.since.IsZero() && now.Sub(e.since) >= pressedAfter:
		pressure = LoadPressed
	case e.inFlight == 0 && now.Sub(last) >= quietAfter:
		pressure = LoadQuiet
	}
	news := pressure != e.pressure && r.engine == e
	e.pressure = pressure
	look := now.Sub(e.looked) >= memoryEvery
	if look {
		e.looked = now
	}
	w.mu.Unlock()
	if news {
		w.tell(r, w.readyNow(r, e))
	}
	if look {
		w.weigh(r, e)
	}
}

// weigh compares what an engine takes with what is reserved for it: more is
// counted, and one that leaks is replaced before the machine suffers.
func (w *worker) weigh(r *run, e *engine) {
	u, err := e.process.Usage()
	if err != nil {
		return // It has ended, or this system does not tell.
	}
	e.private.Store(u.Private)
	has := w.s.ledger.Of(e.name)
	reserved := has[ways.HostID]
	if u.RSS > reserved {
		has[ways.HostID] = u.RSS
		w.s.ledger.Adjust(e.name, has)
		w.s.advert.again()
	}
	expected := w.s.advert.booked(e.way.Need())[ways.HostID]
	w.mu.Lock()
	if e.baseline == 0 { // What it takes from the beginning is no leak, however wrong the prediction was.
		e.baseline = u.RSS
	}
	expected = max(expected, e.baseline)
	pause := min(leakEvery<<min(r.leaks, 4), time.Hour)
	leaks := e.way.Group == nil && // Two engines cannot have the same workers.
		u.RSS >= expected+expected/leakShare+leakBytes && (r.leaks == 0 || time.Since(r.leaked) >= pause)
	w.mu.Unlock()
	if !leaks {
		return
	}
	text := fmt.Sprintf("model %q: its engine takes %s of memory where %s were expected, and is replaced", r.name, store.FormatBytes(u.RSS), store.FormatBytes(expected))
	select {
	case r.renewal <- renewalOrder{text: text, spare: !w.s.advert.short()}:
		w.mu.Lock()
		r.leaked = time.Now()
		r.leaks++
		w.mu.Unlock()
		w.s.decisions.say(r.name, text)
	default: // It is to be replaced already.
	}
}

// measured takes in what an engine says that it has taken: from now on that is
// what is reserved, and what the next plan reckons with.
func (w *worker) measured(r *run, e *engine) {
	used := e.process.Used()
	seen := ways.Seen{Kind: e.way.Kind, CPUExperts: e.way.CPUExperts, Parts: slices.Clone(e.way.Parts), LoadMS: e.load.Milliseconds(), Group: e.way.Group}
	if len(used) > 0 {
		has := map[string]uint64{}
		for i, p := range seen.Parts {
			bytes := used[p.Device]
			if p.Device == ways.HostID {
				shape := e.model.shape()
				bytes += shape.Host
			}
			if bytes > 0 {
				seen.Parts[i].Bytes = bytes
			}
			has[p.Device] = seen.Parts[i].Bytes
		}
		w.s.ledger.Adjust(e.name, w.s.advert.booked(has))
	}
	if t, err := e.process.Timings(context.Background()); err == nil {
		e.timings, e.timed = t, true
	}
	w.note(r, func(m *Measured) bool {
		if i := slices.IndexFunc(m.Seen, func(s ways.Seen) bool { return s.Kind == seen.Kind }); i >= 0 && !sawWay(m.Seen[i], e.way) {
			m.Seen = slices.Delete(m.Seen, i, i+1) // Of another split.
		} else if i >= 0 {
			seen.Decode, seen.Prefill, seen.Turns = m.Seen[i].Decode, m.Seen[i].Prefill, m.Seen[i].Turns
			m.Seen = slices.Delete(m.Seen, i, i+1)
		}
		m.Seen = append([]ways.Seen{seen}, m.Seen[:min(len(m.Seen), maxWays-1)]...)
		return true
	})
}

// sawWay says whether what was seen is of a way.
func sawWay(s ways.Seen, way ways.Way) bool {
	if (s.Group == nil) != (way.Group == nil) || s.Group != nil && !slices.EqualFunc(s.Group.Shares, way.Group.Shares, sameShare) {
		return false
	}
	way.Group = nil // Which formation of the same peers it was makes no difference.
	return sameWay(ways.Way{Kind: s.Kind, Parts: s.Parts, CPUExperts: s.CPUExperts}, way)
}

// sameShare says whether two shares are the same layers on the same devices.
func sameShare(a, b ways.Share) bool {
	return a.Peer == b.Peer && a.From == b.From && slices.EqualFunc(a.Parts, b.Parts, func(a, b ways.Part) bool {
		return a.Device == b.Device && a.Layers == b.Layers
	})
}

// learn takes the engine's own timings of what ran since the last look, where
// that was one request at a time: several at once say little about one.
func (w *worker) learn(ctx context.Context, r *run, e *engine) {
	if !e.timed {
		return
	}
	t, err := e.process.Timings(ctx)
	if err != nil {
		return // The next one says it all.
	}
	w.mu.Lock()
	alone := e.peak <= 1
	e.peak = e.queue.Running()
	before := e.timings
	e.timings = t
	turns := e.turnsSince()
	w.mu.Unlock()
	if !alone || t.Tokens < before.Tokens || t.Prompt < before.Prompt {
		return
	}
	sample := speed.Sample{
		Tokens: int(t.Tokens - before.Tokens), TokenTime: t.TokenTime - before.TokenTime,
		Prompt: int(t.Prompt - before.Prompt), PromptTime: t.PromptTime - before.PromptTime,
	}
	shape := e.model.shape()
	if len(shape.Layers) > 0 && e.way.Group == nil { // Of several machines' time nobody can say whose it was.
		w.s.speeds.learn(e.way, shape, sample)
	}
	// The same figures for this model alone, in tokens.
	own := speed.Rates{}.Learn(speed.Sample{Tokens: sample.Tokens, TokenTime: sample.TokenTime, Prompt: sample.Prompt, PromptTime: sample.PromptTime, Active: tokenWeight})
	w.note(r, func(m *Measured) bool {
		i := slices.IndexFunc(m.Seen, func(s ways.Seen) bool { return sawWay(s, e.way) })
		if i < 0 {
			return false
		}
		s := &m.Seen[i]
		if sample.Tokens >= leastCounted && sample.Prompt <= sample.Tokens/4 {
			s.Turns = blend(s.Turns, turns/float64(sample.Tokens))
		}
		decode, prefill := blend(s.Decode, own.Decode/tokenWeight), blend(s.Prefill, own.Prefill/tokenWeight)
		if !differs(s.Decode, decode) && !differs(s.Prefill, prefill) || s.Decode > 0 && time.Since(e.noted) < measuredEvery {
			return false
		}
		s.Decode, s.Prefill = decode, prefill
		e.noted = time.Now()
		return true
	})
}

// leastCounted is from how many tokens on the round trips for each are counted: a
// prompt takes some of its own.
const leastCounted = 16

// turnsSince are the round trips to each worker since the last look; worker.mu is held.
func (e *engine) turnsSince() float64 {
	if e.tunnels == nil {
		return 0
	}
	now := e.tunnels.turns()
	since := now - e.turns
	e.turns = now
	return float64(since) / float64(len(e.way.Group.Shares))
}

// tokenWeight has package speed, which reckons in bytes, reckon in tokens: it is
// what one token weighs there.
const tokenWeight = 1 << 30

// blend moves a speed that was known towards a new one, 0 where there is none.
func blend(known, now float64) float64 {
	switch {
	case now == 0:
		return known
	case known == 0:
		return now
	}
	return known + (now-known)/4
}

func differs(a, b float64) bool { return max(a, b)-min(a, b) > measuredStep*a }

// note changes what this peer says it has measured of a model, where change says
// that there is something to say.
func (w *worker) note(r *run, change func(*Measured) bool) {
	model := w.modelOf(r)
	served := servedKey(model)
	m := Measured{Served: served, Seen: slices.Clone(w.s.measuredOf(r.uid, model))}
	if !change(&m) {
		return
	}
	if err := w.s.Mesh.PutOwned(KindMeasured, pairID(w.s.self, r.uid), m); err != nil {
		w.s.log.Warn("what was measured is not told", "model", r.name, "error", err)
	}
}

// servedKey names what of a model decides how much memory it takes and how fast it
// is.
func servedKey(m Model) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d\x00%s\x00%s", m.CID, m.Projector.CID, m.Kind, m.Context, m.Slots,
		strings.Join(m.Args, "\x00"), strings.Join(m.Env, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// measuredOf is what this peer measured of a model as it is served.
func (s *Scheduler) measuredOf(uid string, m Model) []ways.Seen {
	kept, ok := s.Mesh.Table().Get(KindMeasured, pairID(s.self, uid))
	if !ok {
		return nil
	}
	measured, err := decode[Measured](kept.Record)
	if err != nil || measured.Served != servedKey(m) {
		return nil
	}
	return measured.Seen
}

// forgetMeasured takes back what this peer measured of models that are gone.
func (s *Scheduler) forgetMeasured(v *view) {
	for _, r := range s.Mesh.Table().List(KindMeasured) {
		if owner, uid, _ := splitPair(r.ID); owner == s.self && v.model[uid] == nil {
			if _, err := s.Mesh.Table().DeleteOwned(KindMeasured, r.ID); err != nil {
				s.log.Debug("what was measured is not taken back", "error", err)
			}
		}
	}
}

// speeds is how fast this machine's devices are, as far as that was learnt. It is
// kept on disk.
type speeds struct {
	s     *Scheduler
	rates map[string]speed.Rates // Of speeds.s.mu, by device.
}

var speedPrefix = []byte("speed/")

// newSpeeds reads what was learnt of the devices that are asked about later.
func newSpeeds(s *Scheduler) *speeds { return &speeds{s: s, rates: map[string]speed.Rates{}} }

// of returns what is known of a device.
func (k *speeds) of(device string) speed.Rates {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.read(device)
}

// read is of with the lock held.
func (k *speeds) read(device string) speed.Rates {
	r, ok := k.rates[device]
	if ok {
		return r
	}
	data, found, err := k.s.State.Get(append(slices.Clone(speedPrefix), device...))
	if err == nil && found && record.Unmarshal(data, &r) != nil {
		r = speed.Rates{}
	}
	k.rates[device] = r
	return r
}

func (k *speeds) learn(way ways.Way, shape ways.Shape, sample speed.Sample) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	before := map[string]speed.Rates{}
	for _, p := range way.Parts {
		before[p.Device] = k.read(p.Device)
	}
	for device, r := range speed.Share(way, shape, before, sample) {
		if r == before[device] {
			continue
		}
		k.rates[device] = r
		data, err := record.Marshal(r)
		if err == nil {
			err = k.s.State.Apply([]store.Write{{Key: append(slices.Clone(speedPrefix), device...), Value: data}})
		}
		if err != nil {
			k.s.log.Warn("a speed that was learnt is not kept", "device", device, "error", err)
		}
	}
	k.s.advert.again()
}

// mayFetch says whether the files of a model may be brought here because a leader
// wants it to run here. What a person asks for is only warned of.
func (s *Scheduler) mayFetch(m *modelView) error {
	if s.ModelsMax == 0 {
		return nil
	}
	u := s.DiskUse()
	if u.Models.Used+uint64(m.size()) <= s.ModelsMax {
		return nil
	}
	return Errorf(DiskFull, "its files are not here, and with them the models would take more than RELAY_MODELS_MAX (%s) wants", store.FormatBytes(cmp.Or(u.Models.Cap, s.ModelsMax)))
}
