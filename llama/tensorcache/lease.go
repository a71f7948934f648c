package tensorcache

import "sync"

// Lease holds tensors until release is called: those that are there, and the
// missing as soon as they are filled. Each is missing once, in the order of keys.
func (c *Cache) Lease(keys []Key) (release func(), missing []Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := make(map[Key]bool, len(keys))
	for _, k := range keys {
		if held[k] {
			continue
		}
		held[k] = true
		c.leases[k]++
		if !c.use(k) {
			missing = append(missing, k)
		}
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for k := range held {
			c.use(k)
			if c.leases[k]--; c.leases[k] == 0 {
				delete(c.leases, k)
			}
		}
	}), missing
}

// use notes that a tensor is used now, if it is there.
func (c *Cache) use(k Key) bool {
	e := c.find(k)
	if e == nil {
		return false
	}
	e.used = c.o.Now()
	c.stamp(e)
	return true
}
