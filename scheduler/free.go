package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
	"relay/scheduler/eviction"
	"relay/scheduler/leadership"
	"relay/scheduler/ways"
	"relay/store/content"
)

// confirmPatience bounds the question to one peer whether it has a content whole,
// and maxConfirmers the peers that are asked.
const (
	confirmPatience = 3 * time.Second
	maxConfirmers   = 8
)

// PruneOptions say how much of what may go is deleted.
type PruneOptions struct {
	// MaxSize is what may stay of that, in bytes; nil is nothing.
	MaxSize *uint64 `json:"max_size,omitempty"`
	// DryRun changes nothing and says what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// Pruned is what was deleted, or would be, and what stays.
type Pruned struct {
	DryRun bool `json:"dry_run"`
	// Offline: no peer ran here that could have asked others.
	Offline bool    `json:"offline"`
	Freed   []Piece `json:"freed"`
	Kept    []Piece `json:"kept"`
	// FreedBytes and KeptBytes are their sums.
	FreedBytes uint64 `json:"freed_bytes"`
	KeptBytes  uint64 `json:"kept_bytes"`
}

// Piece is one content that relay put on this machine's disk, wholly or in part.
type Piece struct {
	// Name is that of the models that need it, or by which it was pulled.
	Name string `json:"name"`
	CID  string `json:"cid"`
	Path string `json:"path"`
	// Bytes is what it takes of the disk; Unfinished pulls have theirs reserved.
	Bytes      uint64     `json:"bytes"`
	Unfinished bool       `json:"unfinished"`
	Used       *time.Time `json:"used,omitempty"`
	// Reason is why it stays: pinned, running, last_copy, spared, changed, failed, or
	// needed by something else than what is cancelled; Why says it in words.
	Reason string `json:"reason,omitempty"`
	Why    string `json:"why,omitempty"`
}

const (
	keptChanged = "changed"
	keptFailed  = "failed"
	keptNeeded  = "needed"
)

const changedText = "it is not what was pulled any more, and relay leaves it alone"

// candidate is a piece that may be deleted, as far as is known without asking.
type candidate struct {
	eviction.Item
	piece Piece
	root  cid.Cid
	// own: its owner has a copy here too, which stays.
	own bool
	// witnesses have it whole, and so many of them as needed says have to say so just
	// before it is deleted here.
	witnesses []witness
	needed    int
}

type witness struct {
	id   peer.ID
	name string
}

// freeOptions say what is to be deleted of all that may be.
type freeOptions struct {
	dry bool
	// only, where it is not nil, leaves all pieces alone for which it is false.
	only func(Piece) bool
	// need is how many bytes are to be freed still, of what may go and with what
	// was freed; nil is all of it.
	need func(freeable, freed uint64) uint64
	// gone is called with each piece that was deleted.
	gone func(Piece)
}

// freer deletes pieces, one by one, and looks anew at all of them before each.
type freer struct {
	content interface {
		RemovePartial(cid.Cid) error
		RemovePulled(cid.Cid) (content.Removed, error)
	}
	// list finds what may be deleted, and what is left alone beside that.
	list func() ([]candidate, []Piece, error)
	// confirm says why a content may not go although it seemed so, or "".
	confirm func(context.Context, candidate) string
	// claim keeps a content from being used while it is deleted.
	claim func(candidate) (release func(), ok bool)
	// stays says in words why one stays.
	stays func(candidate, string) string
}

func (f freer) run(ctx context.Context, o freeOptions) (Pruned, error) {
	result := Pruned{DryRun: o.dry, Freed: []Piece{}, Kept: []Piece{}}
	done := map[string]bool{} // By id; those that could not go are in refused.
	refused := map[string]Piece{}
	for {
		candidates, aside, err := f.list()
		if err != nil {
			return result, err
		}
		byID := map[string]candidate{}
		var items []eviction.Item
		for _, c := range candidates {
			if done[c.ID] || refused[c.ID].CID != "" || o.only != nil && !o.only(c.piece) {
				continue
			}
			byID[c.ID] = c
			items = append(items, c.Item)
		}
		need := uint64(eviction.All)
		if o.need != nil {
			need = o.need(eviction.Freeable(items), result.FreedBytes)
		}
		goes, stays := eviction.Choose(items, need)
		if len(goes) > 0 && ctx.Err() == nil {
			next := byID[goes[0].ID]
			bytes, reason, why := f.free(ctx, next, o.dry)
			if reason != "" {
				next.piece.Reason, next.piece.Why = reason, why
				refused[next.ID] = next.piece
				continue
			}
			done[next.ID] = true
			next.piece.Bytes = bytes
			result.Freed = append(result.Freed, next.piece)
			result.FreedBytes += next.piece.Bytes
			if o.gone != nil {
				o.gone(next.piece)
			}
			continue
		}
		for _, s := range stays {
			c := byID[s.ID]
			c.piece.Reason, c.piece.Why = s.Reason, f.stays(c, s.Reason)
			result.Kept = append(result.Kept, c.piece)
		}
		for _, p := range refused {
			result.Kept = append(result.Kept, p)
		}
		if o.only == nil {
			result.Kept = append(result.Kept, aside...)
		}
		slices.SortStableFunc(result.Kept, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.CID, b.CID)) })
		for _, p := range result.Kept {
			result.KeptBytes += p.Bytes
		}
		return result, ctx.Err()
	}
}

// free deletes one piece and says how many bytes the disk has back, or why it
// stays.
func (f freer) free(ctx context.Context, c candidate, dry bool) (bytes uint64, reason, why string) {
	if c.needed > 0 {
		if why := f.confirm(ctx, c); why != "" {
			return 0, eviction.Last, why
		}
	}
	if dry {
		return c.piece.Bytes, "", ""
	}
	release, ok := f.claim(c)
	if !ok {
		return 0, eviction.Running, f.stays(c, eviction.Running)
	}
	defer release()
	if c.Unfinished {
		if err := f.content.RemovePartial(c.root); err != nil {
			return 0, keptFailed, err.Error()
		}
		return c.piece.Bytes, "", ""
	}
	gone, err := f.content.RemovePulled(c.root)
	switch {
	case err != nil:
		return 0, keptFailed, err.Error()
	case gone.Files == 0 && len(gone.Kept) > 0:
		return 0, keptChanged, changedText
	}
	return uint64(gone.Bytes), "", ""
}

// Prune deletes what relay has put on this machine's disk and may go.
func (s *Scheduler) Prune(ctx context.Context, o PruneOptions) (Pruned, error) {
	tensors := o.pruneTensors(s.Tensors)
	result, err := s.free(ctx, freeOptions{dry: o.DryRun, need: o.need()})
	result.add(tensors)
	return result, err
}

// pruneTensors deletes the tensors that no group uses, first of all: they are copies of
// what other peers have. Of what may stay, they take their part.
func (o *PruneOptions) pruneTensors(tensors Tensors) (freed Piece) {
	if tensors == nil {
		return freed
	}
	idle, stays := tensors.Idle(), int64(0)
	if o.MaxSize != nil {
		stays = int64(min(uint64(idle), *o.MaxSize))
		left := *o.MaxSize - uint64(stays)
		o.MaxSize = &left
	}
	freed = Piece{Name: "layers of models that no group uses any more", Path: tensors.Dir(), Bytes: uint64(idle - stays)}
	if o.DryRun {
		return freed
	}
	bytes, err := tensors.Sweep(tensors.Bytes() - (idle - stays))
	if freed.Bytes = uint64(max(0, bytes)); err != nil {
		freed.Reason, freed.Why = keptFailed, err.Error()
	}
	return freed
}

// add adds tensors to what was freed.
func (p *Pruned) add(tensors Piece) {
	if tensors.Bytes > 0 {
		p.Freed, p.FreedBytes = append(p.Freed, tensors), p.FreedBytes+tensors.Bytes
	}
}

// need leaves MaxSize of what may go.
func (o PruneOptions) need() func(freeable, freed uint64) uint64 {
	if o.MaxSize == nil {
		return nil
	}
	return func(freeable, _ uint64) uint64 { return freeable - min(freeable, *o.MaxSize) }
}

// free deletes with the mesh's consent; one at a time does.
func (s *Scheduler) free(ctx context.Context, o freeOptions) (Pruned, error) {
	s.freeing.Lock()
	defer s.freeing.Unlock()
	f := freer{content: s.Content, list: s.candidates, confirm: s.confirm, claim: s.claim, stays: s.staysText}
	result, err := f.run(ctx, o)
	if o.dry || len(result.Freed) == 0 {
		return result, err
	}
	s.log.Info("disk freed", "pieces", len(result.Freed), "bytes", result.FreedBytes)
	if told := s.publishHoldings(); err == nil {
		err = told
	}
	s.look()
	return result, err
}

// needs says which models need a content, and whether it is pinned by one.
type needs struct {
	names  []string
	pinned bool
	// spread: one of them runs on several peers, and is to have two whole copies.
	spread bool
}

// candidates lists what relay has put on this machine's disk, as the mesh's
// records say now; and beside it what is left alone because it is not what was
// pulled any more.
func (s *Scheduler) candidates() (list []candidate, aside []Piece, err error) {
	v := s.newView()
	known := s.Mesh.Surveyed()
	return pieces(s.Content, func(c string) needs {
		var n needs
		for _, m := range v.models {
			if m.has(c) {
				n.names = append(n.names, m.shown)
				n.pinned = n.pinned || m.Pinned
				n.spread = n.spread || v.spreads(m.uid) || v.tooLarge(m)
			}
		}
		for _, m := range s.Coming {
			if m.Model.has(c) && len(n.names) == 0 {
				n.names = append(n.names, m.Model.Name)
			}
		}
		return n
	}, func(c *candidate, n needs) {
		c.Running = c.Running || s.pulls.runs(c.piece.CID) || s.work.needs(c.piece.CID)
		if c.Unfinished || c.own || len(n.names) == 0 && known {
			return // No model's copy, or not the only one here.
		}
		c.needed, c.witnesses = 1, s.witnesses(v, c.piece.CID)
		if n.spread {
			c.needed = wholeCopies
		}
		c.Last = len(c.witnesses) < c.needed
	})
}

// pieces lists what was pulled here, wholly or in part. judge fills in what only
// its caller knows of a candidate.
func pieces(from Content, needed func(cid string) needs, judge func(*candidate, needs)) (list []candidate, aside []Piece, err error) {
	for _, c := range from.List() {
		if c.Pulled == "" {
			continue
		}
		n := needed(c.CID.String())
		piece := Piece{Name: nameOf(n, filepath.Base(c.Pulled)), CID: c.CID.String(), Path: c.Pulled, Bytes: uint64(max(0, c.Bytes))}
		if !c.Used.IsZero() {
			piece.Used = &c.Used
		}
		// Of a set that is broken the parts that are as they were may go.
		if !c.Complete && (len(c.Files) == 0 || len(n.names) > 0) {
			piece.Reason, piece.Why = keptChanged, changedText
			aside = append(aside, piece)
			continue
		}
		one := candidate{Item: eviction.Item{ID: piece.CID, Bytes: piece.Bytes, Used: c.Used.UnixNano(), Pinned: n.pinned}, piece: piece, root: c.CID, own: c.InPlace && c.Complete}
		judge(&one, n)
		list = append(list, one)
	}
	partials, err := from.Partials()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range partials {
		n := needed(p.CID.String())
		piece := Piece{Name: nameOf(n, p.Name), CID: p.CID.String(), Path: p.Path, Bytes: uint64(max(p.Done, p.Bytes)), Unfinished: true}
		one := candidate{Item: eviction.Item{ID: "unfinished/" + piece.CID, Bytes: piece.Bytes, Pinned: n.pinned, Running: p.Running, Unfinished: true}, piece: piece, root: p.CID}
		judge(&one, n)
		list = append(list, one)
	}
	return list, aside, nil
}

func nameOf(n needs, otherwise string) string {
	if len(n.names) == 0 {
		return otherwise
	}
	return strings.Join(n.names, ", ")
}

// witnesses are the other peers whose whole copy of a content outlives the one
// here. Each peer frees its copy only after one that ranks higher for it has
// confirmed its own; so of all whole copies the highest-ranked one always stays,
// whoever frees at the same time.
func (s *Scheduler) witnesses(v *view, c string) (list []witness) {
	mine := leadership.Rank(c, s.self)
	for _, h := range v.holdings[c] {
		p := v.peer[h.peer]
		if !h.Whole || p.Self || !p.alive() || !p.trusted() {
			continue
		}
		if rank := leadership.Rank(c, p.id); rank > mine || rank == mine && p.id > s.self {
			list = append(list, witness{p.ID, p.Name})
		}
	}
	slices.SortFunc(list, func(a, b witness) int {
		return cmp.Compare(leadership.Rank(c, b.id.String()), leadership.Rank(c, a.id.String()))
	})
	return list[:min(len(list), maxConfirmers)]
}

// wholeCopies is how many whole copies a model is to have that runs on several peers:
// whoever coordinates needs one, and one machine may go.
const wholeCopies = 2

// spreads says whether a model runs, or is to run, on several peers.
func (v *view) spreads(uid string) bool {
	p := v.placements[uid]
	return p.Spread || slices.ContainsFunc(p.Ways, func(w ways.Way) bool { return w.Group != nil })
}

// confirm asks the witnesses, one after the other, until enough have the content whole.
func (s *Scheduler) confirm(ctx context.Context, c candidate) string {
	var names []string
	confirmed := 0
	for _, w := range c.witnesses {
		asking, cancel := context.WithTimeout(ctx, confirmPatience)
		_, whole, err := s.Mesh.Have(asking, w.id, c.root)
		cancel()
		if err == nil && whole {
			if confirmed++; confirmed >= c.needed {
				return ""
			}
			continue
		}
		s.log.Debug("another copy not confirmed", "cid", c.piece.CID, "peer", w.name, "error", err)
		names = append(names, w.name)
	}
	return fmt.Sprintf("another whole copy could not be confirmed by %s", strings.Join(names, ", "))
}

// claim looks at pulls last, and a pull looks at claims last: whichever comes second
// sees the other.
func (s *Scheduler) claim(c candidate) (release func(), ok bool) {
	release, ok = s.work.claim(c.piece.CID)
	if ok && s.pulls.runs(c.piece.CID) {
		release()
		return nil, false
	}
	return release, ok
}

func (s *Scheduler) staysText(c candidate, reason string) string {
	if reason == eviction.Running && !c.Unfinished && s.pulls.runs(c.piece.CID) {
		return "its model is being pulled"
	}
	if reason != eviction.Last {
		return stayText(c, reason)
	}
	if !s.Mesh.Surveyed() {
		return "this peer has not heard the whole mesh yet"
	}
	v, _ := s.latest()
	var others []string
	for _, h := range v.holdings[c.piece.CID] {
		if p := v.peer[h.peer]; h.Whole && !p.Self && p.alive() {
			others = append(others, p.Name)
		}
	}
	switch {
	case len(others) > 0 && c.needed > 1:
		return fmt.Sprintf("its model runs on several machines and keeps %d whole copies (there is one on %s too)", c.needed, strings.Join(others, ", "))
	case len(others) > 0:
		return fmt.Sprintf("of its whole copies this is the one that stays (there is one on %s too)", strings.Join(others, ", "))
	}
	return "it is the last whole copy: no other peer that is up has one"
}

func stayText(c candidate, reason string) string {
	switch {
	case reason == eviction.Pinned:
		return "it is pinned (relay model set " + c.piece.Name + " --pinned=false)"
	case reason == eviction.Running && c.Unfinished:
		return "it is being pulled"
	case reason == eviction.Running:
		return "it runs here"
	case reason == eviction.Spared:
		return "enough is free without it"
	}
	return "nobody could be asked for another whole copy: no peer runs here"
}

// PruneOffline is Prune where no peer runs on this machine. Nobody can be asked
// then whether there is another whole copy, so of whole copies only those go that
// no model of the mesh needs. table holds the mesh's records, and is nil where
// this machine is in none; coming are models on their way into it.
func PruneOffline(from Content, tensors Tensors, table *record.Table, coming []Carried, o PruneOptions) (Pruned, error) {
	layers := o.pruneTensors(tensors)
	models := slices.Clone(coming)
	if table != nil {
		for _, r := range table.List(KindModel) {
			if m, err := decode[Model](r.Record); err == nil {
				models = append(models, Carried{r.ID, m})
			}
		}
	}
	f := freer{
		content: from,
		list: func() ([]candidate, []Piece, error) {
			return pieces(from, func(c string) (n needs) {
				for _, m := range models {
					if m.Model.has(c) && !slices.Contains(n.names, m.Model.Name) {
						n.names = append(n.names, m.Model.Name)
						n.pinned = n.pinned || m.Model.Pinned
					}
				}
				return n
			}, func(c *candidate, n needs) { c.Last = !c.Unfinished && !c.own && len(n.names) > 0 })
		},
		claim: func(candidate) (func(), bool) { return func() {}, true },
		stays: stayText,
	}
	result, err := f.run(context.Background(), freeOptions{dry: o.DryRun, need: o.need()})
	result.add(layers)
	result.Offline = true
	return result, err
}
