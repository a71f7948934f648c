package scheduler

import (
	"bytes"
	"testing"

	"relay/llama/tensorcache"
)

// Layers that no group uses go first when a disk is pruned; what may stay is of all
// together, and a dry run says the same and deletes nothing.
func TestPruneTensors(t *testing.T) {
	cache, err := tensorcache.Open(t.TempDir(), tensorcache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := func(i int64) tensorcache.Key { return tensorcache.Key{File: "f", Offset: i, Bytes: 1000} }
	for i := range int64(3) {
		if err := cache.Fill(t.Context(), key(i), bytes.NewReader(bytes.Repeat([]byte{byte(i)}, 1000))); err != nil {
			t.Fatal(err)
		}
	}
	release, _ := cache.Lease([]tensorcache.Key{key(2)})
	defer release()
	most := uint64(1500)
	for _, step := range []struct {
		o           PruneOptions
		freed, left uint64
		stays       int64
	}{
		{PruneOptions{DryRun: true}, 2000, 0, 3000},
		{PruneOptions{MaxSize: &most, DryRun: true}, 500, 0, 3000},
		{PruneOptions{MaxSize: ptr(uint64(5000))}, 0, 3000, 3000},
		{PruneOptions{MaxSize: ptr(uint64(1000))}, 1000, 0, 2000},
		{PruneOptions{}, 1000, 0, 1000},
		{PruneOptions{}, 0, 0, 1000},
	} {
		freed := step.o.pruneTensors(cache)
		if freed.Bytes != step.freed || cache.Bytes() != step.stays || step.o.MaxSize != nil && *step.o.MaxSize != step.left {
			t.Errorf("%+v: %d freed, %d stay, %v left to others", step.o, freed.Bytes, cache.Bytes(), step.o.MaxSize)
		}
	}
}
