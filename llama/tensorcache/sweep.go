package tensorcache

import (
	"cmp"
	"errors"
	"maps"
	"slices"
)

// Sweep deletes tensors that no lease and no Fill holds, those used least recently
// first, until the cache has at most so many bytes or nothing more to delete. It
// returns the bytes that are gone. The error is ErrFolder.
func (c *Cache) Sweep(most int64) (freed int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := slices.SortedFunc(maps.Values(c.entries), func(a, b *entry) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name))
	})
	var errs []error
	for _, e := range oldest {
		if c.bytes+c.writing <= most {
			break
		}
		if c.held(e) {
			continue
		}
		before := c.bytes
		if err := c.drop(e); err != nil {
			errs = append(errs, trouble(err))
		}
		freed += before - c.bytes
	}
	return freed, errors.Join(errs...)
}

// Idle is how many bytes Sweep(0) would delete now.
func (c *Cache) Idle() (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if !c.held(e) {
			bytes += e.bytes
		}
	}
	return bytes
}

// held says whether a tensor may not be deleted; c.mu is held.
func (c *Cache) held(e *entry) bool {
	return c.keeping[e.name] != nil || slices.ContainsFunc(e.keys, func(k Key) bool { return c.leases[k] > 0 })
}

// Erase deletes all tensors, or none where one is leased or being filled: then the
// error is ErrInUse. Else it is ErrFolder.
func (c *Cache) Erase() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.leases) > 0 || len(c.filling) > 0 {
		return ErrInUse
	}
	var errs []error
	for _, e := range slices.Collect(maps.Values(c.entries)) {
		if err := c.drop(e); err != nil {
			errs = append(errs, trouble(err))
		}
	}
	return errors.Join(errs...)
}
