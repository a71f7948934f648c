package scheduler

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"relay/scheduler/placement"
	"relay/scheduler/residency"
	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// rest heals everything and checks what holds then.
func (w *world) rest() {
	w.t.Helper()
	w.say("all is healed")
	w.split(0)
	for _, p := range w.peers {
		w.cluster.say(p, said{})
		p.engine.mu.Lock()
		p.engine.fail, p.engine.gpuFails, p.engine.shareFails = nil, nil, nil
		p.engine.mu.Unlock()
		if !p.up {
			w.begins(p)
		}
	}
	w.compareAll()
	w.requests.Wait()
	for _, p := range w.peers {
		if w.chance(2) { // Little, so that not all fit.
			w.lends(p, uint64(1+w.r.IntN(6))*gib/2)
		}
	}
	w.goOn(time.Minute)
	for _, m := range w.peers[0].s.newView().models {
		if _, err := w.peers[0].s.Act(w.ctx, m.uid, ActRetry); err != nil {
			w.t.Errorf("retry %s: %v", m.shown, err)
		}
	}
	w.goOn(time.Minute)
	var unrest []string
	for range 12 { // Something may be on its way still.
		if unrest = w.unrest(); len(unrest) == 0 {
			break
		}
		w.goOn(5 * time.Second)
	}
	for _, text := range unrest {
		w.t.Error(text)
	}
	for _, m := range w.peers[0].s.newView().models {
		w.served(m.uid)
	}
	for _, p := range w.peers {
		if busy, waiting := p.s.cores.Busy(), p.s.cores.Waiting(); len(busy) > 0 || waiting > 0 {
			w.t.Errorf("%s: nobody asks, %v are busy and %d wait", p.name, busy, waiting)
		}
	}
}

// unrest is what is not as it is to be once nothing happens any more.
func (w *world) unrest() (texts []string) {
	wrong := func(format string, args ...any) { texts = append(texts, fmt.Sprintf(format, args...)) }
	engines, servers := map[string]int{}, map[string]int{}
	for _, p := range w.peers {
		for _, process := range p.engine.processes() {
			engines[process.launch.UID]++
			v := p.s.newView()
			placed := v.placements[process.launch.UID]
			if v.model[process.launch.UID] == nil || !slices.Contains(placed.Peers, p.id.String()) {
				wrong("%s runs %s without an order: %s", p.name, process.launch.Model.Name, placed.Text)
			}
		}
		for _, share := range p.engine.working() {
			_, ordered := p.s.newView().shareOf(p.id.String(), share.launch.UID)
			if !ordered {
				wrong("%s has layers of %s without an order", p.name, share.launch.UID)
			}
			servers[share.launch.UID]++
		}
		for uid, n := range p.s.InFlight() {
			wrong("%s has %d requests on %s, and nobody asks", p.name, n, uid)
		}
	}
	first := w.peers[0].s.newView()
	for _, m := range first.models {
		placed := first.placements[m.uid]
		if !first.inForce(placed) || !first.peer[placed.leader].alive() {
			wrong("nobody leads %s", m.shown)
		}
		for _, p := range w.peers[1:] {
			own := p.s.newView().placements[m.uid]
			if own.version != placed.version || own.leader != placed.leader {
				wrong("%s has another placement of %s: %v, %v", p.name, m.shown, own.version, placed.version)
			}
			if one, other := w.planned(w.peers[0], m.uid), w.planned(p, m.uid); one != other {
				wrong("%s and %s have different plans for %s: %s, %s", w.peers[0].name, p.name, m.shown, one, other)
			}
		}
		workers := 0
		for _, way := range placed.Ways {
			if way.Group != nil {
				workers += len(way.Group.Shares)
			}
		}
		if workers != servers[m.uid] {
			wrong("%d peers have layers of %s, and %d are to: %s", servers[m.uid], m.shown, workers, placed.Text)
		}
		if len(placed.Peers) != engines[m.uid] {
			wrong("%s runs %d times, and is placed on %d: %s", m.shown, engines[m.uid], len(placed.Peers), placed.Text)
		}
	}
	return texts
}

// planned is what a peer shows of how a model could run.
func (w *world) planned(p *fakePeer, uid string) string {
	plan, err := p.s.Plan(uid)
	data, wrong := json.Marshal([]any{plan.Text, plan.Ways, plan.Refused})
	return fmt.Sprint(string(data), err, wrong)
}

// served has a model asked for that fits, or refused for a reason that is true.
func (w *world) served(uid string) {
	w.t.Helper()
	p := w.one()
	err := <-w.request(p, uid, time.Second)
	if err != nil {
		v := p.s.newView()
		m := v.model[uid]
		for i := range v.peers {
			q := &v.peers[i]
			if _, _, fits := ways.Best(m.shape(), v.machine(q, m.uid), ways.Evicts); fits && len(v.wholeHolders(m)) > 0 && (m.Only == "" || m.Only == q.id) {
				w.t.Errorf("%s is refused (%v), and fits on %s", m.shown, err, q.Name)
			}
		}
		snapshot := v.snapshot(m, v.placements[m.uid].leader)
		model := placement.Model{UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: 1, Only: m.Only, Evict: true}
		if group, no := shards.Form(placement.Sharded(model, snapshot)); no == nil && !placement.WholeSomewhere(model, snapshot) {
			w.t.Errorf("%s is refused (%v), and %s", m.shown, err, group.Text)
		}
		w.say("%s is refused: %s: %v", m.shown, ReasonOf(err), err)
		for _, text := range w.untrue(v, m, err) {
			w.t.Errorf("%s is refused (%s: %v), and %s", m.shown, ReasonOf(err), err, text)
		}
	}
	w.goOn(5 * time.Second)
}

// What refusals say.
var (
	saysNeed  = regexp.MustCompile(`need (\S+ [MG]iB), most free is (\S+ [MG]iB) on (\w+)`)
	saysNone  = regexp.MustCompile(`no holder lends more than (\S+ [MG]iB)`)
	saysElse  = regexp.MustCompile(`it would fit on (\w+) if nothing else ran there`)
	saysLends = regexp.MustCompile(`(\S+ [MG]iB) needed, (\w+) lends (\S+ [MG]iB) in all`)
	saysFree  = regexp.MustCompile(`(\S+ [MG]iB) needed, (\w+) has (\S+ [MG]iB) free now of the (\S+ [MG]iB) it lends`)
	saysOnly  = regexp.MustCompile(`it may run only on (\w+)`)
	saysLacks = regexp.MustCompile(`(\w+) does not hold the file`)
	saysGPUs  = regexp.MustCompile(`(\w+): gpu [^;]*`)
	saysOf    = regexp.MustCompile(`(CUDA\d|RAM) lends (\S+ [MG]iB) in all`)
	// What a peer's own ledger said when it was asked; much may be lent since.
	saysShort = regexp.MustCompile(`needs \S+ [MG]iB on \w+, \S+ [MG]iB of the \S+ [MG]iB lent there is free now`)
	saysStays = regexp.MustCompile(`"(\w+)" stays on (\w+): it (is pinned|is to have (\d+) replicas? at least|is in use, or was loaded only just now)`)
)

// says are those that can be looked up.
var says = []*regexp.Regexp{saysNeed, saysNone, saysElse, saysLends, saysFree, saysOnly, saysLacks, saysGPUs, saysShort, saysStays, regexp.MustCompile(`no peer holds it whole`)}

// untrue is what of the sentence that refuses a model is not so.
func (w *world) untrue(v *view, m *modelView, err error) (texts []string) {
	text := err.Error()
	wrong := func(format string, args ...any) { texts = append(texts, fmt.Sprintf(format, args...)) }
	is := func(what, said, is string) {
		if said != is {
			wrong("%s is %s, not %s", what, is, said)
		}
	}
	machine := func(name string) ways.Machine {
		for i := range v.peers {
			if v.peers[i].Name == name {
				return v.machine(&v.peers[i], m.uid)
			}
		}
		wrong("there is no %s", name)
		return ways.Machine{}
	}
	host := func(name string) ways.Device { return machine(name).Host }
	if !slices.ContainsFunc(says, func(s *regexp.Regexp) bool { return s.MatchString(text) }) {
		wrong("that says nothing that could be looked up")
	}
	holders := v.wholeHolders(m)
	need := ways.AtLeast(m.shape().CPU())
	switch ReasonOf(err) {
	case NoCapacity, DeviceBusy:
		if len(holders) == 0 {
			wrong("nobody holds it")
		}
	case NoHolder:
		if len(holders) > 0 && m.Only == "" {
			wrong("%d hold it", len(holders))
		}
	default: // Nothing fails, nobody is drained.
		wrong("that is no reason")
	}
	if s := saysNeed.FindStringSubmatch(text); s != nil {
		is("what it needs", s[1], need)
		if !saysNone.MatchString(text) { // Else it is answered at once, by the last word.
			is("what is free", s[2], ways.AtMost(host(s[3]).Free))
		}
	}
	if s := saysNone.FindStringSubmatch(text); s != nil {
		most := uint64(0)
		for _, id := range holders {
			most = max(most, v.machine(v.peer[id], m.uid).Host.Lent)
		}
		is("the most that is lent", s[1], ways.AtMost(most))
	}
	if s := saysElse.FindStringSubmatch(text); s != nil && host(s[1]).Lent < m.shape().CPU() {
		wrong("it would not fit on %s", s[1])
	}
	for _, s := range saysLends.FindAllStringSubmatch(text, -1) {
		is("what it needs", s[1], need)
		is("what is lent", s[3], ways.AtMost(host(s[2]).Lent))
	}
	for _, s := range saysFree.FindAllStringSubmatch(text, -1) {
		is("what it needs", s[1], need)
		is("what is free", s[3], ways.AtMost(host(s[2]).Free))
		is("what is lent", s[4], ways.AtMost(host(s[2]).Lent))
	}
	if s := saysOnly.FindStringSubmatch(text); s != nil && v.peer[m.Only].Name != s[1] {
		wrong("it may run on %s", v.peer[m.Only].Name)
	}
	for _, s := range saysLacks.FindAllStringSubmatch(text, -1) {
		if slices.ContainsFunc(holders, func(id string) bool { return v.peer[id].Name == s[1] }) {
			wrong("%s holds it", s[1])
		}
	}
	for _, part := range saysGPUs.FindAllStringSubmatch(text, -1) {
		devices := machine(part[1])
		for _, s := range saysOf.FindAllStringSubmatch(part[0], -1) {
			for _, d := range append(devices.GPUs, devices.Host) {
				if d.ID == s[1] {
					is("what is lent of "+d.ID, s[2], ways.AtMost(d.Lent))
				}
			}
		}
	}
	for _, s := range saysStays.FindAllStringSubmatch(text, -1) {
		if why := w.goes(v, s[1], s[2], s[3], s[4]); why != "" {
			wrong("%s", why)
		}
	}
	return texts
}

// goes is why it is not so that a model stays where it is for a reason, or "".
func (w *world) goes(v *view, model, peer, why, least string) string {
	m := v.find(model)
	p := w.peers[slices.IndexFunc(w.peers, func(p *fakePeer) bool { return p.name == peer })]
	switch {
	case m == nil:
		return fmt.Sprintf("there is no %s", model)
	case why == "is pinned":
		if !m.Pinned {
			return fmt.Sprintf("%s is not pinned", model)
		}
	case least != "":
		if strconv.Itoa(m.Min) != least {
			return fmt.Sprintf("%s is to have %d replicas", model, m.Min)
		}
	default:
		for _, r := range p.s.work.residents(nil) {
			young := p.s.work.now()-r.Loaded < residency.MinLife || r.Asked && r.Used < 0
			if r.ID == m.uid && r.InFlight == 0 && !young {
				return fmt.Sprintf("%s is idle on %s: %+v", model, peer, r)
			}
		}
	}
	return ""
}
