package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	cid "github.com/ipfs/go-cid"

	"relay/store/content"
)

// minLimit is the least limit of a pull, in bytes a second: whoever takes nothing
// of a range for half a minute is cut off by the holder.
const minLimit = 16 << 10

// PullOptions say which model to bring here, and how.
type PullOptions struct {
	// Name is its name, uid or CID.
	Name string
	// Limit is the most that is received, in bytes a second, 16 KiB or more; 0 is as
	// much as comes.
	// Of several that pull one model at a time, the first one's counts.
	Limit int64
}

// Pull brings all contents of a model here from the peers that hold them. A model
// that is here already is no work and no error; a pull that was cut off, or
// paused, goes on where it was.
func (s *Scheduler) Pull(ctx context.Context, o PullOptions, progress func(content.Progress)) (Outcome, error) {
	v := s.newView()
	m := v.resolve(o.Name)
	if m == nil {
		return Outcome{}, v.unknown(o.Name)
	}
	if o.Limit != 0 && o.Limit < minLimit {
		return Outcome{}, Errorf(InvalidRequest, "a limit of %d bytes a second: %d is the least, slower looks like a connection that has died", o.Limit, minLimit)
	}
	if err := s.mayHoldModels(v); err != nil {
		return Outcome{}, err
	}
	ctx, over := s.pulls.begin(ctx, m) // First: from now on nobody frees it.
	defer over()
	for _, r := range m.roots() {
		if err := s.work.unclaimed(ctx, r.CID); err != nil {
			return Outcome{}, stopText(m, cmp.Or(stopCause(ctx), err))
		}
	}
	missing, err := s.missing(m)
	if err != nil {
		return Outcome{}, err
	}
	if len(missing) == 0 {
		state, err := s.Model(m.uid)
		return Outcome{ModelState: state}, err
	}
	if err := s.somebodyHas(v, m, missing); err != nil {
		return Outcome{}, err
	}
	s.reachHolders(ctx, v, m)
	if err := s.pullAll(ctx, m, o, progress); err != nil {
		return Outcome{}, stopText(m, cmp.Or(stopCause(ctx), err))
	}
	s.log.Info("model pulled", "model", m.shown, "bytes", m.size())
	return s.outcome(m.uid)
}

// missing are the contents of a model that are not here whole.
func (s *Scheduler) missing(m *modelView) (list []cid.Cid, err error) {
	for _, r := range m.roots() {
		root, err := cid.Decode(r.CID)
		if err != nil {
			return nil, Errorf(NotFound, "model %q: its CID is none", m.shown)
		}
		if here, err := s.Content.Get(root); err != nil || !here.Complete {
			list = append(list, root)
		}
	}
	return list, nil
}

// pullAll brings one content after the other.
func (s *Scheduler) pullAll(ctx context.Context, m *modelView, o PullOptions, progress func(content.Progress)) error {
	sum := newSum(m.size(), progress)
	tell := s.newTelling(ctx)
	defer tell.stop()
	for _, r := range m.roots() {
		root, err := cid.Decode(r.CID)
		if err != nil {
			return err
		}
		if here, err := s.Content.Get(root); err == nil && here.Complete {
			sum.next(r.Bytes)
			continue
		}
		getter, leave := s.pulls.session(s.Mesh, root)
		tell.again()
		_, err = s.Content.Pull(ctx, content.PullOptions{
			Root: root, Bytes: r.Bytes, Name: m.Name, Limit: o.Limit,
			Swarm: &swarm{BlockGetter: getter, s: s, cid: r.CID},
			Progress: func(p content.Progress) {
				tell.note(p)
				if p.Phase == content.PhaseFetch && o.Limit == 0 {
					s.advert.fetching(p.Rate)
				}
				sum.progress(p)
			},
		})
		leave()
		if err != nil {
			return err
		}
		s.pulls.note(r.CID)
		sum.next(r.Bytes)
	}
	s.pulls.forget(m)
	return nil
}

// telling has the mesh learn of a partial copy once there is something to get
// from it. That is not done where progress is reported: the pull waits for that.
type telling struct {
	due  chan struct{}
	done chan struct{}
	end  context.CancelFunc

	mu   sync.Mutex
	told bool
}

func (s *Scheduler) newTelling(ctx context.Context) *telling {
	ctx, end := context.WithCancel(ctx)
	t := &telling{due: make(chan struct{}, 1), done: make(chan struct{}), end: end}
	go func() {
		defer close(t.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.due:
			}
			if err := s.publishHoldings(); err != nil {
				s.log.Warn("holdings not published", "error", err)
			}
		}
	}()
	return t
}

// again is for the next content.
func (t *telling) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = false
}

func (t *telling) note(p content.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.told && p.Phase == content.PhaseFetch && p.Done > 0 {
		t.told = true
		select {
		case t.due <- struct{}{}:
		default: // It is about to be told.
		}
	}
}

func (t *telling) stop() {
	t.end()
	<-t.done
}

const (
	// reachedHolders bounds the holders of a model that are connected to before it
	// is pulled, and reachPatience the time for that.
	reachedHolders = 8
	reachPatience  = 5 * time.Second
)

// reachHolders connects to those who have a model, wholly or in part, and are up:
// in a large mesh few of them have a link to this peer, and blocks are asked for
// on links.
func (s *Scheduler) reachHolders(ctx context.Context, v *view, m *modelView) {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	var dials sync.WaitGroup
	dialled := 0
	for _, id := range slices.Concat(v.wholeHolders(m), v.partHolders(m)) {
		p := v.peer[id]
		if p == nil || p.Self || !p.alive() || dialled == reachedHolders {
			continue
		}
		dialled++
		dials.Go(func() {
			if err := s.Mesh.Reach(ctx, p.ID); err != nil {
				s.log.Debug("holder not reached", "peer", p.Name, "error", err)
			}
		})
	}
	dials.Wait()
}

// somebodyHas refuses a pull of contents that no peer which is up has anything of.
func (s *Scheduler) somebodyHas(v *view, m *modelView, roots []cid.Cid) error {
	for _, root := range roots {
		var up bool
		var away []string
		for _, h := range v.holdings[root.String()] {
			p := v.peer[h.peer]
			switch {
			case p.Self || h.Gone != "":
			case p.alive():
				up = true
			case h.Whole:
				away = append(away, p.Name)
			}
		}
		switch {
		case up:
		case len(away) > 0:
			return Errorf(NoHolder, "model %q: the peers that hold it are away: %s", m.shown, strings.Join(away, ", "))
		default:
			return Errorf(NoHolder, "model %q: no peer holds it whole", m.shown)
		}
	}
	return nil
}

// pulls are the models that are being pulled here, by content, with whoever waits
// for each.
type pulls struct {
	mu       sync.Mutex
	waiting  map[string]map[*waiter]bool
	sessions map[cid.Cid]*session
	// brought are contents, by CID, that came by pulls of models of which others are
	// missing still.
	brought map[string]bool
}

// waiter is one who asked for a pull.
type waiter struct {
	end  context.CancelCauseFunc
	gone chan struct{} // Closed when it waits no more.
}

// session is the exchange's for one content. All who pull that share it, and it
// lasts until the last one is done, whoever began.
type session struct {
	content.BlockGetter
	end   context.CancelFunc
	users int
}

func newPulls() *pulls {
	return &pulls{waiting: map[string]map[*waiter]bool{}, sessions: map[cid.Cid]*session{}, brought: map[string]bool{}}
}

// begin notes that a model is being pulled, until over is called. The context
// ends when the pull is stopped.
func (p *pulls) begin(ctx context.Context, m *modelView) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	w := &waiter{end, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range m.roots() {
		if p.waiting[r.CID] == nil {
			p.waiting[r.CID] = map[*waiter]bool{}
		}
		p.waiting[r.CID][w] = true
	}
	return ctx, func() {
		end(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range m.roots() {
			if delete(p.waiting[r.CID], w); len(p.waiting[r.CID]) == 0 {
				delete(p.waiting, r.CID)
			}
		}
		close(w.gone)
	}
}

// runs says whether a content is being pulled.
func (p *pulls) runs(cid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting[cid]) > 0
}

// note remembers that a content has come by a pull that goes on, and forget that all
// of a model is here.
func (p *pulls) note(cid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.brought[cid] = true
}

func (p *pulls) forget(m *modelView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range m.roots() {
		delete(p.brought, r.CID)
	}
}

// came says whether a content came by a pull that has not brought its whole model.
func (p *pulls) came(cid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.brought[cid]
}

// stop ends the pulls of a content and returns when nobody waits for them any
// more. It says whether there were any.
func (p *pulls) stop(cid string, cause error) (ran bool) {
	p.mu.Lock()
	var ending []*waiter
	for w := range p.waiting[cid] {
		w.end(cause)
		ending = append(ending, w)
	}
	p.mu.Unlock()
	for _, w := range ending {
		<-w.gone
	}
	return len(ending) > 0
}

func (p *pulls) session(mesh Mesh, root cid.Cid) (getter content.BlockGetter, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[root]
	if s == nil {
		ctx, end := context.WithCancel(context.Background())
		s = &session{BlockGetter: mesh.Fetch(ctx), end: end}
		p.sessions[root] = s
	}
	s.users++
	return s, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.users--; s.users == 0 {
			s.end()
			delete(p.sessions, root)
		}
	}
}

// stopCause is why a pull was stopped, or nil where nobody stopped it.
func stopCause(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, content.ErrPaused) || errors.Is(cause, content.ErrRemoved) {
		return cause
	}
	return nil
}

// stopText says what became of a pull that failed.
func stopText(m *modelView, err error) error {
	switch {
	case errors.Is(err, content.ErrPaused):
		return Errorf(Paused, "model %q: %w; relay model pull %s goes on with it", m.shown, err, m.shown)
	case errors.Is(err, content.ErrRemoved):
		return Errorf(NotFound, "model %q: %w", m.shown, err)
	}
	return fmt.Errorf("model %q: %w", m.shown, err)
}

// PullState is an unfinished pull on this machine.
type PullState struct {
	// Name is the one that it was begun with, CID the root of what is pulled, and
	// Path where it is written.
	Name string `json:"name"`
	CID  string `json:"cid"`
	Path string `json:"path"`
	// Model is the name of the model that needs it; "" where none does any more.
	Model string `json:"model"`
	// Done of Bytes bytes are here and verified; Bytes is -1 while it is not known.
	Done    int64 `json:"done"`
	Bytes   int64 `json:"bytes"`
	Running bool  `json:"running"`
	// Part says that only some bytes of it were wanted, for a share of the model.
	Part bool `json:"part,omitempty"`
}

// unfinished lists the unfinished pulls on this machine, by name.
func (s *Scheduler) unfinished(v *view) []PullState {
	partials, err := s.Content.Partials()
	if err != nil {
		s.log.Warn("the unfinished pulls cannot be listed", "error", err)
	}
	list := make([]PullState, 0, len(partials))
	for _, p := range partials {
		root := p.CID.String()
		list = append(list, PullState{p.Name, root, p.Path, v.needing(nil, root), p.Done, p.Bytes, p.Running, p.Sparse})
	}
	return list
}

// Stopped is a pull that was stopped, and what is left of it.
type Stopped struct {
	Name string `json:"name"`
	// Ran: it was running. Deleted: nothing that may go is left of it.
	Ran     bool `json:"ran"`
	Deleted bool `json:"deleted"`
	// Kept is what stays of it although it was to be deleted, and why.
	Kept []Piece `json:"kept,omitempty"`
	// Done of Bytes bytes are here.
	Done  int64 `json:"done"`
	Bytes int64 `json:"bytes"`
}

// StopPull stops the pull of a model here, and keeps what is here of it, or
// deletes that with drop. The model may be out of the mesh by now: its pull is
// then found by the name or the CID that it was begun with.
func (s *Scheduler) StopPull(ctx context.Context, name string, drop bool) (Stopped, error) {
	v := s.newView()
	m := v.resolve(name)
	stopped := Stopped{Name: name}
	var roots []string
	switch {
	case m != nil:
		stopped.Name, stopped.Bytes = m.shown, m.size()
		for _, r := range m.roots() {
			roots = append(roots, r.CID)
		}
	default:
		for _, p := range s.unfinished(v) {
			if p.Name == name || p.CID == name {
				roots = append(roots, p.CID)
				stopped.Name, stopped.Bytes = p.Name, stopped.Bytes+max(0, p.Bytes)
			}
		}
		if len(roots) == 0 {
			return Stopped{}, Errorf(ModelNotFound, "no model %q in this mesh, and no unfinished pull of that name here; %s", name, v.names())
		}
	}
	if m != nil {
		if missing, err := s.missing(m); err == nil && len(missing) == 0 && !s.pulls.runs(m.CID) {
			return Stopped{}, Errorf(NotFound, "model %q is here whole: there is no pull to stop (relay cache prune frees what may go)", m.shown)
		}
	}
	cause := content.ErrPaused
	if drop {
		cause = content.ErrRemoved
	}
	stop := roots
	if m != nil {
		stop = roots[:1] // Another model may share the projector.
	}
	for _, root := range stop {
		stopped.Ran = s.pulls.stop(root, cause) || stopped.Ran
	}
	left := s.partsHere(v, roots)
	if !stopped.Ran && len(left) == 0 {
		return Stopped{}, Errorf(NotFound, "model %q is not being pulled here", stopped.Name)
	}
	if drop {
		var err error
		if stopped.Kept, err = s.dropPull(ctx, v, m, left); err != nil {
			return Stopped{}, err
		}
		stopped.Deleted = true
	}
	for _, p := range s.partsHere(v, roots) {
		stopped.Done += p.Done
	}
	s.log.Info("pull stopped", "model", stopped.Name, "deleted", drop)
	if err := s.publishHoldings(); err != nil {
		return Stopped{}, err
	}
	s.look()
	return stopped, nil
}

// partsHere are the unfinished pulls of some contents.
func (s *Scheduler) partsHere(v *view, roots []string) []PullState {
	return slices.DeleteFunc(s.unfinished(v), func(p PullState) bool { return !slices.Contains(roots, p.CID) })
}

// dropPull deletes unfinished pulls, and of the model that they belong to also
// what they have brought whole, if it may go and no other model needs it. It
// returns what stays.
func (s *Scheduler) dropPull(ctx context.Context, v *view, m *modelView, parts []PullState) (kept []Piece, err error) {
	for _, p := range parts {
		if s.pulls.runs(p.CID) {
			kept = append(kept, Piece{Name: p.Name, CID: p.CID, Path: p.Path, Bytes: uint64(max(0, p.Done)), Unfinished: true,
				Reason: keptNeeded, Why: "another model's pull goes on with it"})
			continue
		}
		root, err := cid.Decode(p.CID)
		if err != nil {
			return nil, err
		}
		if err := s.Content.RemovePartial(root); err != nil && !errors.Is(err, content.ErrNotFound) {
			return nil, fmt.Errorf("model %q: what is here of it cannot be deleted: %w", p.Name, err)
		}
	}
	if m == nil {
		return kept, nil
	}
	if missing, err := s.missing(m); err != nil || len(missing) == 0 {
		return kept, err
	}
	freed, err := s.free(ctx, freeOptions{only: func(p Piece) bool {
		return m.has(p.CID) && v.needing(m, p.CID) == "" && s.pulls.came(p.CID)
	}})
	if err != nil {
		return nil, err
	}
	kept = append(kept, freed.Kept...)
	for _, r := range m.roots() {
		root, err := cid.Decode(r.CID)
		if err != nil || slices.ContainsFunc(kept, func(p Piece) bool { return p.CID == r.CID }) {
			continue
		}
		here, err := s.Content.Get(root)
		if err != nil || !here.Complete {
			continue
		}
		p := Piece{Name: m.shown, CID: r.CID, Path: here.Path, Bytes: uint64(max(0, here.Bytes)), Reason: keptNeeded, Why: "it was here before"}
		if other := v.needing(m, r.CID); other != "" {
			p.Why = fmt.Sprintf("model %q needs it too", other)
		}
		kept = append(kept, p)
	}
	return kept, nil
}
