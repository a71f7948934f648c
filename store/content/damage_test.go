package content

import (
	"bytes"
	"errors"
	"os"
	"testing"

	ipld "github.com/ipfs/go-ipld-format"
)

// Damage that a read has shown stays known until the file is right again.
func TestDamage(t *testing.T) {
	s, space := testStore(t)
	data := randomBytes(1, 500)
	path := newFile(t, data)
	c := mustAdd(t, s, path)
	spoil(t, path, 40)
	opt := s.opt
	s.opt.HashOnRead = true
	if _, err := leafOf(t, s, c, 0); err != nil {
		t.Errorf("a leaf that is right: %v", err)
	}
	if err := s.Check(c.CID); err != nil {
		t.Errorf("nobody has seen it: %v", err)
	}
	_, err := leafOf(t, s, c, 2)
	sentence(t, err, ErrFileChanged, "file_changed", path, "disk may be failing")
	s = newStore(t, opt)
	for range 2 {
		sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", path, "disk may be failing", "add the model again")
		if got, err := s.Get(c.CID); err != nil || got.Complete {
			t.Errorf("%+v %v", got, err)
		}
		if _, err := s.Path(c.CID); !errors.Is(err, ErrFileChanged) {
			t.Errorf("the engine gets it: %v", err)
		}
		// Nothing is handed out unhashed any more, and what is right still is.
		leaves, err := s.storedLeaves(c.CID, 500)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range leaves {
			b, err := s.Blocks().Get(t.Context(), makeCID(d, true))
			if (err == nil) == (i == 2) || (i == 2 && !ipld.IsNotFound(err)) {
				t.Errorf("leaf %d: %v", i, err)
			}
			if err == nil && sumOf(b.RawData()) != d {
				t.Errorf("leaf %d is wrong", i)
			}
			if has, err := s.Blocks().Has(t.Context(), makeCID(d, true)); err != nil || has == (i == 2) {
				t.Errorf("leaf %d: has %v %v", i, has, err)
			}
		}
		s = newStore(t, opt)
	}
	// As it is it is other content; the size, time and inode do not hide that.
	other, hashed := addSees(t, s, path)
	if !hashed || other.CID == c.CID || !other.Complete {
		t.Errorf("hashed %v, %+v", hashed, other)
	}
	if _, err := s.Remove(other.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// Right again under the same stamp, as after a repair, it counts as that when it
// is added, and not before.
func TestDamageRepaired(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s, _ := testStore(t)
		data := randomBytes(1, 500)
		c := mustAdd(t, s, newFile(t, data))
		f := s.fileByPath(c.Path)
		s.noteDamage(f, 0)
		if restart {
			s = newStore(t, s.opt)
		}
		if err := s.Check(c.CID); !errors.Is(err, ErrFileChanged) {
			t.Errorf("not noted: %v", err)
		}
		if again, hashed := addSees(t, s, c.Path); !hashed || !same(again, c) {
			t.Errorf("hashed %v, %+v", hashed, again)
		}
		s = newStore(t, s.opt)
		holds(t, s, c.CID, data)
	}
}

// What was found in a file that has been replaced since says nothing.
func TestDamageOfWhatWasReplaced(t *testing.T) {
	s, _ := testStore(t)
	path := newFile(t, randomBytes(1, 500))
	mustAdd(t, s, path)
	old := s.fileByPath(path)
	touch(t, path)
	c := mustAdd(t, s, path)
	s.noteDamage(old, 0)
	if err := s.Check(c.CID); err != nil {
		t.Error(err)
	}
	if _, err := s.Remove(c.CID, true); err != nil {
		t.Fatal(err)
	}
	s.noteDamage(old, 0)
	if list := s.List(); len(list) > 0 {
		t.Errorf("it came back: %+v", list)
	}
}

// On a full disk damage is known until the next start, which is better than not.
func TestDamageOnAFullDisk(t *testing.T) {
	s, space := testStore(t)
	c := mustAdd(t, s, newFile(t, randomBytes(1, 500)))
	space.refuse = func() error { return errors.New("full") }
	s.noteDamage(s.fileByPath(c.Path), 0)
	if err := s.Check(c.CID); !errors.Is(err, ErrFileChanged) {
		t.Errorf("forgotten: %v", err)
	}
}

// A damaged part is that of its set, and a whole copy elsewhere stands in for it.
func TestDamageInASet(t *testing.T) {
	s, _ := testStore(t)
	c := mustAddSet(t, s, newSetFiles(t, t.TempDir(), "a", "b")...)
	s.noteDamage(s.fileByPath(c.Files[1]), 0)
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", c.Files[1], "file 2 of 2", "disk may be failing")
	copied := newSetFiles(t, t.TempDir(), "a", "b")
	mustAddSet(t, s, copied...)
	if got, err := s.Get(c.CID); err != nil || !got.Complete || got.Path != copied[0] {
		t.Errorf("%+v %v", got, err)
	}
	part := s.fileByPath(copied[1]).Root
	if got, err := readAll(s, part); err != nil || !bytes.Equal(got, randomBytes(2, 301)) {
		t.Errorf("the part: %v", err)
	}
}

// Damage that was seen under one name of a file is not glossed over by another.
func TestDamageUnderASecondName(t *testing.T) {
	needsInodes(t)
	s, _ := testStore(t)
	one := newFile(t, randomBytes(1, 5000))
	two := one + ".2"
	if err := os.Link(one, two); err != nil {
		t.Fatal(err)
	}
	c := mustAdd(t, s, one)
	mustAdd(t, s, two)
	spoil(t, one, 40)
	s.noteDamage(s.fileByPath(one), 32)
	again, hashed := addSees(t, s, one)
	if !hashed || again.CID == c.CID {
		t.Errorf("hashed %v, %+v", hashed, again)
	}
}
