package ledger_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/ledger"
)

const gib = 1 << 30

type bytes = map[string]uint64

func TestRefusals(t *testing.T) {
	l := ledger.New()
	l.SetLent(bytes{"RAM": 12 * gib, "CUDA0": 24 * gib})
	if err := l.Reserve("a", bytes{"RAM": 8 * gib, "CUDA0": 20 * gib}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name       string
		lent, need bytes
		text       string
		passing    bool
	}{
		{"not now", bytes{"RAM": 12 * gib}, bytes{"RAM": 5 * gib}, "needs 5.0 GiB on RAM, 4.0 GiB of the 12.0 GiB lent there is free now", true},
		{"never", bytes{"RAM": 12 * gib}, bytes{"RAM": 18 * gib}, "needs 18.0 GiB on RAM, 12.0 GiB is lent there in all", false},
		{"the largest figure", bytes{"RAM": 12 * gib}, bytes{"RAM": math.MaxUint64}, "needs 17179869184.0 GiB on RAM, 12.0 GiB is lent there in all", false},
		{"more reserved than lent", bytes{"RAM": 6 * gib}, bytes{"RAM": 1 << 20}, "needs 1 MiB on RAM, 0 MiB of the 6.0 GiB lent there is free now", true},
		{"nothing lent", bytes{"RAM": 0}, bytes{"RAM": 1 << 20}, "needs 1 MiB on RAM, no memory is lent there", false},
		{"unknown device", bytes{"RAM": 12 * gib}, bytes{"CUDA9": 1 << 20}, "needs 1 MiB on CUDA9, no memory is lent there", false},
		{"nothing known at all", nil, bytes{"RAM": 1 << 20}, "needs 1 MiB on RAM, no memory is lent there", false},
		{"one of two", bytes{"RAM": 12 * gib, "CUDA0": 24 * gib}, bytes{"RAM": gib, "CUDA0": 5 * gib},
			"needs 5.0 GiB on CUDA0, 4.0 GiB of the 24.0 GiB lent there is free now", true},
		{"the worst of two", bytes{"RAM": 12 * gib, "CUDA0": 24 * gib}, bytes{"RAM": 13 * gib, "CUDA0": 5 * gib},
			"needs 13.0 GiB on RAM, 12.0 GiB is lent there in all", false},
		{"the first of two alike", bytes{"RAM": 12 * gib, "CUDA0": 24 * gib}, bytes{"RAM": 5 * gib, "CUDA0": 5 * gib},
			"needs 5.0 GiB on CUDA0, 4.0 GiB of the 24.0 GiB lent there is free now", true},
	} {
		l.SetLent(tc.lent)
		err := l.Reserve("b", tc.need)
		var short *ledger.Shortage
		if !errors.As(err, &short) || err.Error() != tc.text || short.Passing() != tc.passing || short.Reason() != "no_capacity" {
			t.Errorf("%s: %v", tc.name, err)
		}
		if l.Of("b") != nil {
			t.Errorf("%s: some was reserved for what was refused: %v", tc.name, l.Of("b"))
		}
	}
	l.SetLent(bytes{"RAM": 12 * gib, "CUDA0": 24 * gib})
	if err := l.Reserve("a", bytes{"RAM": 1}); err == nil || err.Error() != "memory is reserved for a already" {
		t.Errorf("twice: %v", err)
	}
	l.Release("b") // which has nothing
	want := bytes{"RAM": 8 * gib, "CUDA0": 20 * gib}
	if !maps.Equal(l.Reserved(), want) || !maps.Equal(l.Of("a"), want) || !slices.Equal(l.Names(), []string{"a"}) {
		t.Errorf("%v reserved, %v of a, for %v", l.Reserved(), l.Of("a"), l.Names())
	}
	if free := l.Free(); !maps.Equal(free, bytes{"RAM": 4 * gib, "CUDA0": 4 * gib}) {
		t.Errorf("%v free", free)
	}
}

func TestWhatItTurnedOutToTake(t *testing.T) {
	l := ledger.New()
	l.SetLent(bytes{"RAM": 10})
	l.Adjust("late", bytes{"RAM": 5})
	if l.Of("late") != nil || l.Free()["RAM"] != 10 {
		t.Errorf("%v was reserved for what has no reservation", l.Of("late"))
	}
	for _, name := range []string{"a", "b"} {
		if err := l.Reserve(name, bytes{"RAM": 5}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range l.Names() {
		l.Adjust(name, bytes{"RAM": math.MaxUint64, "CUDA0": 3}) // Two of them are more than can be counted.
	}
	if r := l.Reserved(); r["RAM"] != math.MaxUint64 || r["CUDA0"] != 6 || l.Free()["RAM"] != 0 {
		t.Errorf("%v reserved, %v free", r, l.Free())
	}
	if l.Reserve("c", bytes{"RAM": 1}) == nil {
		t.Error("more was reserved where more than is lent is taken")
	}
	l.Adjust("a", bytes{"RAM": 2})
	l.Release("b")
	if err := l.Reserve("c", bytes{"RAM": 8}); err != nil {
		t.Errorf("what is not taken after all is not to be had: %v", err)
	}
}

// What is handed out and taken in is nobody else's.
func TestMapsAreItsOwn(t *testing.T) {
	l := ledger.New()
	lent, need := bytes{"RAM": 10}, bytes{"RAM": 4}
	l.SetLent(lent)
	if err := l.Reserve("a", need); err != nil {
		t.Fatal(err)
	}
	lent["RAM"], need["RAM"], l.Of("a")["RAM"], l.Reserved()["RAM"], l.Free()["RAM"] = 1, 1, 1, 1, 1
	has := bytes{"RAM": 5}
	l.Adjust("a", has)
	has["RAM"], l.Of("a")["RAM"] = 1, 1
	if l.Of("a")["RAM"] != 5 || l.Free()["RAM"] != 5 {
		t.Errorf("%v of a, %v free", l.Of("a"), l.Free())
	}
}

// TestNeverOver compares the ledger with sums that cannot overflow.
func TestNeverOver(t *testing.T) {
	devices := []string{"CUDA0", "CUDA1", "RAM"}
	rapid.Check(t, func(t *rapid.T) {
		l := ledger.New()
		lent, held := bytes{}, map[string]bytes{}
		sum := func(device string) *big.Int {
			s := new(big.Int)
			for _, h := range held {
				s.Add(s, new(big.Int).SetUint64(h[device]))
			}
			return s
		}
		free := func(device string) uint64 {
			f := new(big.Int).Sub(new(big.Int).SetUint64(lent[device]), sum(device))
			if f.Sign() < 0 {
				return 0
			}
			return f.Uint64()
		}
		name, device := rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.SampledFrom(devices)
		some := func(t *rapid.T, figure *rapid.Generator[uint64]) bytes {
			m := rapid.MapOfN(device, figure, 0, 3).Draw(t, "bytes")
			for d := range m { // as often as not around what is free
				if rapid.Bool().Draw(t, "near") {
					m[d] = free(d) + rapid.Uint64Range(0, 1).Draw(t, "above")
				}
			}
			return m
		}
		figure := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 100))
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n, need := name.Draw(t, "name"), some(t, figure)
				_, taken := held[n]
				fits := true
				for d, b := range need {
					fits = fits && b <= free(d)
				}
				err := l.Reserve(n, need)
				if (err == nil) != (fits && !taken) {
					t.Fatalf("%v with %v of %v: %v", need, held, lent, err)
				}
				var short *ledger.Shortage
				if errors.As(err, &short) && (short.Need <= short.Free || short.Need != need[short.Device] || short.Free != free(short.Device) || short.Lent != lent[short.Device]) {
					t.Fatalf("%+v of %v", short, need)
				}
				if err == nil {
					held[n] = need
				}
			},
			"release": func(t *rapid.T) {
				n := name.Draw(t, "name")
				l.Release(n)
				delete(held, n)
			},
			"adjust": func(t *rapid.T) {
				n, has := name.Draw(t, "name"), some(t, figure)
				l.Adjust(n, has)
				if _, taken := held[n]; taken {
					held[n] = has
				}
			},
			"lend": func(t *rapid.T) {
				lent = rapid.MapOfN(device, figure, 0, 3).Draw(t, "lent")
				l.SetLent(lent)
			},
			"": func(t *rapid.T) {
				if !slices.Equal(l.Names(), slices.Sorted(maps.Keys(held))) {
					t.Fatalf("%v have memory, want those of %v", l.Names(), held)
				}
				reserved, got := l.Reserved(), l.Free()
				for _, d := range devices {
					if s := sum(d); s.IsUint64() && reserved[d] != s.Uint64() || !s.IsUint64() && reserved[d] != math.MaxUint64 {
						t.Fatalf("%d reserved on %s, want %s", reserved[d], d, s)
					}
					if _, known := lent[d]; got[d] != free(d) || known != (slices.Contains(slices.Collect(maps.Keys(got)), d)) {
						t.Fatalf("%v free of %v with %v held", got, lent, held)
					}
				}
			},
		})
	})
}

// Many at once get no more than there is, and all of it.
func TestConcurrent(t *testing.T) {
	const each, fit = 3, 10
	l := ledger.New()
	l.SetLent(bytes{"RAM": each*fit + 1, "CUDA0": 1000})
	var mu sync.Mutex
	got := 0
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			if l.Reserve(fmt.Sprint(i), bytes{"RAM": each, "CUDA0": 1}) == nil {
				mu.Lock()
				got++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if got != fit || !maps.Equal(l.Free(), bytes{"RAM": 1, "CUDA0": 1000 - fit}) {
		t.Errorf("%d got memory, %v is free", got, l.Free())
	}
	for i := range 100 {
		group.Go(func() { l.Release(fmt.Sprint(i)) })
	}
	group.Wait()
	if len(l.Reserved()) != 0 || len(l.Names()) != 0 {
		t.Errorf("%v reserved after all was released", l.Reserved())
	}
}
