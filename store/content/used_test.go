package content

import (
	"errors"
	"testing"
	"time"
)

// atTime gives a store a clock, which starts at the given time.
func atTime(opt *Options, start time.Time) *time.Time {
	now := start
	opt.now = func() time.Time { return now }
	return &now
}

func TestUsed(t *testing.T) {
	space := newMemSpace()
	opt := testOptions(t, space)
	start := time.Unix(1_800_000_000, 5)
	now := atTime(&opt, start)
	s := newStore(t, opt)
	path := newFile(t, randomBytes(7, 300))
	file := mustAdd(t, s, path)
	set := mustAddSet(t, s, newSetFiles(t, t.TempDir(), "a", "b")...)
	used := func(c Content, want time.Time) {
		t.Helper()
		for range 2 {
			if got, err := s.Get(c.CID); err != nil || !got.Used.Equal(want) {
				t.Errorf("used %v %v, want %v", got.Used, err, want)
			}
			s = newStore(t, opt)
		}
	}
	for _, c := range []Content{file, set} {
		if !c.Used.Equal(start) {
			t.Errorf("added at %v", c.Used)
		}
		*now = start.Add(59 * time.Second)
		writes := space.count
		if err := s.touch(c.CID); err != nil {
			t.Error(err)
		}
		if space.count != writes {
			t.Error("two writes within a minute")
		}
		used(c, start)
		*now = start.Add(time.Minute)
		if err := s.touch(c.CID); err != nil {
			t.Error(err)
		}
		if space.count != writes+1 {
			t.Errorf("%d writes", space.count-writes)
		}
		used(c, start.Add(time.Minute))
	}
	// A clock that was set back.
	*now = start.Add(-time.Hour)
	if err := s.touch(file.CID); err != nil {
		t.Error(err)
	}
	used(file, *now)
	// Adding again is a use, of the copy of it too.
	*now = start.Add(time.Hour)
	mustAdd(t, s, path)
	used(file, *now)
	*now = start.Add(2 * time.Hour)
	mustAdd(t, s, newFile(t, randomBytes(7, 300)))
	used(file, *now)
	mustAddSet(t, s, set.Files...)
	used(set, *now)
	sentence(t, s.touch(makeCID(digest{1}, true)), ErrNotFound, "not_found")
}

// While tables are written, a use does not wait.
func TestTouchDoesNotWait(t *testing.T) {
	opt := testOptions(t, newMemSpace())
	now := atTime(&opt, time.Unix(1_800_000_000, 0))
	s := newStore(t, opt)
	c := mustAdd(t, s, newFile(t, randomBytes(1, 300)))
	*now = now.Add(time.Hour)
	s.tables.Lock()
	err := s.touch(c.CID)
	s.tables.Unlock()
	if err != nil {
		t.Error(err)
	}
	if err := s.touch(c.CID); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(c.CID); err != nil || !got.Used.Equal(*now) {
		t.Errorf("used %v %v", got.Used, err)
	}
}

func TestClaim(t *testing.T) {
	opt := testOptions(t, newMemSpace())
	now := atTime(&opt, time.Unix(1_800_000_000, 0))
	s := newStore(t, opt)
	set := mustAddSet(t, s, newSetFiles(t, t.TempDir(), "a", "b")...)
	*now = now.Add(time.Hour)
	part := s.fileByPath(set.Files[1]).Root
	for _, c := range []error{s.claim(part), s.claim(part), s.claim(set.CID)} {
		if c != nil {
			t.Error(c)
		}
	}
	s = newStore(t, opt)
	list := s.List()
	if len(list) != 2 || !list[0].Used.Equal(*now) || !list[1].Used.Equal(*now) {
		t.Errorf("listed: %+v", list)
	}
	if _, err := s.Remove(set.CID, true); err != nil {
		t.Fatal(err)
	}
	if list := s.List(); len(list) != 1 || list[0].CID != part {
		t.Errorf("listed: %+v", list)
	}
	if err := s.claim(set.CID); !errors.Is(err, ErrNotFound) {
		t.Errorf("claimed what is not here: %v", err)
	}
}
