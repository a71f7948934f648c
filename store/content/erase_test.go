package content

import (
	"os"
	"slices"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// Erasing takes what was pulled, finished or not, and nothing else: not what was
// registered in place, nor what somebody put where a pulled file was.
func TestErase(t *testing.T) {
	var held []Content
	var holders []*peer
	to, space := testStore(t)
	for i := range 4 {
		p, c := holder(t, randomBytes(uint64(i+1), 300))
		holders, held = append(holders, p), append(held, c)
	}
	for i, name := range []string{"pulled", "changed", "gone"} {
		if _, err := to.Pull(t.Context(), held[i].CID, 300, name, holders[i], nil); err != nil {
			t.Fatal(err)
		}
	}
	// Unfinished: its holder has not all of it.
	holders[3].reply = func(n int, b blocks.Block) []blocks.Block {
		if n > 5 {
			return nil
		}
		return []blocks.Block{b}
	}
	if _, err := to.Pull(t.Context(), held[3].CID, 300, "unfinished", holders[3], nil); err == nil {
		t.Fatal("this pull was to fail")
	}
	changed, _ := to.Get(held[1].CID)
	gone, _ := to.Get(held[2].CID)
	writeFile(t, changed.Path, []byte("mine now"))
	if err := os.Remove(gone.Path); err != nil {
		t.Fatal(err)
	}
	// The same content as one that was pulled, and another, in their owner's place.
	both := newFile(t, randomBytes(1, 300))
	own := newFile(t, randomBytes(9, 300))
	mustAdd(t, to, both)
	mustAdd(t, to, own)

	done, err := to.Erase()
	if err != nil || done.Files != 1 || done.Unfinished != 1 || done.Bytes != 300 || !slices.Equal(done.Kept, []string{changed.Path}) {
		t.Errorf("%+v, %v", done, err)
	}
	if left := files(t, to.dir); len(left) != 1 {
		t.Errorf("in the models folder: %q", left)
	}
	holds(t, to, held[0].CID, randomBytes(1, 300))
	if list := to.List(); len(list) != 2 || !list[0].InPlace || !list[1].InPlace {
		t.Errorf("still known: %+v", list)
	}
	if list, err := to.Partials(); err != nil || len(list) > 0 {
		t.Errorf("unfinished: %v %v", list, err)
	}
	if again, err := to.Erase(); err != nil || again.Files+again.Unfinished+len(again.Kept) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	for _, c := range to.List() {
		if err := to.Remove(c.CID, false); err != nil {
			t.Fatal(err)
		}
	}
	if keys := space.leftovers(); len(keys) > 0 {
		t.Errorf("left in the tables: %q", keys)
	}
}
