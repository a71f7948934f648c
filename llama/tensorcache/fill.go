package tensorcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// chunk is how much of a tensor is in memory at once, in bytes.
const chunk = 1 << 20

// Fill puts a tensor into the cache from r, which must give exactly k.Bytes bytes
// and then end, and end when ctx does. Whether they are the right ones is the
// caller's to know. Where the tensor is there, or another Fill of it succeeds
// meanwhile, r is not read. The error is ErrKey, ErrLength, ErrCollision, ErrFull,
// ErrFolder, Room's, r's or ctx's; nothing is left of the tensor then.
func (c *Cache) Fill(ctx context.Context, k Key, r io.Reader) error {
	if err := k.validate(); err != nil {
		return err
	}
	if mine, err := c.begin(ctx, k); !mine {
		return err
	}
	f, name, err := aside{}, "", c.grant(ctx, k.Bytes)
	granted := err == nil
	if granted {
		f, name, err = c.write(ctx, k, r)
	}
	var e *entry
	held := false
	if err == nil {
		e, held, err = c.hold(ctx, f, name)
	}
	if held {
		err = c.keep(e, k, f, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if granted {
		c.writing -= k.Bytes
	}
	if held {
		close(c.keeping[name])
		delete(c.keeping, name)
	}
	close(c.filling[k])
	delete(c.filling, k)
	if err == nil {
		c.enter(e, k, name)
	}
	return err
}

// begin waits until nobody else fills a tensor, and says whether the caller has to.
func (c *Cache) begin(ctx context.Context, k Key) (mine bool, err error) {
	for {
		c.mu.Lock()
		there, other := c.find(k) != nil, c.filling[k]
		if !there && other == nil {
			c.filling[k] = make(chan struct{})
			mine = true
		}
		c.mu.Unlock()
		if there || mine {
			return mine, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// grant asks for room for a tensor and counts it as being written.
func (c *Cache) grant(ctx context.Context, bytes int64) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.o.Room != nil {
		if err := c.o.Room(ctx, bytes); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing += bytes
	return nil
}

// write writes a tensor aside, and finds its name on the way.
func (c *Cache) write(ctx context.Context, k Key, r io.Reader) (aside, string, error) {
	f, err := c.aside()
	if err != nil {
		return f, "", trouble(err)
	}
	sum, buf := fnv.New64a(), make([]byte, min(chunk, k.Bytes))
	for at := int64(0); at < k.Bytes && err == nil; {
		var n int
		n, err = io.ReadFull(r, buf[:min(int64(len(buf)), k.Bytes-at)])
		at += int64(n)
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			err = fmt.Errorf("%w: it ended after %d bytes of %d", ErrLength, at, k.Bytes)
		case err == nil:
			sum.Write(buf[:n])
			if _, err = f.Write(buf[:n]); err != nil {
				err = trouble(err)
			}
		}
	}
	if err == nil {
		if n, _ := io.ReadFull(r, buf[:1]); n > 0 {
			err = fmt.Errorf("%w: it has more than %d bytes", ErrLength, k.Bytes)
		}
	}
	if err != nil {
		return f, "", f.finish(err)
	}
	c.step("written")
	if err := f.finish(f.Chmod(0o444)); err != nil {
		return f, "", trouble(err)
	}
	c.step("synced")
	return f, fmt.Sprintf("%016x", sum.Sum64()), nil
}

// hold waits until no other Fill changes the files of a name, and does not let others
// from then on. e is the entry that has the name; nil where none has. Without hold
// what was written aside is deleted.
func (c *Cache) hold(ctx context.Context, f aside, name string) (e *entry, held bool, err error) {
	defer func() {
		if !held {
			f.delete()
		}
	}()
	for {
		c.mu.Lock()
		other := c.keeping[name]
		if other == nil {
			break
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	defer c.mu.Unlock()
	if e = c.entries[name]; e != nil && !c.whole(e) {
		if err := c.drop(e); err != nil {
			return nil, false, trouble(err)
		}
		e = nil
	}
	c.keeping[name] = make(chan struct{})
	return e, true, nil
}

// keep gives a tensor that was written aside its name, which is held, or notes that
// the entry that has it is one more tensor, if the bytes are the same.
func (c *Cache) keep(e *entry, k Key, f aside, name string) error {
	if e != nil {
		return c.share(e, k, f)
	}
	// What anybody else put there is not known to be whole.
	if err := os.RemoveAll(c.path(tensorFolder, name)); err != nil {
		f.delete()
		return trouble(err)
	}
	err := c.place(f, tensorFolder, name)
	c.step("placed")
	if err == nil {
		err = c.writeNote(name, k.Bytes, []Key{k})
	}
	if err != nil {
		_ = os.Remove(c.path(tensorFolder, name)) // and the next Open does
		return trouble(err)
	}
	c.step("noted")
	return nil
}

// share notes that an entry is one more tensor, whose bytes were written aside,
// if they are the same.
func (c *Cache) share(e *entry, k Key, f aside) error {
	defer f.delete()
	same, err := sameBytes(f.Name(), c.path(tensorFolder, e.name))
	c.step("compared")
	switch {
	case err != nil:
		return trouble(err)
	case !same:
		return fmt.Errorf("%w: %s is kept for %d bytes at %d of %s, and %d bytes at %d of %s differ from them",
			ErrCollision, e.name, e.bytes, e.keys[0].Offset, e.keys[0].File, k.Bytes, k.Offset, k.File)
	case len(e.keys) >= maxKeys:
		return fmt.Errorf("%w: more than %d are equal", ErrKey, maxKeys)
	}
	if err := c.writeNote(e.name, e.bytes, append(slices.Clone(e.keys), k)); err != nil {
		return trouble(err)
	}
	return nil
}

// enter notes that a tensor is there: in an entry of its own, where e is nil.
func (c *Cache) enter(e *entry, k Key, name string) {
	if e == nil {
		e = &entry{name: name, bytes: k.Bytes}
		c.entries[name] = e
		c.bytes += k.Bytes
	}
	e.keys = append(e.keys, k)
	c.keys[k] = e
	c.use(k)
}

// sameBytes compares two files.
func sameBytes(one, other string) (bool, error) {
	a, err := os.Open(one)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := os.Open(other)
	if err != nil {
		return false, err
	}
	defer b.Close()
	x, y := make([]byte, chunk/2), make([]byte, chunk/2)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		switch {
		case !bytes.Equal(x[:n], y[:m]):
			return false, nil
		case errA == nil && errB == nil:
		case ended(errA) && ended(errB):
			return true, nil
		default:
			return false, errors.Join(errA, errB)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
