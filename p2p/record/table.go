package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// DefaultMaxRecords is how many records a table keeps unless told otherwise.
	DefaultMaxRecords = 100_000
	// DefaultMaxBytes is how much memory a table's records may take unless told
	// otherwise, by the table's own reckoning.
	DefaultMaxBytes = 64 << 20

	// footprint is what one record costs beside its bytes.
	footprint = 256
)

// Options is what a Table is made from.
type Options struct {
	// Storage keeps the records; nobody else may write in it. Required.
	Storage Storage
	// Key signs what is written here; an ed25519 key. Required.
	Key crypto.PrivKey
	// Kinds are the kinds known to this release, each name once, at most one of
	// them under the rule Placement. Their order is the order in which Sync
	// sends: what others' rights depend on comes first.
	Kinds []Kind
	// Rights says who may write what. Required.
	Rights Rights
	// Publish is called with each record written here, after it was stored, by
	// the goroutine that wrote it and with no lock held. Records of one key may
	// be published out of order. May be nil.
	Publish func(Signed)
	// Logger may be nil.
	Logger *slog.Logger
	// MaxRecords and MaxBytes bound the table; 0 means the defaults. What is
	// over is refused with ErrFull, so a table at its bound no longer equals
	// others. Records of reserved kinds do not count: a fourth as many may be
	// there beside the others.
	MaxRecords int
	MaxBytes   int64
	// Shares is how many authors may fill the table: the records of one take at
	// most that part of it, and what of his is over is refused with ErrFull. The
	// same part of what is reserved is his. 0 means DefaultShares.
	Shares int
}

// Validate names the option at fault.
func (o Options) Validate() error {
	switch {
	case o.Storage == nil:
		return errors.New("record: Options.Storage is missing")
	case o.Key == nil || o.Key.Type() != crypto.Ed25519:
		return errors.New("record: Options.Key is not an ed25519 key")
	case o.Rights == nil:
		return errors.New("record: Options.Rights is missing")
	case o.MaxRecords < 0 || o.MaxBytes < 0 || o.Shares < 0:
		return errors.New("record: Options.MaxRecords, MaxBytes or Shares is negative")
	}
	seen := make(map[string]bool)
	placements := 0
	for _, k := range o.Kinds {
		switch {
		case !validKind(k.Name):
			return fmt.Errorf("record: Options.Kinds: %q cannot name a kind", k.Name)
		case seen[k.Name]:
			return fmt.Errorf("record: Options.Kinds: %q is there twice", k.Name)
		case k.Rule < Owned || k.Rule > Placement:
			return fmt.Errorf("record: Options.Kinds: %q has no rule", k.Name)
		case k.Final && k.Rule != Shared:
			return fmt.Errorf("record: Options.Kinds: %q cannot be final under the rule %q", k.Name, k.Rule.String())
		case k.Rule == Owned && k.Owner == nil:
			return fmt.Errorf("record: Options.Kinds: %q has no Owner", k.Name)
		}
		seen[k.Name] = true
		if k.Rule == Placement {
			placements++
		}
	}
	if placements > 1 {
		return errors.New("record: Options.Kinds: more than one has the rule placement")
	}
	return nil
}

// Table is one peer's copy of the mesh's records. All methods may be called
// from any goroutine, also from within Rights and Publish.
//
// Locks, in the order in which they are taken: writing, then one of queueing
// and reading. None is held while Rights, Check, Owner, Admit or Publish run.
// Writing is held while the question given to Void runs, so locks of those who
// ask it come after writing and before reading.
type Table struct {
	storage Storage
	key     crypto.PrivKey
	self    peer.ID
	kinds   map[string]Kind
	order   map[string]int // of kinds, for Sync
	placed  string         // the kind under the rule Placement, or ""
	rights  Rights
	publish func(Signed)
	log     *slog.Logger

	maxRecords int
	maxBytes   int64
	parts      int // that one author's share is one of

	// writing is held by whoever commits a batch of changes: from deciding
	// what is kept until it is stored and visible.
	writing     sync.Mutex
	incarnation uint64             // of what is written now
	sequence    uint64             // last one handed out
	mine        map[string]*Signed // owned records written since the start
	overtaken   map[string]*Signed // those of mine that a record of an earlier life replaced

	voids atomic.Uint64 // how often Void was done; rises with writing held

	foreign map[string]bool // keys stored as foreign whose kind is known by now

	queueing sync.Mutex
	queue    []*change

	reading  sync.RWMutex
	records  map[string]*Signed   // by key
	byKind   map[string][]*Signed // sorted by id
	live     map[string]int       // per kind, records that are not deleted
	buckets  [bucketCount]bucket
	shares   map[claim]*share
	sums     map[bool]Share    // of all records, by whether their kind is reserved
	changes  map[string]uint64 // per kind, records installed so far
	watchers map[chan struct{}]struct{}

	held held
}

// NewTable loads the records from storage and raises this peer's incarnation.
func NewTable(o Options) (*Table, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	self, err := peer.IDFromPrivateKey(o.Key)
	if err != nil {
		return nil, fmt.Errorf("record: Options.Key: %w", err)
	}
	t := &Table{
		storage:    o.Storage,
		key:        o.Key,
		self:       self,
		kinds:      make(map[string]Kind),
		order:      make(map[string]int),
		rights:     o.Rights,
		publish:    o.Publish,
		log:        o.Logger,
		maxRecords: cmp.Or(o.MaxRecords, DefaultMaxRecords),
		maxBytes:   cmp.Or(o.MaxBytes, DefaultMaxBytes),
		parts:      cmp.Or(o.Shares, DefaultShares),
		shares:     make(map[claim]*share),
		sums:       make(map[bool]Share),
		mine:       make(map[string]*Signed),
		overtaken:  make(map[string]*Signed),
		foreign:    make(map[string]bool),
		records:    make(map[string]*Signed),
		byKind:     make(map[string][]*Signed),
		live:       make(map[string]int),
		changes:    make(map[string]uint64),
		watchers:   make(map[chan struct{}]struct{}),
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	for i, k := range o.Kinds {
		t.kinds[k.Name] = k
		t.order[k.Name] = i
		if k.Rule == Placement {
			t.placed = k.Name
		}
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// load reads what was kept.
func (t *Table) load() error {
	var last uint64
	err := t.scan(storedRecord, func(s *Signed) {
		t.install(s)
		if t.owns(s) {
			last = max(last, s.Version[0])
		}
	})
	if err != nil {
		return err
	}
	err = t.scan(storedForeign, func(s *Signed) {
		key := s.Key()
		_, known := t.kinds[s.Kind]
		if known {
			t.foreign[key] = true
		}
		switch {
		case against(s, t.records[key]) != Fresh:
		case known: // the release that kept it did not know the kind
			t.held.add(s)
		default:
			t.install(s)
		}
	})
	if err != nil {
		return err
	}
	stored, ok, err := t.storage.Get([]byte(storedIncarnation))
	if err != nil {
		return &storageError{err}
	}
	if ok && len(stored) == 8 {
		last = max(last, binary.BigEndian.Uint64(stored))
	}
	if last+1 >= MaxCount {
		return fmt.Errorf("this peer has used up its incarnations: %w", ErrExhausted)
	}
	t.incarnation = last + 1
	write := Write{Key: []byte(storedIncarnation), Value: binary.BigEndian.AppendUint64(nil, t.incarnation)}
	if err := t.storage.Apply([]Write{write}); err != nil {
		return &storageError{err}
	}
	return nil
}

func (t *Table) scan(prefix string, fn func(*Signed)) error {
	err := t.storage.Scan([]byte(prefix), func(_, value []byte) error {
		s, err := fromStore(value)
		if err != nil {
			t.log.Warn("a stored record is damaged and is left out", "error", err)
			return nil
		}
		fn(&s)
		return nil
	})
	if err != nil {
		return &storageError{err}
	}
	return nil
}

// owns says whether a record is an owned one by this peer.
func (t *Table) owns(s *Signed) bool {
	return s.Author == t.self && t.kinds[s.Kind].Rule == Owned
}

// Self is the id under which this table writes.
func (t *Table) Self() peer.ID { return t.self }

// Incarnation is the first part of the versions under which this peer writes its
// own records now.
func (t *Table) Incarnation() uint64 {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.incarnation
}

// Get returns the live record of a key.
func (t *Table) Get(kind, id string) (Signed, bool) {
	s, ok := t.Latest(kind, id)
	if !ok || s.Deleted {
		return Signed{}, false
	}
	return s, true
}

// Latest returns the record of a key, also when it says that the key is deleted.
func (t *Table) Latest(kind, id string) (Signed, bool) {
	if s := t.kept(Key(kind, id)); s != nil {
		return *s, true
	}
	return Signed{}, false
}

// List returns the live records of a kind, sorted by id.
func (t *Table) List(kind string) []Signed {
	t.reading.RLock()
	defer t.reading.RUnlock()
	all := t.byKind[kind]
	live := make([]Signed, 0, len(all))
	for _, s := range all {
		if !s.Deleted {
			live = append(live, *s)
		}
	}
	return live
}

// Live is how many records List would return.
func (t *Table) Live(kind string) int {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return t.live[kind]
}

// All returns every record, deleted ones and unknown kinds too, sorted by key.
func (t *Table) All() []Signed {
	t.reading.RLock()
	all := make([]Signed, 0, len(t.records))
	for _, s := range t.records {
		all = append(all, *s)
	}
	t.reading.RUnlock()
	slices.SortFunc(all, func(a, b Signed) int { return strings.Compare(a.Key(), b.Key()) })
	return all
}

// Raw returns the marshalled record of a key.
func (t *Table) Raw(key string) ([]byte, bool) {
	if s := t.kept(key); s != nil {
		return s.Raw, true
	}
	return nil, false
}

// kept is the record of a key, or nil.
func (t *Table) kept(key string) *Signed {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return t.records[key]
}

// Revision grows with every record of a kind that the table takes: who works
// something out from a kind's records need not do it again while it is the same.
func (t *Table) Revision(kind string) uint64 {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return t.changes[kind]
}

// History returns the records of a kind, deleted ones too, sorted by id.
func (t *Table) History(kind string) []Signed {
	t.reading.RLock()
	defer t.reading.RUnlock()
	all := make([]Signed, len(t.byKind[kind]))
	for i, s := range t.byKind[kind] {
		all[i] = *s
	}
	return all
}

// Len is the number of records, deleted ones too.
func (t *Table) Len() int {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return len(t.records)
}

// Bytes is the memory that the records take, by the table's own reckoning.
func (t *Table) Bytes() int64 {
	t.reading.RLock()
	defer t.reading.RUnlock()
	return t.sums[false].Bytes + t.sums[true].Bytes
}

// Subscribe returns a channel that gets a signal after the table has changed.
// Changes that come before the last signal was taken are one signal. The
// returned func ends the subscription; the channel is never closed.
func (t *Table) Subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	t.reading.Lock()
	defer t.reading.Unlock()
	t.watchers[ch] = struct{}{}
	return ch, func() {
		t.reading.Lock()
		defer t.reading.Unlock()
		delete(t.watchers, ch)
	}
}

// install makes a record the one of its key; reading is held for writing, or
// the table not yet shared.
func (t *Table) install(s *Signed) {
	key := s.Key()
	ids := t.byKind[s.Kind]
	at, found := slices.BinarySearchFunc(ids, s.ID, func(s *Signed, id string) int { return strings.Compare(s.ID, id) })
	if found {
		ids[at] = s
		t.count(t.records[key], -1)
		t.take(t.records[key])
	} else {
		t.byKind[s.Kind] = slices.Insert(ids, at, s)
	}
	t.records[key] = s
	t.count(s, 1)
	t.give(s)
	t.changes[s.Kind]++
	t.buckets[bucketOf(key)].put(key, s)
}

// count adds a record to those that are live, or takes it away.
func (t *Table) count(s *Signed, n int) {
	if !s.Deleted {
		t.live[s.Kind] += n
	}
}

// cost is the memory that a record takes: its bytes twice, as they came and
// decoded.
func cost(s *Signed) int64 {
	return int64(len(s.Raw)+len(s.Payload)+2*(len(s.Kind)+len(s.ID))) + footprint
}
