package tensorcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Least is the size in bytes over which llama.cpp sends a tensor's hash before it
// sends the tensor, and so asks the cache. Smaller ones can be kept as well, and
// are never read.
const Least = 10 << 20

// Options of a cache. The zero value is usable.
type Options struct {
	// Room is asked before a tensor of that many bytes is written, by one Fill at a
	// time, and returns an error where the disk has none for it: Fill returns that.
	// Bytes counts what was granted before; Room may call that and Sweep. Nil
	// grants all.
	Room func(ctx context.Context, bytes int64) error
	// Now is the time, by which what was used last is known; nil means time.Now.
	Now func() time.Time
}

// The folders of a cache. Notes say which tensors a file of rpc is, and by their
// time when it was used last; each is a file of the same name. What is not whole
// is in aside alone.
const (
	tensorFolder = "rpc"
	noteFolder   = "notes"
	asideFolder  = "aside"
)

// A Cache is an open folder of tensors. Its methods may be called at once.
type Cache struct {
	dir string
	o   Options
	// step is told how far a Fill got: tests end the process there.
	step func(string)

	asking sync.Mutex // held while Room is asked, never under mu
	// mu is held while entries change and files are deleted, but not while a file is
	// written, compared, synced or named.
	mu      sync.Mutex
	entries map[string]*entry // by the file's name
	keys    map[Key]*entry
	leases  map[Key]int // how many hold it, there or not
	// filling has an end for each tensor that is being filled, keeping one for each
	// name of which one Fill alone changes the files: until then nobody drops its entry.
	filling map[Key]chan struct{}
	keeping map[string]chan struct{}
	// bytes are those of all entries, writing those of tensors being written.
	bytes, writing int64
}

// Open opens the cache in dir, and makes it where there is none. Whatever lies in
// its folders and is no whole tensor that the cache knows is deleted. The error is
// ErrFolder or ErrFull.
func Open(dir string, o Options) (*Cache, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Cache{
		dir: dir, o: o, step: func(string) {},
		entries: map[string]*entry{}, keys: map[Key]*entry{}, leases: map[Key]int{}, filling: map[Key]chan struct{}{}, keeping: map[string]chan struct{}{},
	}
	for _, folder := range []string{tensorFolder, noteFolder, asideFolder} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return nil, trouble(err)
		}
	}
	if err := c.load(); err != nil {
		return nil, trouble(err)
	}
	return c, nil
}

// load finds the tensors that are there and deletes all else.
func (c *Cache) load() error {
	notes, err := os.ReadDir(c.path(noteFolder, ""))
	if err != nil {
		return err
	}
	for _, n := range notes {
		e, err := c.readNote(n.Name())
		if err != nil || !c.whole(e) {
			continue // and the sweep below takes it
		}
		c.add(e)
	}
	var errs []error
	for _, folder := range []string{tensorFolder, noteFolder, asideFolder} {
		files, err := os.ReadDir(c.path(folder, ""))
		errs = append(errs, err)
		for _, f := range files {
			if c.entries[f.Name()] == nil { // as is all in aside
				errs = append(errs, os.RemoveAll(c.path(folder, f.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *Cache) path(folder, name string) string { return filepath.Join(c.dir, folder, name) }

// add counts an entry as there.
func (c *Cache) add(e *entry) {
	c.entries[e.name] = e
	c.bytes += e.bytes
	for _, k := range e.keys {
		c.keys[k] = e
	}
}

// whole says whether an entry's file is there, as long as it should be.
func (c *Cache) whole(e *entry) bool {
	info, err := os.Lstat(c.path(tensorFolder, e.name))
	return err == nil && info.Mode().IsRegular() && info.Size() == e.bytes
}

// find is the entry of a tensor that is there, else nil. A file that someone cut
// short or took away is forgotten: rpc-server would load it as it is.
func (c *Cache) find(k Key) *entry {
	e := c.keys[k]
	if e == nil || c.whole(e) {
		return e
	}
	if c.keeping[e.name] == nil {
		_ = c.drop(e) // if it cannot be deleted, Fill says so
	}
	return nil
}

// drop deletes an entry. Its file goes first: a note alone does no harm.
func (c *Cache) drop(e *entry) error {
	if err := os.RemoveAll(c.path(tensorFolder, e.name)); err != nil {
		return err
	}
	delete(c.entries, e.name)
	c.bytes -= e.bytes
	for _, k := range e.keys {
		if c.keys[k] == e {
			delete(c.keys, k)
		}
	}
	return os.RemoveAll(c.path(noteFolder, e.name))
}

// Dir is the folder, for rpc-server's LLAMA_CACHE.
func (c *Cache) Dir() string { return c.dir }

// Bytes is what the cache takes of the disk, with what is being written.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes + c.writing
}

// Has says whether the tensor is there.
func (c *Cache) Has(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(k) != nil
}
