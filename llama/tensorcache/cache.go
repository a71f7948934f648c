package tensorcache

import (
	"context"
	"errors"
	"io"
	"time"
)

// Least is the size in bytes over which llama.cpp sends a tensor's hash before it
// sends the tensor, and so asks the cache. Smaller ones can be kept as well, and
// are never read.
const Least = 10 << 20

// A Key says which tensor: Bytes bytes from Offset on, of a file.
type Key struct {
	// File is the file's CID, as text.
	File          string
	Offset, Bytes int64
}

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

// A Cache is an open folder of tensors. Its methods may be called at once.
type Cache struct{}

// Open opens the cache in dir, and makes it where there is none. Whatever lies
// there and is no whole tensor that the cache knows is deleted. The error is
// ErrFolder.
func Open(dir string, o Options) (*Cache, error) { return nil, errors.ErrUnsupported }

// Dir is the folder, for rpc-server's LLAMA_CACHE.
func (c *Cache) Dir() string { return "" }

// Bytes is what the cache takes of the disk, with what is being written.
func (c *Cache) Bytes() int64 { return 0 }

// Has says whether the tensor is there.
func (c *Cache) Has(k Key) bool { return false }

// Fill puts a tensor into the cache from r, which must give exactly k.Bytes bytes
// and then end, and end when ctx does. Where the tensor is there, or another Fill
// of it succeeds meanwhile, r is not read. The error is ErrKey, ErrLength,
// ErrCollision, ErrFolder (a full disk included), Room's, r's or ctx's; nothing is
// left of the tensor then.
func (c *Cache) Fill(ctx context.Context, k Key, r io.Reader) error { return errors.ErrUnsupported }

// Lease holds tensors until release is called: those that are there, and the
// missing as soon as they are filled.
func (c *Cache) Lease(keys []Key) (release func(), missing []Key) { return func() {}, nil }

// Sweep deletes tensors that no lease holds, those used least recently first,
// until the cache has at most so many bytes or nothing more to delete. It returns
// the bytes that are gone. The error is ErrFolder.
func (c *Cache) Sweep(most int64) (freed int64, err error) { return 0, errors.ErrUnsupported }

// Erase deletes all tensors, or none where one is leased or being filled: then the
// error is ErrInUse. Else it is ErrFolder.
func (c *Cache) Erase() error { return errors.ErrUnsupported }
