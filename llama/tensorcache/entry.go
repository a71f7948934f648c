package tensorcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

const (
	maxFile  = 256     // bytes of a CID as text
	maxBytes = 1 << 48 // of a tensor
	maxKeys  = 1 << 14 // of one file: no model has more tensors
	maxNote  = 8 << 20 // bytes
)

// A Key says which tensor: Bytes bytes from Offset on, of a file.
type Key struct {
	// File is the file's CID, as text.
	File          string
	Offset, Bytes int64
}

func (k Key) validate() error {
	if k.File == "" || len(k.File) > maxFile || k.Offset < 0 || k.Bytes < 1 || k.Bytes > maxBytes {
		return fmt.Errorf("%w: %d bytes at %d of %.*q", ErrKey, k.Bytes, k.Offset, maxFile, k.File)
	}
	return nil
}

// An entry is one file of the cache. Equal tensors share one.
type entry struct {
	name  string
	bytes int64
	keys  []Key
	used  time.Time
}

// namePattern is how rpc-server calls the files.
var namePattern = regexp.MustCompile(`\A[0-9a-f]{16}\z`)

// A note is what is kept of an entry beside its file.
type note struct {
	Bytes   int64   `json:"bytes"`
	Tensors []place `json:"tensors"`
}

type place struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
}

// readNote reads the note of that name.
func (c *Cache) readNote(name string) (*entry, error) {
	if !namePattern.MatchString(name) {
		return nil, errors.New("no name of a tensor")
	}
	path := c.path(noteFolder, name)
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxNote:
		return nil, errors.New("no note")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err != nil {
		return nil, err
	}
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, err
	}
	e := &entry{name: name, bytes: n.Bytes, used: info.ModTime()}
	for _, p := range n.Tensors {
		k := Key{p.File, p.Offset, n.Bytes}
		if err := k.validate(); err != nil {
			return nil, err
		}
		e.keys = append(e.keys, k)
	}
	if len(e.keys) == 0 || len(e.keys) > maxKeys {
		return nil, errors.New("a note of no tensor")
	}
	return e, nil
}

// writeNote writes the note of a tensor, in the place of the one before.
func (c *Cache) writeNote(name string, bytes int64, keys []Key) error {
	n := note{Bytes: bytes}
	for _, k := range keys {
		n.Tensors = append(n.Tensors, place{k.File, k.Offset})
	}
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	f, err := c.aside()
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = f.finish(err); err != nil {
		return err
	}
	return c.place(f, noteFolder, name)
}

// stamp keeps when an entry was used last. Where that fails it is swept sooner.
func (c *Cache) stamp(e *entry) { _ = os.Chtimes(c.path(noteFolder, e.name), time.Time{}, e.used) }
