package tensorcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if granted {
		c.writing -= k.Bytes
	}
	close(c.filling[k])
	delete(c.filling, k)
	if err != nil {
		return err
	}
	return c.keep(k, f, name)
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

// keep gives a tensor that was written aside its name.
func (c *Cache) keep(k Key, f aside, name string) error {
	e := c.entries[name]
	if e != nil && !c.whole(e) {
		if err := c.drop(e); err != nil {
			f.delete()
			return trouble(err)
		}
		e = nil
	}
	if e != nil {
		return c.share(e, k, f)
	}
	e = &entry{name: name, bytes: k.Bytes, keys: []Key{k}, used: c.o.Now()}
	// What anybody else put there is not known to be whole.
	if err := os.RemoveAll(c.path(tensorFolder, name)); err != nil {
		f.delete()
		return trouble(err)
	}
	err := c.place(f, tensorFolder, name)
	c.step("placed")
	if err == nil {
		err = c.writeNote(e)
	}
	if err != nil {
		_ = os.Remove(c.path(tensorFolder, name)) // and the next Open does
		return trouble(err)
	}
	c.step("noted")
	c.add(e)
	return nil
}

// share notes that an entry is one more tensor, whose bytes were written aside,
// if they are the same.
func (c *Cache) share(e *entry, k Key, f aside) error {
	defer f.delete()
	same, err := sameBytes(f.Name(), c.path(tensorFolder, e.name))
	switch {
	case err != nil:
		return trouble(err)
	case !same:
		return fmt.Errorf("%w: %s is kept for %d bytes at %d of %s, and %d bytes at %d of %s differ from them",
			ErrCollision, e.name, e.bytes, e.keys[0].Offset, e.keys[0].File, k.Bytes, k.Offset, k.File)
	}
	more := *e
	more.keys, more.used = append(e.keys[:len(e.keys):len(e.keys)], k), c.o.Now()
	if len(more.keys) > maxKeys {
		return fmt.Errorf("%w: more than %d are equal", ErrKey, maxKeys)
	}
	if err := c.writeNote(&more); err != nil {
		return trouble(err)
	}
	*e = more
	c.keys[k] = e
	return nil
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
