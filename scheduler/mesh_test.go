package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/boxo/exchange"
	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	mh "github.com/multiformats/go-multihash"

	"relay/p2p"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/p2p/record/recordtest"
	"relay/scheduler/leadership"
	"relay/scheduler/ways"
	"relay/store"
	"relay/store/content"
)

// cluster is several schedulers in one process. Records, rosters and tables are
// the real ones; the network between them is a set of pairs that hear one
// another at once, and engines are pretended.
type cluster struct {
	t         *testing.T
	key       membership.MeshKey
	judge     *membership.Judge // Shared: each signature is checked once.
	mu        sync.Mutex
	peers     []*fakePeer
	cut       map[[2]int]bool
	doubt     map[int]bool // Peers that are suspect to the others.
	hushed    map[int]bool // Peers that are quiet to the others.
	mute      map[int]bool // Peers whose replica records do not arrive.
	unreached map[int]bool // Peers whose rpc-servers cannot be reached.
	said      map[int]said // What admins have said of peers.
}

// anything is an allow-list that refuses nothing.
func anything([]string) error { return nil }

// said is what an admin may say of a peer; everybody has heard it.
type said struct {
	cordoned, draining bool
	trust              membership.Trust // Empty means replicas.
}

// say changes what is said of a peer.
func (c *cluster) say(p *fakePeer, what said) {
	c.mu.Lock()
	if c.said == nil {
		c.said = map[int]said{}
	}
	c.said[p.index] = what
	c.mu.Unlock()
	c.signal()
}

type fakePeer struct {
	c         *cluster
	index     int
	name      string
	key       crypto.PrivKey
	id        peer.ID
	disk      *memory // Records.
	state     *memory // The scheduler's own.
	filesMu   sync.Mutex
	files     map[cid.Cid]content.Content
	partials  map[cid.Cid]content.Partial
	rest      chan struct{}   // The rest of one content that is being pulled comes; nil is after fetchTime.
	limit     int64           // Of the last pull.
	hashing   chan struct{}   // Closed when files that are added are hashed; nil is at once.
	foreign   map[string]bool // Paths at which something else lies now than what was pulled.
	diskFree  func() uint64   // nil where there is always room.
	lend      uint64
	autoPause bool
	modelsMax uint64
	table     *record.Table
	roster    atomic.Pointer[rosterAt]
	s         *Scheduler
	engine    *fakeEngine
	without   string // Why there is no engine; empty where there is one.
	up        bool
	died      time.Time // When it last crashed.
	stop      func()
	changed   chan struct{}
}

// memory is what a machine has on disk. Once its machine has crashed nothing is
// written any more.
type memory struct {
	*recordtest.Memory
	frozen atomic.Bool
}

func newMemory() *memory { return &memory{Memory: recordtest.NewMemory()} }

func (m *memory) freeze(frozen bool) { m.frozen.Store(frozen) }

func (m *memory) Apply(writes []record.Write) error {
	if m.frozen.Load() {
		return nil
	}
	return m.Memory.Apply(writes)
}

// stateDisk is a storage of records as a State.
type stateDisk struct{ *memory }

func (d stateDisk) Apply(writes []store.Write) error {
	list := make([]record.Write, len(writes))
	for i, w := range writes {
		list[i] = record.Write(w)
	}
	return d.memory.Apply(list)
}

func newCluster(t *testing.T, n int, random io.Reader) *cluster {
	t.Helper()
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, key: key, judge: membership.NewJudge(key.ID()), cut: map[[2]int]bool{}}
	for i := range n {
		identity, _, err := crypto.GenerateEd25519Key(random)
		if err != nil {
			t.Fatal(err)
		}
		id, err := peer.IDFromPrivateKey(identity)
		if err != nil {
			t.Fatal(err)
		}
		c.peers = append(c.peers, &fakePeer{c: c, index: i, name: string(rune('a' + i)), key: identity, id: id, disk: newMemory(),
			state: newMemory(), files: map[cid.Cid]content.Content{}, partials: map[cid.Cid]content.Partial{}, lend: 4 << 30, engine: &fakeEngine{}})
	}
	for _, p := range c.peers { // Everybody is an admin, by the mesh key itself.
		p.open()
		grant := key.GrantAdmin(p.id, p.name)
		id, err := membership.GrantID(p.id, grant)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.PutOwned(membership.KindMember, id, grant); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range c.peers {
		p.start()
	}
	return c
}

// open reads what a peer has on disk.
func (p *fakePeer) open() {
	t := p.c.t
	t.Helper()
	p.changed = make(chan struct{}, 1)
	p.disk.freeze(false)
	p.state.freeze(false)
	mesh := p.c.key.ID()
	kinds := append(membership.Kinds(mesh, func(r record.Record) record.Verdict { return p.Roster().Admit(r) }), Kinds(anything, anything)...)
	table, err := record.NewTable(record.Options{Storage: p.disk, Key: p.key, Kinds: kinds, Rights: p, Publish: p.spread})
	if err != nil {
		t.Fatal(err)
	}
	p.c.mu.Lock()
	p.table, p.up = table, true
	p.c.mu.Unlock()
}

// start runs a peer's scheduler.
func (p *fakePeer) start() {
	t := p.c.t
	t.Helper()
	p.c.compareAll()
	options := Options{
		Mesh: p, Content: p, State: stateDisk{p.state}, Engine: p.engine,
		ReadHeader: readFake, CheckArgs: anything, CheckEnv: anything,
		Memory: func() (uint64, uint64, error) { return 64 << 30, 32 << 30, nil },
		Disk: func() (uint64, uint64, error) {
			p.filesMu.Lock()
			defer p.filesMu.Unlock()
			if p.diskFree == nil {
				return 1 << 40, 1 << 40, nil
			}
			return p.diskFree(), 1 << 40, nil
		},
		Lend: Lend{Bytes: p.lend, BusyIgnore: 256 << 20, AutoPause: p.autoPause}, Cores: 4, ModelsMax: p.modelsMax,
	}
	if testing.Verbose() {
		options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("peer", p.name)
	}
	if p.without != "" {
		options.Engine, options.NoEngine = nil, p.without
	}
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	p.s = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	p.c.signal()
}

// crash ends a peer without a word: nothing that it writes from now on arrives
// or is kept.
func (p *fakePeer) crash() {
	p.disk.freeze(true)
	p.state.freeze(true)
	p.c.mu.Lock()
	p.up, p.died = false, time.Now()
	p.c.mu.Unlock()
	p.engine.killAll()
	p.stop()
	p.c.signal()
}

func (c *cluster) end() {
	for _, p := range c.peers {
		if p.up {
			p.crash()
		}
	}
}

func (c *cluster) hears(a, b *fakePeer) bool {
	return a.up && b.up && !c.cut[[2]int{min(a.index, b.index), max(a.index, b.index)}]
}

// split cuts the first n peers from the others; 0 heals.
func (c *cluster) split(n int) {
	c.mu.Lock()
	c.cut = map[[2]int]bool{}
	for i := range n {
		for j := n; j < len(c.peers); j++ {
			c.cut[[2]int{i, j}] = true
		}
	}
	c.mu.Unlock()
	c.compareAll()
	c.signal()
}

// compareAll gives every peer what those it hears have.
func (c *cluster) compareAll() {
	for range 3 { // Rights come with records: what was held is offered again.
		for _, a := range c.peers {
			for _, b := range c.peers {
				c.mu.Lock()
				ok := a != b && c.hears(a, b)
				c.mu.Unlock()
				if !ok {
					continue
				}
				for _, s := range a.table.All() {
					_, _ = b.table.Offer(s)
				}
				b.table.Recheck(time.Now())
			}
		}
	}
}

func (c *cluster) signal() {
	for _, p := range c.peers {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// spread hands a record to everybody who hears this peer.
func (p *fakePeer) spread(s record.Signed) {
	p.c.mu.Lock()
	var to []*fakePeer
	for _, o := range p.c.peers {
		if o != p && p.c.hears(p, o) && (s.Kind != KindReplica || !p.c.mute[p.index]) {
			to = append(to, o)
		}
	}
	p.c.mu.Unlock()
	for _, o := range to {
		_, _ = o.table.Offer(s)
	}
}

// readFake reads a header that is written in words: what kind it is of, the
// architecture, and after that the names of all parts.
func readFake(path string) (Header, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Header{}, err
	}
	words := strings.Fields(string(data))
	if len(words) < 2 {
		return Header{}, Errorf(FileInvalid, "%s is no model", path)
	}
	h := Header{Kind: words[0], Arch: words[1], Projector: words[1] == "clip", Pools: words[1] == "bert", Shape: func(Model) (ways.Shape, error) { return ways.Shape{Host: 1 << 20}, nil }}
	for _, part := range words[2:] {
		h.Parts = append(h.Parts, filepath.Join(filepath.Dir(path), part))
		if _, err := os.Stat(h.Parts[len(h.Parts)-1]); err != nil {
			return h, Errorf(NotFound, "%s is missing", part)
		}
	}
	return h, nil
}

// The Mesh of the scheduler.

func (p *fakePeer) Self() peer.ID { return p.id }

func (p *fakePeer) Roster() *membership.Roster {
	if p.table == nil {
		return p.c.judge.Roster(nil)
	}
	at := rosterAt{table: p.table, revision: p.table.Revision(membership.KindMember)}
	if was := p.roster.Load(); was != nil && was.table == at.table && was.revision == at.revision {
		return was.roster
	}
	var records []record.Record
	for _, s := range p.table.History(membership.KindMember) {
		records = append(records, s.Record)
	}
	at.roster = p.c.judge.Roster(records)
	p.roster.Store(&at)
	return at.roster
}

// rosterAt is a roster as of one state of a table.
type rosterAt struct {
	table    *record.Table
	revision uint64
	roster   *membership.Roster
}

func (p *fakePeer) May(author peer.ID, rule record.Rule, kind, id string) record.Verdict {
	return p.Roster().May(author, rule, kind, id)
}

func (p *fakePeer) Peers() []p2p.Peer {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	var list []p2p.Peer
	roster := p.Roster()
	for _, o := range p.c.peers {
		m, ok := roster.Member(o.id)
		if !ok {
			continue
		}
		state := liveness.Gone
		switch {
		case o != p && p.c.doubt[o.index]:
			state = liveness.Suspect
		case o == p || p.c.hears(p, o):
			state = liveness.Alive
		}
		said := p.c.said[o.index]
		m.Trust = cmp.Or(said.trust, m.Trust)
		silence := time.Duration(0)
		if state == liveness.Gone {
			silence = max(0, time.Since(o.died))
		}
		list = append(list, p2p.Peer{Member: m, Self: o == p, State: state, Silence: silence, Quiet: o != p && p.c.hushed[o.index], Cordoned: said.cordoned, Draining: said.draining})
	}
	return list
}

func (p *fakePeer) NameOf(id peer.ID) string       { m, _ := p.Roster().Member(id); return m.Name }
func (p *fakePeer) StatesChanged() <-chan struct{} { return p.changed }
func (p *fakePeer) Surveyed() bool                 { return true }
func (p *fakePeer) Table() *record.Table           { return p.table }

func (p *fakePeer) PutOwned(kind, id string, payload any) error {
	data, err := record.Marshal(payload)
	if err == nil {
		_, err = p.table.PutOwned(kind, id, data)
	}
	return err
}

func (p *fakePeer) PutShared(kind, id string, payload any) error {
	data, err := record.Marshal(payload)
	if err == nil {
		_, err = p.table.PutShared(kind, id, data)
	}
	return err
}

func (p *fakePeer) PutPlacement(id string, v record.Version, payload any) error {
	data, err := record.Marshal(payload)
	if err == nil {
		_, err = p.table.PutPlacement(id, v, data)
	}
	return err
}

func (p *fakePeer) HTTP(to peer.ID) http.RoundTripper      { return noTripper(to) }
func (p *fakePeer) Control(to peer.ID) http.RoundTripper   { return control{p, to} }
func (p *fakePeer) Fetch(context.Context) exchange.Fetcher { return nil }

// OpenShard connects to the rpc-server of a peer that can be heard.
func (p *fakePeer) OpenShard(ctx context.Context, to peer.ID, call p2p.ShardCall) (net.Conn, error) {
	i := slices.IndexFunc(p.c.peers, func(o *fakePeer) bool { return o.id == to })
	p.c.mu.Lock()
	heard := p.c.hears(p, p.c.peers[i]) && !p.c.unreached[i]
	p.c.mu.Unlock()
	if !heard {
		return nil, p2p.ErrPeerGone
	}
	c, err := p.c.peers[i].s.AcceptShard(ctx, p.id, call)
	switch {
	case err != nil && ReasonOf(err) == Superseded:
		return nil, fmt.Errorf("%w: %w", p2p.ErrShardStale, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", p2p.ErrShardRefused, err)
	}
	return c, nil
}

// Have looks into the files of the peer that is asked, where it can be heard.
func (p *fakePeer) Have(_ context.Context, id peer.ID, root cid.Cid) ([]byte, bool, error) {
	i := slices.IndexFunc(p.c.peers, func(o *fakePeer) bool { return o.id == id })
	p.c.mu.Lock()
	heard := p.c.hears(p, p.c.peers[i])
	p.c.mu.Unlock()
	if !heard {
		return nil, false, errors.New("no answer")
	}
	here, err := p.c.peers[i].Get(root)
	return nil, err == nil && here.Complete, err
}

func (p *fakePeer) Range(context.Context, peer.ID, cid.Cid, int64, int64, bool) (io.ReadCloser, error) {
	return nil, io.ErrUnexpectedEOF
}

func (p *fakePeer) Reach(context.Context, peer.ID) error { return nil }

// control carries acts to the peer that is to do them, where it can be heard.
type control struct {
	from *fakePeer
	to   peer.ID
}

func (c control) RoundTrip(r *http.Request) (*http.Response, error) {
	var act ActRequest
	if err := json.NewDecoder(r.Body).Decode(&act); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.from.c.peers, func(o *fakePeer) bool { return o.id == c.to })
	to := c.from.c.peers[i]
	c.from.c.mu.Lock()
	heard := c.from.c.hears(c.from, to)
	c.from.c.mu.Unlock()
	if !heard {
		return nil, errors.New("no answer")
	}
	text, err := to.s.Obey(c.from.id, act.UID, act.Act)
	status, answer := http.StatusOK, any(ActAnswer{text})
	if err != nil {
		status, answer = http.StatusConflict, map[string]any{"error": map[string]string{"reason": string(ReasonOf(err)), "message": err.Error()}}
	}
	data, err := json.Marshal(answer)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(bytes.NewReader(data))}, err
}

// noTripper names the peer that it would reach.
type noTripper peer.ID

func (n noTripper) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no network here")
}

// The Content of the scheduler.

// Hash makes a content of what the files are called.
func (p *fakePeer) Hash(_ context.Context, paths []string, progress func(content.Progress)) (content.Hashes, error) {
	h := content.Hashes{CID: p.c.rootOf(strings.Join(paths, "|")), Paths: paths}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return h, err
		}
		h.Bytes += info.Size()
	}
	if p.hashing != nil {
		<-p.hashing
	}
	progress(content.Progress{Phase: content.PhaseHash, Done: h.Bytes, Total: h.Bytes})
	return h, nil
}

func (p *fakePeer) AddHashed(h content.Hashes) (content.Content, error) {
	c := content.Content{CID: h.CID, Bytes: h.Bytes, Path: h.Paths[0], InPlace: true, Complete: true}
	if len(h.Paths) > 1 {
		c.Files = h.Paths
	}
	if was, err := p.Get(h.CID); err == nil && was.Pulled != h.Paths[0] { // The pulled copy is there still.
		c.Pulled = was.Pulled
	}
	p.put(c)
	return c, nil
}

// Pull has half of a content come at once and then waits for the signal that the
// rest may come too.
func (p *fakePeer) Pull(ctx context.Context, o content.PullOptions) (content.Content, error) {
	part := content.Partial{CID: o.Root, Name: o.Name, Bytes: o.Bytes, Done: o.Bytes / 2, Running: true}
	p.filesMu.Lock()
	p.partials[o.Root], p.limit = part, o.Limit
	p.filesMu.Unlock()
	o.Progress(content.Progress{Phase: content.PhaseFetch, Done: part.Done, Total: part.Bytes, Fetched: part.Done, Rate: float64(part.Done),
		From: []content.Source{{Name: "b", Bytes: part.Done, Rate: 1}}})
	var after <-chan time.Time
	if p.rest == nil {
		after = time.After(fetchTime)
	}
	select {
	case <-ctx.Done():
		p.filesMu.Lock()
		part.Running = false
		p.partials[o.Root] = part
		p.filesMu.Unlock()
		return content.Content{}, fmt.Errorf("it stopped: %w", ctx.Err())
	case <-p.rest:
	case <-after:
	}
	c := content.Content{CID: o.Root, Bytes: o.Bytes, Path: "/pulled/" + o.Name, Complete: true, Used: time.Now()}
	_ = p.RemovePartial(o.Root)
	p.put(c)
	return c, nil
}

func (p *fakePeer) PullRanges(context.Context, content.PullOptions, []content.ByteRange) error {
	return errors.New("no ranges here")
}

func (p *fakePeer) OpenRange(context.Context, cid.Cid, int64, int64, bool) (io.ReadCloser, int64, error) {
	return nil, 0, content.ErrNotFound
}

func (p *fakePeer) Partials() ([]content.Partial, error) {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	return slices.SortedFunc(maps.Values(p.partials), func(a, b content.Partial) int { return cmp.Compare(a.Name, b.Name) }), nil
}

func (p *fakePeer) RemovePartial(c cid.Cid) error {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	if _, ok := p.partials[c]; !ok {
		return content.ErrNotFound
	}
	delete(p.partials, c)
	return nil
}

func (p *fakePeer) Touch(c cid.Cid) error {
	f, err := p.Get(c)
	if err == nil {
		f.Used = time.Now()
		p.put(f)
	}
	return err
}

func (p *fakePeer) List() []content.Content {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	return slices.Collect(maps.Values(p.files))
}

func (p *fakePeer) put(c content.Content) {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	if !c.InPlace && c.Pulled == "" {
		c.Pulled = c.Path
	}
	p.files[c.CID] = c
}

func (p *fakePeer) Get(c cid.Cid) (content.Content, error) {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	f, ok := p.files[c]
	if !ok {
		return f, content.ErrNotFound
	}
	return f, nil
}

func (p *fakePeer) Path(c cid.Cid) (string, error) {
	f, err := p.Get(c)
	if err == nil && !f.Complete {
		err = fmt.Errorf("%s: %w", f.Path, content.ErrFileChanged)
	}
	return f.Path, err
}

func (p *fakePeer) Remove(c cid.Cid, _ bool) (content.Removed, error) {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	gone := content.Removed{Files: 1, Bytes: p.files[c].Bytes}
	delete(p.files, c)
	return gone, nil
}

func (p *fakePeer) RemovePulled(c cid.Cid) (content.Removed, error) {
	f, err := p.Get(c)
	switch {
	case err != nil || f.Pulled == "":
		return content.Removed{}, content.ErrNotFound
	case p.foreign[f.Pulled]:
		return content.Removed{Kept: []string{f.Pulled}}, nil
	case !f.InPlace:
		return p.Remove(c, true)
	}
	f.Pulled = ""
	p.put(f)
	return content.Removed{Files: 1, Bytes: f.Bytes}, nil
}

// addModel registers a model that the given peers hold whole.
func (c *cluster) addModel(name string, need uint64, holders ...*fakePeer) string {
	c.t.Helper()
	c.hold(name, holders...)
	return c.peers[0].register(name, need)
}

// slowly has no pull end before its test lets it.
func (c *cluster) slowly() {
	for _, p := range c.peers {
		p.rest = make(chan struct{})
	}
}

// alone has all other peers lend next to nothing: no model fits there.
func (c *cluster) alone(on ...*fakePeer) {
	for _, p := range c.peers {
		if !slices.Contains(on, p) {
			p.s.advert.mu.Lock()
			p.s.Lend.Bytes = 1 << 20
			p.s.advert.mu.Unlock()
		}
	}
	c.pass(2 * measureEvery)
}

// hold gives peers the file of a model.
func (c *cluster) hold(name string, holders ...*fakePeer) {
	c.t.Helper()
	root := c.rootOf(name)
	for _, p := range holders {
		p.put(content.Content{CID: root, Bytes: 1 << 20, Path: "/models/" + name, Complete: true})
		if err := p.s.publishHoldings(); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) rootOf(name string) cid.Cid {
	c.t.Helper()
	sum, err := mh.Sum([]byte(name), mh.SHA2_256, -1)
	if err != nil {
		c.t.Fatal(err)
	}
	return cid.NewCidV1(cid.DagProtobuf, sum)
}

// register tells the mesh of a model, changed in some ways.
func (p *fakePeer) register(name string, need uint64, change ...func(*Model)) string {
	p.c.t.Helper()
	uid := uidOf(name)
	model := Model{Name: name, CID: p.c.rootOf(name).String(), Bytes: 1 << 20, Kind: "chat", Context: 1024, Slots: 1, Need: need}
	for _, f := range change {
		f(&model)
	}
	if err := p.PutShared(KindModel, uid, model); err != nil {
		p.c.t.Fatal(err)
	}
	synctest.Wait()
	return uid
}

// uidOf makes the uid of a test's model.
func uidOf(name string) string { return (name + strings.Repeat("a", uidLength))[:uidLength] }

// silence keeps from the others what a peer says of its replicas, or hands it
// to them.
func (c *cluster) silence(p *fakePeer, yes bool) {
	c.mu.Lock()
	c.mute = map[int]bool{p.index: yes}
	c.mu.Unlock()
	if !yes {
		c.compareAll()
		c.signal()
	}
}

// lends has a peer lend another amount, and waits until that is known.
func (c *cluster) lends(p *fakePeer, bytes uint64) {
	p.s.advert.mu.Lock()
	p.s.Lend.Bytes = bytes
	p.s.advert.mu.Unlock()
	c.pass(2 * measureEvery)
}

// byRank lists the peers in the order in which they are to lead a model.
func (c *cluster) byRank(uid string) []*fakePeer {
	return slices.SortedFunc(slices.Values(c.peers), func(a, b *fakePeer) int {
		return cmp.Compare(leadership.Rank(uid, b.id.String()), leadership.Rank(uid, a.id.String()))
	})
}

// suspect has a peer be suspect to the others, or no longer.
func (c *cluster) suspect(p *fakePeer, yes bool) {
	c.mu.Lock()
	c.doubt = map[int]bool{p.index: yes}
	c.mu.Unlock()
	c.signal()
}

// hush has a peer be quiet to the others, or no longer.
func (c *cluster) hush(p *fakePeer, yes bool) {
	c.mu.Lock()
	c.hushed = map[int]bool{p.index: yes}
	c.mu.Unlock()
	c.signal()
}

// ready lists the names of the peers with a ready replica, as p sees it.
func (p *fakePeer) ready(name string) []string {
	m, err := p.s.Model(name)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range m.Replicas {
		if r.State == StateReady {
			id, _ := peer.Decode(r.Peer)
			names = append(names, p.NameOf(id))
		}
	}
	return names
}

// bubble runs a test of a cluster under a clock of its own.
func bubble(t *testing.T, n int, f func(t *testing.T, c *cluster)) {
	seededBubble(t, n, rand.Reader, f)
}

// seededBubble draws who the peers are, and so who leads what.
func seededBubble(t *testing.T, n int, random io.Reader, f func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, n, random)
		defer c.end()
		c.pass(settledAfter + 5*time.Second)
		f(t, c)
	})
}

// pass lets time go by; the clock is the bubble's own.
func (c *cluster) pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func (c *cluster) want(what string, got, want any) {
	c.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("%s: %v, want %v", what, got, want)
	}
}
