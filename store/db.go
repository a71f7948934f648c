package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/ristretto/v2/z"
)

const (
	// magic marks the database as relay's; badger refuses to open another's.
	magic = 0x5245
	// schema is the layout of the keys. A newer relay raises it when an older
	// one would misread what it finds.
	schema = 1
	// gcEvery is how often the value log is offered for collection; badger
	// never does that by itself.
	gcEvery = 10 * time.Minute
	// minFree is the room that must be left on the disk, in bytes, before
	// anything is written. Badger writes through memory maps of sparse files: on
	// a disk without room that is a fatal signal, not an error. 64 MiB covers
	// two tables in memory being flushed while a level is compacted.
	minFree = 64 << 20
)

// DB is the database of one state folder. It is safe for concurrent use.
type DB struct {
	dir    string
	log    *slog.Logger
	badger *badger.DB
	free   func(path string) (free, total uint64, err error)
	queue  commitQueue

	// mu guards closed; users counts the calls in progress, which Close awaits.
	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

// Open opens the database in dir, which is made where it is missing. A nil
// logger discards. The caller must Close it.
//
// It fails with ErrLocked when another process has it open, with ErrUnusable
// when the folder cannot be read or written or was written by a newer relay,
// and with ErrDiskFull when less than 64 MiB are free.
func Open(dir string, log *slog.Logger) (*DB, error) {
	return open(dir, log, DiskFree)
}

func open(dir string, log *slog.Logger, free func(string) (uint64, uint64, error)) (*DB, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir, err := absolute(dir)
	if err != nil {
		return nil, unusable(dir, err)
	}
	d := &DB{dir: dir, log: log, free: free}
	if err := d.room(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(dir, err)
	}
	if err := tryWrite(dir); err != nil {
		return nil, unusable(dir, err)
	}
	d.badger, err = openBadger(badgerOptions(dir, log))
	if err != nil {
		return nil, openError(dir, err)
	}
	if err := d.checkSchema(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// badgerOptions are small on purpose: relay keeps a few megabytes, badger's
// defaults are made for servers (2 GiB of sparse files, half a GiB of memory).
func badgerOptions(dir string, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithMemTableSize(8 << 20).
		WithNumMemtables(2).
		WithNumLevelZeroTables(2).
		WithNumLevelZeroTablesStall(4).
		WithNumCompactors(2).
		WithValueLogFileSize(64 << 20).
		WithCompression(options.None). // most of what is kept are hashes
		WithBlockCacheSize(0).
		WithIndexCacheSize(8 << 20).
		WithMetricsEnabled(false).
		// One writer at a time, and no reads inside its transactions.
		WithDetectConflicts(false).
		// Every commit is synced before it is acknowledged; commits of
		// concurrent callers are joined into one.
		WithSyncWrites(true).
		WithExternalMagic(magic).
		WithLogger(badgerLog{log})
}

// openBadger opens badger, again if need be. A process killed just after it made
// a log file, or just before it deleted one, leaves it empty; badger stumbles
// over each empty file once, and makes it a proper log of nothing by that.
func openBadger(opt badger.Options) (db *badger.DB, err error) {
	for range 16 {
		db, err = badger.Open(opt)
		if err == nil || !strings.Contains(err.Error(), z.NewFile.Error()) {
			break
		}
	}
	return db, err
}

// openError puts badger's words into ours. Badger turns its errors into text,
// so text is all there is to go by; a test holds each of these against the
// version in use.
func openError(dir string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "Another process is using this Badger database"):
		return fmt.Errorf("%w: another process has the database in %s open; stop it, or name another folder with RELAY_STATE_DIR", ErrLocked, dir)
	case strings.Contains(text, "magic"):
		return fmt.Errorf("%w: %s does not hold a database of relay, or one of a newer relay; name another folder with RELAY_STATE_DIR", ErrUnusable, dir)
	case strings.Contains(text, "no space left"):
		return fmt.Errorf("%w: the database in %s cannot be opened; free some space and try again", ErrDiskFull, dir)
	}
	return fmt.Errorf("%w: the database in %s cannot be opened (%s); move that folder away to start with an empty one", ErrUnusable, dir, text)
}

func (d *DB) checkSchema() error {
	own := d.Space("store")
	value, found, err := own.Get([]byte("schema"))
	if err != nil {
		return err
	}
	if !found {
		return own.Apply([]Write{{Key: []byte("schema"), Value: binary.BigEndian.AppendUint32(nil, schema)}})
	}
	if len(value) != 4 {
		return fmt.Errorf("%w: the database in %s has no readable schema; move that folder away to start with an empty one", ErrUnusable, d.dir)
	}
	if got := binary.BigEndian.Uint32(value); got > schema {
		return fmt.Errorf("%w: the database in %s was written by a newer relay (schema %d, this one knows %d); start the newer one", ErrUnusable, d.dir, got, schema)
	}
	return nil
}

// Run looks after the database until ctx is done, and then returns nil. The
// database stays open: Close it when its last user is gone.
func (d *DB) Run(ctx context.Context) error {
	tick := time.NewTicker(gcEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.collect()
		}
	}
}

// collect frees what the value log holds in vain, file by file.
func (d *DB) collect() {
	leave, err := d.enter()
	if err != nil {
		return
	}
	defer leave()
	for {
		err := d.badger.RunValueLogGC(0.5)
		if err == nil {
			continue
		}
		if !errors.Is(err, badger.ErrNoRewrite) && !errors.Is(err, badger.ErrRejected) {
			d.log.Warn("value log was not collected", "error", err)
		}
		return
	}
}

// Close ends the database after the calls in progress. Later calls fail with
// ErrClosed; closing again does nothing.
func (d *DB) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.users.Wait()
	if err := d.badger.Close(); err != nil {
		return fmt.Errorf("closing the database in %s: %w", d.dir, err)
	}
	return nil
}

// enter registers a call that uses badger, which panics when used after Close.
func (d *DB) enter() (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	d.users.Add(1)
	return d.users.Done, nil
}

// room refuses to write when the disk is nearly full.
func (d *DB) room() error {
	free, _, err := d.free(d.dir)
	if err != nil {
		// Not every file system can tell; the write itself will.
		return nil
	}
	if free < minFree {
		return fmt.Errorf("%w: %s are free at %s, relay needs %s for its records; free some space",
			ErrDiskFull, FormatBytes(free), d.dir, FormatBytes(minFree))
	}
	return nil
}

func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, err
	}
	return abs, nil
}
