package routing

import (
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// half is after what time half as much is made of the work that a replica got.
	half = 3 * time.Minute
	// stale is after what time a third is left of what a replica said of others' requests,
	// and gone after what time a third of what all said is.
	stale, gone = 3 * time.Second, 5 * time.Second
	// crowded is how many times its slots one may add to what is taken for usual: how many
	// wait at one says little of the others.
	crowded = 3
	// fullFor is how long one that said that it is full is asked last.
	fullFor = time.Second
	// After failures in a row it is left alone for rest, twice as long each time up to
	// longRest, and up to half as long again by chance.
	rest, longRest = time.Second, time.Minute
	// maxReplicas bounds those of a model that are kept. It is the bits of servers.
	maxReplicas = 64
)

// Book is what one entrance knows of the replicas beside what the mesh says. All its
// methods may be called from any goroutine.
type Book struct {
	mu     sync.Mutex
	models map[string]*model
}

// model is what is kept of one model.
type model struct {
	replicas map[string]*replica
	memory   memory
	talks    talks
	picks    uint64
}

// replica is what is kept of one.
type replica struct {
	hash   uint64
	number int
	mark   string
	// sent are the slots that this entrance's requests take there.
	sent int
	// work is in seconds, as it was at worked; talks are those that go on there, seats those
	// that belong there.
	work         float64
	worked       time.Time
	talks, seats int
	// there is the pick at which it was last there.
	there uint64
	// others are the requests of other entrances, and slots those that it has, as it said
	// when it was heard last.
	others float64
	slots  int
	heard  time.Time
	// fullUntil and restUntil are until when it is asked last; failures are those in a row,
	// and falls all that there were: what was under way at one of them is part of it.
	fullUntil, restUntil time.Time
	failures             int
	falls                uint64
}

// New makes a book of nothing.
func New() *Book { return &Book{models: map[string]*model{}} }

// Pick chooses among the replicas of the model uid and counts the request on the one that
// it chooses, until the trip's Done; the trip is nil where there is none to choose. chance
// is any number: entrances that know the same choose differently by it where that is right.
func (b *Book) Pick(uid string, want Want, list []Replica, now time.Time, chance uint64) (Decision, *Trip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.models[uid]
	if m == nil {
		m = &model{replicas: map[string]*replica{}}
		b.models[uid] = m
	}
	m.picks++
	known, all := m.look(list, now)
	classify(all)
	m.returned(known, all, now)
	m.busy(known, all, now, chance)
	t := m.recall(&want, known, all, now)
	d := choose(&want, all, chance)
	if d.Pick < 0 {
		return d, nil
	}
	k, v := known[d.Pick], d.Each[d.Pick]
	trip := &Trip{book: b, model: m, replica: k, falls: k.falls, want: want, work: v.Read + v.Write*float64(want.takes())}
	k.work, k.worked = k.workAt(now)+trip.work, now
	k.sent += want.takes()
	m.memory.served(&want, k.number) // Now: whoever has an answer's end goes on before it is told here.
	if t != nil {
		t.answeredBy(k)
	}
	return d, trip
}

// look puts together what is known of the replicas.
func (m *model) look(list []Replica, now time.Time) ([]*replica, []candidate) {
	known, all := make([]*replica, len(list)), make([]candidate, len(list))
	for i, r := range list {
		k := m.replicas[r.Peer]
		if k == nil {
			k = m.add(r.Peer)
		}
		if r.Mark != k.mark {
			k.mark = r.Mark
			k.failures, k.restUntil, k.fullUntil, k.heard = 0, time.Time{}, time.Time{}, time.Time{}
			k.falls++ // What is under way went to the last one.
		}
		known[i] = k
		all[i] = candidate{Replica: r, hash: k.hash, talks: k.talks, work: k.workAt(now), full: now.Before(k.fullUntil), resting: now.Before(k.restUntil)}
	}
	return known, all
}

// add begins to keep a replica. Where there are too many, those are forgotten that were
// not there lately, and what was remembered of any.
func (m *model) add(peer string) *replica {
	if len(m.replicas) >= maxReplicas {
		for id, k := range m.replicas {
			if k.there+maxReplicas < m.picks && k.sent == 0 {
				delete(m.replicas, id)
			}
		}
		m.memory, m.talks = memory{}, talks{}
		number := 0
		for _, k := range m.replicas {
			k.number, k.talks = number, 0
			number++
		}
	}
	k := &replica{hash: hashOf(peer), number: len(m.replicas)}
	m.replicas[peer] = k
	return k
}

// returned gives replicas that were away as much work as the others of their class have
// had: they are not to get everything until they have done as much.
func (m *model) returned(known []*replica, all []candidate, now time.Time) {
	for i := range all {
		c, k := &all[i], known[i]
		if !c.there() {
			continue
		}
		if k.there+1 < m.picks {
			work, n := 0.0, 0.0
			for j := range all {
				if o := known[j]; all[j].class == c.class && (o.there+1 == m.picks || o.there == m.picks && o != k) {
					work, n = work+all[j].work, n+1
				}
			}
			if n > 0 && work/n > c.work {
				c.work = work / n
				k.work, k.worked = c.work, now
			}
		}
		k.there = m.picks
	}
}

// busy reckons how many requests each replica has. What it said is as good as it is new;
// what is old is taken for what is usual, the lower median, more or less by chance, so that
// not every entrance sends everything where there was room once.
func (m *model) busy(known []*replica, all []candidate, now time.Time, chance uint64) {
	var said [maxReplicas]float64
	loads := said[:0]
	for i, k := range known {
		c := &all[i]
		if k.slots > 0 && (c.Slots == 0 || k.slots < c.Slots) && !c.Local {
			c.Slots = k.slots
		}
		if c.there() && !c.Local {
			loads = append(loads, min(k.others, crowded*float64(max(1, c.Slots)))*k.fresh(now, gone))
		}
	}
	usual := 0.0
	if len(loads) > 0 {
		slices.Sort(loads)
		usual = loads[(len(loads)-1)/2]
	}
	for i, k := range known {
		c := &all[i]
		if c.Local && c.Load.Slots > 0 {
			c.ahead, c.Slots = float64(c.Load.Running+c.Load.Waiting), c.Load.Slots
			continue
		}
		sure := k.fresh(now, stale)
		c.ahead = float64(k.sent) + k.others*sure + 2*portion(chance^k.hash)*usual*(1-sure)
	}
}

// recall says of the replicas what they have read of the request already, and of which
// talk it is: nil where it is of none.
func (m *model) recall(w *Want, known []*replica, all []candidate, now time.Time) *talk {
	for i, h := range w.Prefix {
		s := m.memory.of(h)
		if s == 0 {
			continue
		}
		for j, k := range known {
			if s.has(k.number) {
				all[j].has = i + 1
			}
		}
	}
	key, ok := w.talk()
	if !ok {
		return nil
	}
	t := m.talks.of(key, now)
	var fastest [maxReplicas]*replica
	among := fastest[:0]
	class := -1
	for i := range all {
		if all[i].there() && (class < 0 || all[i].class < class) {
			class = all[i].class
		}
	}
	here := false // It went on here last.
	for i := range all {
		if all[i].there() && all[i].class == class {
			among = append(among, known[i])
		}
		here = here || w.on(&all[i])
	}
	seat := m.talks.seat(t, among)
	for i := range all {
		if c := &all[i]; known[i] == seat {
			if c.seat = true; !w.begins() && !here { // Then another entrance sent it there.
				c.has = max(c.has, len(w.Prefix)-turn)
			}
		}
	}
	return t
}

func (k *replica) workAt(now time.Time) float64 {
	if k.work == 0 {
		return 0
	}
	return k.work * math.Exp2(-float64(now.Sub(k.worked))/float64(half))
}

// fresh is from 1, for what was heard now, to 0, for what was heard long before.
func (k *replica) fresh(now time.Time, old time.Duration) float64 {
	if k.heard.IsZero() {
		return 0
	}
	return math.Exp(-float64(now.Sub(k.heard)) / float64(old))
}

// Keep drops what is kept of models that are no more.
func (b *Book) Keep(alive func(uid string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid := range b.models {
		if !alive(uid) {
			delete(b.models, uid)
		}
	}
}
