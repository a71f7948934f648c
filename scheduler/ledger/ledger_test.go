package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/ledger"
)

const gib = 1 << 30

func TestRefusals(t *testing.T) {
	l := ledger.New(12 * gib)
	if err := l.Reserve("a", 8*gib); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		lent, need uint64
		text       string
		passing    bool
	}{
		{12 * gib, 5 * gib, "needs 5.0 GiB, 4.0 GiB of the 12.0 GiB lent is free now", true},
		{12 * gib, 18 * gib, "needs 18.0 GiB, 12.0 GiB is lent in all", false},
		{12 * gib, math.MaxUint64, "needs 17179869184.0 GiB, 12.0 GiB is lent in all", false},
		{6 * gib, 1 << 20, "needs 1 MiB, 0 MiB of the 6.0 GiB lent is free now", true},
		{0, 1 << 20, "needs 1 MiB, no memory is lent", false},
	} {
		l.SetLent(tc.lent)
		err := l.Reserve("b", tc.need)
		var short *ledger.Shortage
		if !errors.As(err, &short) || err.Error() != tc.text || short.Passing() != tc.passing || short.Reason() != "no_capacity" {
			t.Errorf("%d of %d: %v", tc.need, tc.lent, err)
		}
	}
	l.SetLent(12 * gib)
	if err := l.Reserve("a", 1); err == nil || err.Error() != "8.0 GiB of memory are reserved for a already" {
		t.Errorf("twice: %v", err)
	}
	l.Release("b") // which has nothing
	if l.Reserved() != 8*gib || l.Free() != 4*gib || !slices.Equal(l.Names(), []string{"a"}) {
		t.Errorf("%d reserved, %d free, for %v", l.Reserved(), l.Free(), l.Names())
	}
}

// TestNeverOver compares the ledger with a plain sum.
func TestNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lent := rapid.Uint64().Draw(t, "lent")
		l := ledger.New(lent)
		held := make(map[string]uint64)
		sum := func() (s uint64) {
			for _, n := range held {
				s += n
			}
			return s
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		bytes := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 100), rapid.Custom(func(t *rapid.T) uint64 {
			return l.Free() + rapid.Uint64Range(0, 1).Draw(t, "more than is free")
		}))
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n, b := name.Draw(t, "name"), bytes.Draw(t, "bytes")
				_, taken := held[n]
				used := sum()
				fits := b <= lent-min(lent, used) // nothing more while too much is reserved
				err := l.Reserve(n, b)
				if (err == nil) != (fits && !taken) {
					t.Fatalf("%d with %d of %d used: %v", b, used, lent, err)
				}
				if err == nil {
					held[n] = b
				}
			},
			"release": func(t *rapid.T) {
				n := name.Draw(t, "name")
				l.Release(n)
				delete(held, n)
			},
			"lend": func(t *rapid.T) {
				lent = rapid.Uint64().Draw(t, "lent")
				l.SetLent(lent)
			},
			"": func(t *rapid.T) {
				if l.Reserved() != sum() || len(l.Names()) != len(held) {
					t.Fatalf("%d reserved, want %d", l.Reserved(), sum())
				}
				if used := sum(); l.Free() != lent-min(lent, used) {
					t.Fatalf("%d free of %d with %d used", l.Free(), lent, used)
				}
			},
		})
	})
}

// Many at once get no more than there is, and all of it.
func TestConcurrent(t *testing.T) {
	const each, fit = 3, 10
	l := ledger.New(each*fit + 1)
	var mu sync.Mutex
	got := 0
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			if l.Reserve(fmt.Sprint(i), each) == nil {
				mu.Lock()
				got++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if got != fit || l.Free() != 1 {
		t.Errorf("%d got memory, %d is free", got, l.Free())
	}
	for i := range 100 {
		group.Go(func() { l.Release(fmt.Sprint(i)) })
	}
	group.Wait()
	if l.Reserved() != 0 || len(l.Names()) != 0 {
		t.Errorf("%d reserved after all was released", l.Reserved())
	}
}
