package content

import (
	"encoding/base64"
	"fmt"
	"os"
	"testing"
	"time"
)

// legacyRecord is a file's record as it was before there were sets, damage and
// use.
func legacyRecord(f *file) string {
	pulled := ""
	if f.Pulled {
		pulled = `"pulled":true,`
	}
	return fmt.Sprintf(`{"id":%d,"bytes":%d,"stamp":{"size":%d,"mtime":%d,"inode":%d},"state":"whole",%s"path":"%s","root":"%s"}`,
		f.ID, f.Bytes, f.Stamp.Size, f.Stamp.MTime, f.Stamp.Inode, pulled,
		base64.StdEncoding.EncodeToString([]byte(f.Path)), base64.StdEncoding.EncodeToString(f.Root.Bytes()))
}

// A database of an older relay opens and works.
func TestLegacyDatabase(t *testing.T) {
	s, space := testStore(t)
	own := mustAdd(t, s, newFile(t, randomBytes(2, 500)))
	pulled := pulledFile(t, s)
	for _, f := range s.files {
		space.data[string(keyFile(f.ID))] = legacyRecord(f)
	}
	s = newStore(t, s.opt)
	list := s.List()
	if len(list) != 2 {
		t.Fatalf("listed: %+v", list)
	}
	for _, c := range list {
		if !c.Complete || !c.Used.IsZero() || c.InPlace != (c.CID == own.CID) {
			t.Errorf("%+v", c)
		}
	}
	holds(t, s, own.CID, randomBytes(2, 500))
	holds(t, s, pulled.CID, randomBytes(1, 300))
	if err := s.touch(own.CID); err != nil {
		t.Error(err)
	}
	if c, err := s.Get(own.CID); err != nil || time.Since(c.Used) > time.Hour {
		t.Errorf("used %v %v", c.Used, err)
	}
	if again, hashed := addSees(t, s, own.Path); hashed || !same(again, own) {
		t.Errorf("hashed %v, %+v", hashed, again)
	}
	// Files that were added by themselves stay that as parts of a set.
	copied := own.Path + ".2"
	if err := os.WriteFile(copied, randomBytes(3, 400), 0o600); err != nil {
		t.Fatal(err)
	}
	set := mustAddSet(t, s, own.Path, copied)
	if _, err := s.Remove(set.CID, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(own.CID); err != nil {
		t.Error(err)
	}
	if done, err := s.Erase(); err != nil || done.Files != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if _, err := s.Remove(own.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// An older relay that was killed while it registered other content at a path left
// both records.
func TestLegacyRecordsOfOnePath(t *testing.T) {
	s, space := testStore(t)
	path := newFile(t, randomBytes(1, 300))
	old := mustAdd(t, s, path)
	record := legacyRecord(s.fileByPath(path))
	kept := map[string]string{}
	for k, v := range space.data {
		kept[k] = v
	}
	id := s.fileByPath(path).ID
	writeFile(t, path, randomBytes(2, 300))
	touch(t, path)
	c := mustAdd(t, s, path)
	for k, v := range kept {
		if k[0] != tableLastID {
			space.data[k] = v
		}
	}
	space.data[string(keyFile(id))] = record
	s = newStore(t, s.opt)
	if list := s.List(); len(list) != 1 || list[0].CID != c.CID || !list[0].Complete {
		t.Errorf("listed: %+v, the old one is %s", list, old.CID)
	}
	holds(t, s, c.CID, randomBytes(2, 300))
	if _, err := s.Remove(c.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}
