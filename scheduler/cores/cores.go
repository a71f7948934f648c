package cores

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Turn is how long further requests of a busy name come in past the names that
// wait. It lets an engine with several slots keep them filled; what it has begun
// then still runs to its end.
const Turn = 5 * time.Second

// Cores is the account. All its methods may be called from any goroutine.
type Cores struct {
	mu    sync.Mutex
	n     int
	busy  map[string]*turn
	queue []request // in order of asking
}

// turn is a name that is busy.
type turn struct {
	cores    int
	requests int
	since    time.Time
}

// request is one that waits.
type request struct {
	name  string
	cores int
	in    chan struct{} // closed as it comes in
}

// New opens an account of so many cores; fewer than one counts as one.
func New(n int) *Cores { return &Cores{n: max(1, n), busy: map[string]*turn{}} }

// SetLent changes how many cores there are. Who is busy stays, even when that
// is more.
func (c *Cores) SetLent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = max(1, n)
	c.admit()
}

// Enter waits until one request of a name may compute on so many cores, which
// are those of its engine and the same for all its requests; more than are lent
// count as all. What it returns is to be called when the request is done, and
// may be called again. The error is that of ctx, and then nothing is to be left.
func (c *Cores) Enter(ctx context.Context, name string, cores int) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := c.ask(name, max(1, cores))
	if in != nil {
		select {
		case <-in:
		case <-ctx.Done():
			c.giveUp(name, in)
			return nil, ctx.Err()
		}
	}
	return sync.OnceFunc(func() { c.leave(name) }), nil
}

// Try is Enter for whoever does not wait.
func (c *Cores) Try(name string, cores int) (leave func(), ok bool) {
	if in := c.ask(name, max(1, cores)); in != nil {
		select {
		case <-in:
		default:
			c.giveUp(name, in)
			return nil, false
		}
	}
	return sync.OnceFunc(func() { c.leave(name) }), true
}

// Waiting is how many requests wait.
func (c *Cores) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// Busy is how many cores each busy name counts for.
func (c *Cores) Busy() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := make(map[string]int, len(c.busy))
	for name, t := range c.busy {
		busy[name] = min(t.cores, c.n)
	}
	return busy
}

// ask lets a request in, which nil says, or has it wait.
func (c *Cores) ask(name string, cores int) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.busy[name]; t != nil && time.Since(t.since) < Turn {
		t.requests++
		return nil
	}
	r := request{name, cores, make(chan struct{})}
	c.queue = append(c.queue, r)
	c.admit()
	return r.in
}

// giveUp ends the waiting of a request, or its turn where that has just begun.
func (c *Cores) giveUp(name string, in chan struct{}) {
	if !c.unqueue(in) {
		c.leave(name)
	}
}

func (c *Cores) unqueue(in chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.queue, func(r request) bool { return r.in == in })
	if i < 0 {
		return false
	}
	c.queue = slices.Delete(c.queue, i, i+1)
	c.admit() // Others may have waited for this one alone.
	return true
}

func (c *Cores) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.busy[name]
	if t.requests--; t.requests == 0 {
		delete(c.busy, name)
		c.admit()
	}
}

// admit lets in from the head of the queue whom there is room for, and with it
// all that wait for the same name. No other name overtakes: small ones would keep
// a large one out for ever.
func (c *Cores) admit() {
	used := 0
	for _, t := range c.busy {
		used += min(t.cores, c.n)
	}
	for len(c.queue) > 0 {
		head := c.queue[0]
		t := c.busy[head.name]
		if t == nil {
			if used += min(head.cores, c.n); used > c.n {
				return
			}
			t = &turn{cores: head.cores, since: time.Now()}
			c.busy[head.name] = t
		}
		c.queue = slices.DeleteFunc(c.queue, func(r request) bool {
			if r.name != head.name {
				return false
			}
			close(r.in)
			t.requests++
			return true
		})
	}
}
