package placement

import (
	"cmp"
	"math"
	"slices"

	"relay/scheduler/ways"
)

// seat is a peer that could run the model.
type seat struct {
	peer   *Peer
	way    ways.Way
	evicts bool      // Idle models have to go first.
	from   ways.Kind // How it runs there, where it is to run another way now; else "".
	free   uint64    // Where it would compute, in bytes.
	fetch  float64   // Seconds until it has the file: 0 where it need not fetch it, or nobodyKnows.
}

// nobodyKnows is longer than any known time.
const nobodyKnows = math.MaxFloat64

// planner is one decision.
type planner struct {
	m      Model
	peers  []Peer
	pieces *ways.Pieces
	source bool // Somebody who answers holds the file.
}

func newPlanner(m Model, s Snapshot) *planner {
	p := &planner{m: m, peers: s.Peers, pieces: ways.Of(m.Shape)}
	for i := range s.Peers {
		p.source = p.source || s.Peers[i].Holds && s.Peers[i].Alive
	}
	return p
}

// Place chooses peers for a model: those that run it already, ready ones first and of
// these the ones where it is placed, or was last; then those that unload nothing for
// it, of these the ones where it is placed or was last, the ones that hold the file,
// the ones that fetch it sooner (by more than a minute; last of all those of which
// nobody knows how long it takes them), the ones that are predicted to be faster (by
// more than 10 %), the ones that fetch it sooner at all, the ones with the most memory
// left where it computes; then by id.
func Place(m Model, s Snapshot) Plan {
	p := newPlanner(m, s)
	chosen, stand := p.choose()
	var plan Plan
	switch {
	case len(chosen) > 0:
		plan.Text = p.chosenText(chosen, stand)
	case len(stand) > 0:
		plan.Reason, plan.Text = draining, p.lastText(stand)
	case m.Want < 1:
		plan.Text = p.says("no replica is wanted for now")
	default:
		plan.Reason, plan.Text = p.nowhere()
		plan.Final, plan.Later = p.final(), p.later()
	}
	for _, c := range chosen {
		plan.Orders = append(plan.Orders, Order{Peer: c.peer.ID, Way: c.way, Fetch: c.fetches()})
	}
	for _, q := range stand {
		plan.Orders = append(plan.Orders, Order{Peer: q.ID, Way: p.kept(q)})
	}
	return plan
}

// choose finds the peers that are to run the model, and those that are drained
// and stand in until they do.
func (p *planner) choose() (chosen []*seat, stand []*Peer) {
	if p.m.Want < 1 {
		return nil, nil
	}
	room := make([]seat, 0, len(p.peers))
	seats := make([]*seat, 0, len(p.peers)) // Into room: they are lighter to sort.
	seated := make([]bool, len(p.peers))
	for g := range evicting + 1 {
		if p.enough(g, seats) {
			break
		}
		for i := range p.peers {
			if seated[i] || g != evicting && p.groupOf(&p.peers[i]) != g {
				continue
			}
			if c, ok := p.seat(&p.peers[i], g == evicting); ok {
				room, seated[i] = append(room, c), true
				seats = append(seats, &room[len(room)-1])
			}
		}
	}
	rank(seats, p.m.Want)
	chosen = seats[:min(len(seats), p.m.Want)]
	for _, c := range chosen {
		p.unload(c)
	}
	return chosen, p.standIns(chosen)
}

// unload has idle models go on a peer where that makes the model really faster. It says
// nothing for or against the peer, which is chosen by what fits there as things are.
func (p *planner) unload(c *seat) {
	if !p.m.Evict || c.evicts || c.peer.Runs || c.way.Decode <= 0 { // Of 0 nothing is known.
		return
	}
	if w, ok := p.pieces.BestUnloading(&c.peer.Machine); ok && w.Decode >= worthUnloading*c.way.Decode {
		c.way, c.evicts = w, true
	}
}

// worthUnloading is how much faster a model is to be for idle ones to be unloaded
// although it would fit beside them.
const worthUnloading = 2

// group is when a peer is looked at. Laying a model out over devices takes a
// while, and those of later groups come after those of earlier ones.
type group int

const (
	running group = iota
	holding       // Or placed there, or it ran there last.
	fetching
	evicting // All that have no seat yet, if idle models go.
)

func (p *planner) groupOf(q *Peer) group {
	switch {
	case q.Runs:
		return running
	case q.Holds || q.Placed || q.Was:
		return holding
	}
	return fetching
}

// enough says that none of a group could come before the seats that are there.
func (p *planner) enough(g group, seats []*seat) bool {
	switch g {
	case running:
		return false
	case holding: // One where it is placed, or was last, comes before one that only runs.
		ready := 0
		for _, c := range seats {
			if c.peer.Ready {
				ready++
			}
		}
		return ready >= p.m.Want
	case evicting:
		return !p.m.Evict || len(seats) >= p.m.Want
	}
	return len(seats) >= p.m.Want
}

// rank puts the first so many seats in order. Times to fetch, and speeds, that are no
// difference, seen from the least time and the highest speed, count as one.
func rank(seats []*seat, many int) {
	slices.SortFunc(seats, func(a, b *seat) int { return cmp.Or(byStanding(a, b), cmp.Compare(a.fetch, b.fetch)) })
	alikeFetch := func(a, b *seat) bool { return byStanding(a, b) == 0 && b.fetch-a.fetch <= moment }
	inClasses(seats, many, alikeFetch, func(seats []*seat, many int) {
		slices.SortFunc(seats, func(a, b *seat) int { return cmp.Compare(b.way.Decode, a.way.Decode) })
		alikeSpeed := func(a, b *seat) bool { return !ways.Faster(a.way.Decode, b.way.Decode) }
		inClasses(seats, many, alikeSpeed, func(seats []*seat, _ int) {
			slices.SortFunc(seats, func(a, b *seat) int { return cmp.Or(cmp.Compare(a.fetch, b.fetch), byRoom(a, b)) })
		})
	})
}

// moment is by how many seconds fetching may differ that speed comes before.
const moment = 60

// inClasses puts seats that are sorted already in order within those that are alike, seen
// from the first of them, until the first so many are in order.
func inClasses(seats []*seat, many int, alike func(first, other *seat) bool, order func(seats []*seat, many int)) {
	for from := 0; from < min(len(seats), many); {
		to := from + 1
		for to < len(seats) && alike(seats[from], seats[to]) {
			to++
		}
		order(seats[from:to], many-from)
		from = to
	}
}

// byStanding orders by what comes before the time to fetch.
func byStanding(a, b *seat) int {
	x, y := a.peer, b.peer
	return cmp.Or(first(x.Ready, y.Ready), first(!a.evicts, !b.evicts), first(x.Placed, y.Placed), first(x.Was, y.Was), first(x.Runs, y.Runs), first(!a.fetches(), !b.fetches()))
}

// byRoom orders by what comes last.
func byRoom(a, b *seat) int {
	return cmp.Or(cmp.Compare(b.free, a.free), cmp.Compare(a.peer.ID, b.peer.ID))
}

func (s *seat) fetches() bool { return !s.peer.Holds && !s.peer.Runs }

// first puts those for which something is true before those for which it is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return +1
}

// seat is how a peer would run the model now, or once idle models there are
// unloaded; ok is false where it cannot.
func (p *planner) seat(q *Peer, evicts bool) (c seat, ok bool) {
	if p.unable(q) != able {
		return c, false
	}
	c = seat{peer: q}
	switch {
	case q.Parked || q.Failed != "":
		return c, false
	case q.Runs: // Its memory is taken already, and it has read its file.
		c.way = p.kept(q)
		if w, ok := p.better(q, &c.way); ok {
			c.way, c.from = w, c.way.Kind
		}
	case p.fileless(q) != hasFile:
		return c, false
	default:
		worst := ways.Fits
		if c.evicts = evicts; evicts {
			worst = ways.Evicts
		}
		if c.way, _, ok = p.pieces.Best(&q.Machine, worst); !ok {
			return c, false
		}
	}
	c.free, _ = roomFor(q, &c.way)
	if c.fetches() {
		if c.fetch = p.fetchSeconds(q); c.fetch < 0 {
			c.fetch = nobodyKnows
		}
	}
	return c, true
}

// kept is how a peer runs the model that runs there: as it does, or where that is
// not known the way that is likeliest.
func (p *planner) kept(q *Peer) ways.Way {
	if q.Way != nil {
		return *q.Way
	}
	if w, _, ok := p.pieces.Best(&q.Machine, ways.Later); ok {
		return w
	}
	return p.pieces.OnCPU(&q.Machine)
}

// better is a way with more on the GPUs of a peer on which the model serves from RAM,
// or in part: it was placed there while they were busy, or had no room. Models only
// move in that direction, so that none goes to and fro.
func (p *planner) better(q *Peer, kept *ways.Way) (w ways.Way, ok bool) {
	if !q.Ready || kept.Kind != ways.CPU && kept.Kind != ways.Hybrid || len(q.Machine.GPUs) == 0 {
		return w, false
	}
	w, _, ok = p.pieces.Best(&q.Machine, ways.Fits)
	if !ok {
		return w, false
	}
	now := p.pieces.Decode(&q.Machine, kept) // 0 where it cannot be told.
	return w, now > 0 && w.Decode >= worthMoving*now && moreOnGPUs(&w, kept)
}

// moreOnGPUs says whether one way has more on GPUs than another, which has something in
// RAM: experts go there first, and then layers.
func moreOnGPUs(a, b *ways.Way) bool {
	if a.Kind != ways.Hybrid || b.Kind != ways.Hybrid {
		return a.Kind != ways.CPU
	}
	return cmp.Or(cmp.Compare(inRAM(a), inRAM(b)), cmp.Compare(a.CPUExperts, b.CPUExperts)) < 0
}

// inRAM is how many layers are in RAM.
func inRAM(w *ways.Way) int { return w.Parts[len(w.Parts)-1].Layers }

// worthMoving is how much faster a GPU is to be for a model to be loaded anew.
const worthMoving = 1.5

// roomFor is what is free, and what is lent, where a way computes.
func roomFor(q *Peer, w *ways.Way) (free, lent uint64) {
	for i := range q.Machine.GPUs {
		g := &q.Machine.GPUs[i]
		if slices.ContainsFunc(w.Parts, func(part ways.Part) bool { return part.Device == g.ID }) {
			free, lent = free+g.Free, lent+g.Lent
		}
	}
	if lent == 0 {
		free, lent = q.Machine.Host.Free, q.Machine.Host.Lent
	}
	return free, lent
}

// standIns are the drained peers that go on serving: as many as there are
// replicas that are not ready elsewhere yet.
func (p *planner) standIns(chosen []*seat) []*Peer {
	missing := p.m.Want
	for _, c := range chosen {
		if c.peer.Ready {
			missing--
		}
	}
	if missing < 1 {
		return nil
	}
	var stand []*Peer
	for i := range p.peers {
		if q := &p.peers[i]; q.Drained && q.Grace && q.Ready && q.Failed == "" && !q.Parked && p.unable(q) == isDrained && p.unableButDrained(q) == able {
			stand = append(stand, q)
		}
	}
	slices.SortFunc(stand, byID)
	return stand[:min(len(stand), missing)]
}

func byID(a, b *Peer) int { return cmp.Compare(a.ID, b.ID) }

// sorted are all peers by id.
func (p *planner) sorted() []*Peer {
	list := make([]*Peer, len(p.peers))
	for i := range p.peers {
		list[i] = &p.peers[i]
	}
	slices.SortFunc(list, byID)
	return list
}

// final says of a model that runs nowhere that only a person changes that: some
// peers could have run it, and on each of them it is parked or can never fit.
func (p *planner) final() bool {
	could := false
	for i := range p.peers {
		q := &p.peers[i]
		switch why := p.unable(q); {
		case why == isGone && q.Holds && !p.parked(q):
			return false // It may come back.
		case why == isPaused:
		case why != able:
			continue
		}
		if f := p.fileless(q); !q.Runs && f != hasFile {
			if (f == noRoom || f == unknownRoom) && p.ever(q) {
				return false // Disks are emptied, and looked at.
			}
			continue
		}
		if could = true; !p.parked(q) && p.ever(q) {
			return false
		}
	}
	return could
}

// later says of a model that runs nowhere that it waits for memory alone: it would fit
// on a peer that may run it, and has its file or may fetch it, if nothing else ran there.
func (p *planner) later() bool {
	for i := range p.peers {
		if q := &p.peers[i]; p.unable(q) == able && !p.failed(q) && p.fileless(q) == hasFile && p.fits(q, ways.Later) {
			return true
		}
	}
	return false
}

// ever says whether the model could run on a peer if nothing else ran there, and what
// failed were tried again.
func (p *planner) ever(q *Peer) bool {
	b, blocked := p.pieces.Blocked(&q.Machine)
	return q.Runs || blocked && !b.Parked || p.fits(q, ways.Later)
}

func (p *planner) fits(q *Peer, worst ways.Verdict) bool {
	_, _, ok := p.pieces.Best(&q.Machine, worst)
	return ok
}

// asked are all peers by id, or the only one that may run the model where that is in the
// mesh: of the others there is nothing more to say.
func (p *planner) asked() []*Peer {
	for i := range p.peers {
		if q := &p.peers[i]; p.m.Only != "" && q.ID == p.m.Only {
			return []*Peer{q}
		}
	}
	return p.sorted()
}

// Ever is on how many peers the model could run if nothing else ran anywhere, and
// for each of the others why not, for the only one that may run it alone where that is
// in the mesh. A peer that is gone, or paused, counts by what it
// last told.
func Ever(m Model, s Snapshot) (peers int, why []Rejection) {
	s.Peers = slices.Clone(s.Peers)
	for i := range s.Peers {
		q := &s.Peers[i]
		q.Alive, q.Paused = q.Alive || q.Machine.Host.Known, ""
	}
	p := newPlanner(m, s)
	for _, q := range p.asked() {
		switch u := p.unable(q); {
		case u != able:
			why = append(why, Rejection{q.ID, u.reason(), p.unableText(q, u)})
		case p.parked(q):
			why = append(why, p.failureText(q))
		case q.Runs:
			peers++
		case p.fileless(q) != hasFile:
			reason, text := p.filelessText(q)
			why = append(why, Rejection{q.ID, reason, text})
		case p.ever(q):
			peers++
		default:
			why = append(why, Rejection{q.ID, noCapacity, p.lacksText(q)})
		}
	}
	return peers, why
}
