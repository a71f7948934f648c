package content

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// Options are what a Store needs and how it behaves.
type Options struct {
	// Space is where the tables are kept. Required.
	Space Space
	// Dir is the folder of pulled models; made where it is missing, by New only if
	// nothing that was pulled belongs there. Required.
	Dir string
	// HashOnRead makes every block be hashed before it is handed out, also when
	// its file has not changed.
	HashOnRead bool
	// Stall is how long a pull waits for the next block before it gives up,
	// keeping what it has. 0 means one minute.
	Stall time.Duration
	// Logger gets what went wrong without anybody asking. nil discards.
	Logger *slog.Logger

	// For tests: a smaller layout, another disk, other intervals.
	layout      layout
	free        func(path string) (free, total uint64, err error)
	allocate    func(f *os.File, size int64) error
	sync        func(f *os.File) error
	remove      func(path string) error
	now         func() time.Time
	commitBytes int64
	commitEvery time.Duration
	roomEvery   time.Duration
	holderStall time.Duration
}

const (
	defaultStall = time.Minute
	// A holder that sends nothing for that long loses its range.
	defaultHolderStall = 5 * time.Second
	// A pull's bitmap is committed after this many bytes, or that long.
	defaultCommitBytes = 256 << 20
	defaultCommitEvery = 5 * time.Second
	// reserve is what a pull leaves free on the disk, in bytes: more than the
	// database needs to go on.
	reserve = 128 << 20
)

// Validate names the option at fault.
func (o Options) Validate() error {
	switch {
	case o.Space == nil:
		return errors.New("content: Space is required")
	case o.Dir == "":
		return errors.New("content: Dir is required")
	case o.Stall < 0:
		return errors.New("content: Stall must not be negative")
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	if o.layout.chunk == 0 {
		o.layout = layout{chunk: chunkSize, links: linkCount}
	}
	if o.free == nil {
		o.free = store.DiskFree
	}
	if o.allocate == nil {
		o.allocate = allocate
	}
	if o.sync == nil {
		o.sync = syncData
	}
	if o.remove == nil {
		o.remove = os.Remove
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.commitBytes == 0 {
		o.commitBytes = defaultCommitBytes
	}
	if o.commitEvery == 0 {
		o.commitEvery = defaultCommitEvery
	}
	if o.roomEvery == 0 {
		o.roomEvery = roomEvery
	}
	if o.holderStall == 0 {
		o.holderStall = defaultHolderStall
	}
	return o
}

// Store is the content of this machine. It is safe for concurrent use.
//
// Locks, in the order in which they may nest: tables, then mu.
type Store struct {
	opt    Options
	dir    string
	layout layout
	log    *slog.Logger
	space  Space

	// tables is held while the tables of inner nodes and references are
	// changed, so that nobody deletes a node that another just came to use.
	tables sync.Mutex

	// checks has an element for each range that is hashed before it is sent.
	checks chan struct{}

	// mu guards what follows and is never held while anything waits.
	mu     sync.RWMutex
	files  map[uint64]*file
	paths  map[string]*file // the files by their paths
	sets   map[uint64]*set
	lastID uint64
	pulls  map[cid.Cid]*flight
}

// New opens the content kept in opt.Space and takes back what a crash left half
// done. Unfinished pulls stay, for Pull to go on with.
func New(opt Options) (*Store, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	s := &Store{
		opt: opt, dir: dir, layout: opt.layout, log: opt.Logger, space: opt.Space,
		files: map[uint64]*file{}, paths: map[string]*file{}, sets: map[uint64]*set{},
		pulls: map[cid.Cid]*flight{}, checks: make(chan struct{}, maxChecks),
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	if awaited, err := s.pulledInto(dir); err != nil || awaited {
		return s, err // Where it is missing, its disk may not be mounted: an empty one would hide that.
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	return s, nil
}

// makeDir makes the folder of pulled models where it is missing and nothing is
// known to lie in it. If something is, its disk may not be mounted.
func (s *Store) makeDir() error {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		awaited, err := s.pulledInto(s.dir)
		if err != nil {
			return err
		}
		if awaited {
			return fmt.Errorf("%w: %s is missing, and what was pulled lies in it; mount its disk or put it back, or make an empty folder there if it is gone for good", ErrUnusable, s.dir)
		}
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return unusable(s.dir, err)
	}
	return nil
}

// pulledInto says whether something that was pulled, wholly or in part, belongs
// into a folder.
func (s *Store) pulledInto(dir string) (bool, error) {
	partials, err := s.partials()
	if err != nil {
		return false, err
	}
	for _, p := range partials {
		if filepath.Dir(p.Part) == dir {
			return true, nil
		}
	}
	for _, f := range s.pulledFiles() {
		if f.home() == dir {
			return true, nil
		}
	}
	return false, nil
}

// top is what lies of a pulled file in the models folder: itself, or the folder
// that was made for its set.
func (f *file) top() string {
	if f.Nested {
		return filepath.Dir(f.Path)
	}
	return f.Path
}

// home is the models folder that a pulled file lies in.
func (f *file) home() string { return filepath.Dir(f.top()) }

// load reads the tables of files and sets, and finishes removals, and takes back
// additions, that were cut off.
func (s *Store) load() error {
	files, err := s.loadFiles()
	if err != nil {
		return err
	}
	sets, unreadable, err := s.loadSets()
	if err != nil {
		return err
	}
	last, found, err := s.space.Get([]byte{tableLastID})
	if err != nil {
		return err
	}
	if found && len(last) == 8 {
		s.lastID = max(s.lastID, binary.BigEndian.Uint64(last))
	}
	pulling := map[uint64]bool{}
	partials, err := s.partials()
	if err != nil {
		return err
	}
	for _, p := range partials {
		pulling[p.ID] = true
	}
	s.tables.Lock()
	defer s.tables.Unlock()
	for _, f := range files {
		if f.State == stateAdding && pulling[f.ID] {
			// The pull writes the same references again; its inner nodes must stay.
			if err := s.space.Apply([]store.Write{{Key: keyFile(f.ID), Delete: true}}); err != nil {
				return err
			}
			continue
		}
		if err := s.finishRemoval(f); err != nil {
			s.log.Warn("removal could not be finished", "path", f.Path, "error", err)
		}
	}
	for _, st := range sets {
		if err := s.finishSetRemoval(st); err != nil {
			s.log.Warn("removal of a set could not be finished", "path", st.Dir, "error", err)
		}
	}
	if !unreadable {
		s.dropParts(s.strayParts())
	}
	s.dropReplaced()
	return nil
}

// dropReplaced takes files out of the tables whose path has another record by
// now, as a relay leaves them that was killed and did not replace one by the other
// at once. The caller holds tables.
func (s *Store) dropReplaced() {
	s.mu.RLock()
	var old []*file
	for _, f := range s.files {
		if s.paths[f.Path] != f {
			old = append(old, f)
		}
	}
	s.mu.RUnlock()
	for _, f := range old {
		if _, err := s.removeFile(f, false); err != nil {
			s.log.Warn("old content stays in the tables until the next start", "path", f.Path, "error", err)
		}
	}
}

// loadFiles reads the table of files and returns those whose addition or removal
// was cut off.
func (s *Store) loadFiles() (cutOff []*file, err error) {
	err = s.space.Scan([]byte{tableFiles}, func(_, value []byte) error {
		f, err := parseFile(value)
		if err != nil {
			s.log.Warn("a record of a file cannot be read and is left alone", "error", err)
			return nil
		}
		s.lastID = max(s.lastID, f.ID)
		switch f.State {
		case stateWhole:
			s.setFile(f)
		case stateAdding, stateRemoving:
			cutOff = append(cutOff, f)
		}
		return nil
	})
	return cutOff, err
}

// loadSets reads the table of sets and returns those whose removal was cut off,
// and whether there is one that cannot be read.
func (s *Store) loadSets() (cutOff []*set, unreadable bool, err error) {
	err = s.space.Scan([]byte{tableSets}, func(_, value []byte) error {
		st, err := s.parseSet(value)
		if err != nil {
			s.log.Warn("a record of a set cannot be read and is left alone", "error", err)
			unreadable = true
			return nil
		}
		s.lastID = max(s.lastID, st.ID)
		switch st.State {
		case stateWhole:
			s.setSet(st)
		case stateRemoving:
			cutOff = append(cutOff, st)
		default:
			unreadable = true
		}
		return nil
	})
	return cutOff, unreadable, err
}

// nextID gives out an id that no file, set or pull ever had. The write makes it
// durable and belongs into the same Apply as its first use.
func (s *Store) nextID() (uint64, store.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	return s.lastID, store.Write{Key: []byte{tableLastID}, Value: binary.BigEndian.AppendUint64(nil, s.lastID)}
}

func (s *Store) setFile(f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlist(s.files[f.ID])
	s.files[f.ID], s.paths[f.Path] = f, f
}

func (s *Store) forgetFile(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlist(s.files[id])
	delete(s.files, id)
}

// unlist takes a file out of the list of paths, unless another has its path by
// now. The caller holds mu.
func (s *Store) unlist(f *file) {
	if f != nil && s.paths[f.Path] == f {
		delete(s.paths, f.Path)
	}
}

func (s *Store) fileByID(id uint64) *file {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.files[id]
}

func (s *Store) fileByPath(path string) *file {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.paths[path]
}

// unusable says why the models folder cannot be used.
func unusable(dir string, err error) error {
	if store.IsDiskFull(err) {
		return fmt.Errorf("%w: %s cannot be written (%w); free some space and try again", store.ErrDiskFull, dir, err)
	}
	return fmt.Errorf("%w: %w; give this user the right to write %s, or name another folder with RELAY_MODELS_DIR", ErrUnusable, err, dir)
}
