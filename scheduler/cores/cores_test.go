package cores_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"relay/scheduler/cores"
)

// client enters for one request, and says when it is in.
type client struct {
	name   string
	leave  func()
	err    error
	in     bool
	cancel context.CancelFunc
}

func enter(c *cores.Cores, name string, n int) *client {
	ctx, cancel := context.WithCancel(context.Background())
	x := &client{name: name, cancel: cancel}
	go func() {
		x.leave, x.err = c.Enter(ctx, name, n)
		x.in = x.err == nil
	}()
	synctest.Wait()
	return x
}

func (x *client) done() {
	x.leave()
	x.cancel()
	synctest.Wait()
}

func (x *client) givesUp() {
	x.cancel()
	synctest.Wait()
}

// want compares who is in, who waits, and what is busy.
func want(t *testing.T, c *cores.Cores, busy map[string]int, waiting int, in ...*client) {
	t.Helper()
	if got := c.Busy(); !maps.Equal(got, busy) {
		t.Errorf("%v are busy, want %v", got, busy)
	}
	if got := c.Waiting(); got != waiting {
		t.Errorf("%d wait, want %d", got, waiting)
	}
	for i, x := range in {
		if !x.in {
			t.Errorf("%d, of %s, is not in", i, x.name)
		}
	}
}

type busy = map[string]int

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cores.New(4)
		a1 := enter(c, "a", 2)
		b1 := enter(c, "b", 2)
		want(t, c, busy{"a": 2, "b": 2}, 0, a1, b1)
		c1 := enter(c, "c", 3)
		d1 := enter(c, "d", 1)
		want(t, c, busy{"a": 2, "b": 2}, 2)
		// In its turn a is joined past c, then no more.
		a2 := enter(c, "a", 2)
		time.Sleep(cores.Turn)
		a3 := enter(c, "a", 2)
		want(t, c, busy{"a": 2, "b": 2}, 3, a2)
		b1.done()
		want(t, c, busy{"a": 2}, 3) // d would fit, but is behind c
		a1.done()
		a1.leave() // again, which leaves nobody else's place
		want(t, c, busy{"a": 2}, 3)
		a2.done()
		want(t, c, busy{"c": 3, "d": 1}, 1, c1, d1)
		a4 := enter(c, "a", 2) // waits where a waits already
		d1.done()
		want(t, c, busy{"c": 3}, 2)
		c1.done()
		want(t, c, busy{"a": 2}, 0, a3, a4)
		a3.done()
		a4.done()
		want(t, c, busy{}, 0)
	})
}

// Without others waiting a name is joined for ever.
func TestAloneNobodyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cores.New(4)
		last := enter(c, "a", 4)
		for range 10 {
			time.Sleep(cores.Turn)
			next := enter(c, "a", 4)
			want(t, c, busy{"a": 4}, 0, next)
			last.done()
			last = next
		}
		last.done()
		want(t, c, busy{}, 0)
	})
}

// More cores than there are count as all of them, and never fewer than one.
func TestLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cores.New(0)
		a := enter(c, "a", 8)
		b := enter(c, "b", -3)
		want(t, c, busy{"a": 1}, 1, a)
		c.SetLent(8)
		want(t, c, busy{"a": 8}, 1)
		c.SetLent(9)
		synctest.Wait()
		want(t, c, busy{"a": 8, "b": 1}, 0, b)
		c.SetLent(4) // who is busy stays
		d := enter(c, "d", 1)
		want(t, c, busy{"a": 4, "b": 1}, 1)
		a.done()
		want(t, c, busy{"b": 1, "d": 1}, 0, d)
		b.done()
		d.done()
	})
}

// Who gives up leaves no trace: not in the queue, and not in the way.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cores.New(4)
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if leave, err := c.Enter(gone, "a", 1); leave != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v where nobody asks any more", err)
		}
		want(t, c, busy{}, 0)
		a := enter(c, "a", 2)
		large := enter(c, "large", 4)
		small := enter(c, "small", 2)
		want(t, c, busy{"a": 2}, 2)
		large.givesUp()
		if large.in || !errors.Is(large.err, context.Canceled) {
			t.Errorf("it gave up with %v", large.err)
		}
		want(t, c, busy{"a": 2, "small": 2}, 0, small)
		time.Sleep(cores.Turn)
		other := enter(c, "other", 4)
		a2, a3 := enter(c, "a", 2), enter(c, "a", 2)
		want(t, c, busy{"a": 2, "small": 2}, 3)
		a3.givesUp()
		want(t, c, busy{"a": 2, "small": 2}, 2)
		other.givesUp() // and a waits for nobody but itself
		want(t, c, busy{"a": 2, "small": 2}, 0, a2)
		for _, x := range []*client{a, a2, small} {
			x.done()
		}
		want(t, c, busy{}, 0)
	})
}

// Being let in and giving up at once leaves nothing either.
func TestGivingUpAsOneIsLetIn(t *testing.T) {
	c := cores.New(1)
	for range 2000 {
		leave, err := c.Enter(context.Background(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() {
			if leave, err := c.Enter(ctx, "b", 1); err == nil {
				leave()
			}
		})
		group.Go(cancel)
		group.Go(leave)
		group.Wait()
		if len(c.Busy()) != 0 || c.Waiting() != 0 {
			t.Fatalf("%v are busy and %d wait, with nobody there", c.Busy(), c.Waiting())
		}
	}
}

// TestOrder draws who comes, leaves and gives up, and when.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Hidden behind TB, since a bubble's T has no deadline to tell.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			n := rapid.IntRange(1, 6).Draw(t, "cores")
			c := cores.New(n)
			wants := map[string]int{}
			for _, name := range []string{"a", "b", "c", "d"} {
				wants[name] = rapid.IntRange(1, 8).Draw(t, name)
			}
			var inside, waiting []*client // waiting in order of asking
			settle := func() {
				for _, x := range waiting {
					if x.in {
						inside = append(inside, x)
					}
				}
				waiting = slices.DeleteFunc(waiting, func(x *client) bool { return x.in || x.err != nil })
			}
			defer func() {
				for _, x := range inside {
					x.leave()
				}
				for _, x := range waiting {
					x.cancel()
				}
				synctest.Wait()
			}()
			t.Repeat(map[string]func(*rapid.T){
				"enter": func(t *rapid.T) {
					name := rapid.SampledFrom(slices.Sorted(maps.Keys(wants))).Draw(t, "name")
					waiting = append(waiting, enter(c, name, wants[name]))
				},
				"leave": func(t *rapid.T) {
					if len(inside) == 0 {
						t.Skip("nobody is in")
					}
					i := rapid.IntRange(0, len(inside)-1).Draw(t, "who")
					inside[i].done()
					inside[i].leave()
					inside = slices.Delete(inside, i, i+1)
				},
				"give up": func(t *rapid.T) {
					if len(waiting) == 0 {
						t.Skip("nobody waits")
					}
					waiting[rapid.IntRange(0, len(waiting)-1).Draw(t, "who")].givesUp()
				},
				"time": func(t *rapid.T) { time.Sleep(cores.Turn / 2) },
				"": func(t *rapid.T) {
					settle()
					sum, requests := 0, map[string]int{}
					for _, cores := range c.Busy() {
						sum += cores
					}
					if sum > n {
						t.Fatalf("%v are busy on %d cores", c.Busy(), n)
					}
					for _, x := range inside {
						requests[x.name]++
					}
					if !slices.Equal(slices.Sorted(maps.Keys(requests)), slices.Sorted(maps.Keys(c.Busy()))) || c.Waiting() != len(waiting) {
						t.Fatalf("%v are busy with %v, %d wait, want %d", c.Busy(), requests, c.Waiting(), len(waiting))
					}
					// Nobody waits in vain: the first name would go over.
					if len(waiting) > 0 {
						if x := waiting[0]; requests[x.name] > 0 || sum+min(n, wants[x.name]) <= n {
							t.Fatalf("%s waits with %v busy", x.name, c.Busy())
						}
					}
				},
			})
			// As those inside leave, all get in, the names in the order of asking.
			var order []string
			for _, x := range waiting {
				if !slices.Contains(order, x.name) {
					order = append(order, x.name)
				}
			}
			var came []string
			for len(inside) > 0 {
				inside[0].done()
				inside = inside[1:]
				before := len(inside)
				settle()
				for _, x := range inside[before:] {
					if !slices.Contains(came, x.name) {
						came = append(came, x.name)
					}
				}
			}
			if len(waiting) > 0 || !slices.Equal(came, order) {
				t.Fatalf("%d wait for ever, in the order %v, they came in as %v", len(waiting), order, came)
			}
		})
	})
}

// Many at once: the cores are never exceeded, and all get in.
func TestConcurrent(t *testing.T) {
	const n = 4
	c := cores.New(n)
	var mu sync.Mutex
	inside, used := map[string]int{}, map[string]int{"a": 1, "b": 2, "c": 3, "d": 9}
	count := func(name string, by int) {
		mu.Lock()
		defer mu.Unlock()
		if inside[name] += by; inside[name] == 0 {
			delete(inside, name)
		}
		sum := 0
		for name := range inside {
			sum += min(n, used[name])
		}
		if sum > n {
			t.Errorf("%v are in at once", inside)
		}
	}
	var group sync.WaitGroup
	for i := range 50 {
		name := slices.Sorted(maps.Keys(used))[i%len(used)]
		group.Go(func() {
			for range 100 {
				leave, err := c.Enter(t.Context(), name, used[name])
				if err != nil {
					t.Error(fmt.Errorf("%s: %w", name, err))
					return
				}
				count(name, +1)
				count(name, -1)
				leave()
			}
		})
	}
	group.Wait()
	if len(c.Busy()) != 0 || c.Waiting() != 0 {
		t.Errorf("%v are busy, %d wait", c.Busy(), c.Waiting())
	}
}
