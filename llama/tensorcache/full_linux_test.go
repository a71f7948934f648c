package tensorcache

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A full disk is said to be one, leaves nothing of the tensor, and takes what fits.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("no small disk (%v): run as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	c := open(t, dir, Options{})
	k0, d0 := tensor(0, 2<<20)
	fill(t, c, k0, d0)
	k1, d1 := tensor(1, 3<<20)
	if err := c.Fill(t.Context(), k1, bytes.NewReader(d1)); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if sound(t, c); !c.Has(k0) || c.Has(k1) || c.Bytes() != k0.Bytes {
		t.Errorf("%v %v, %d bytes", c.Has(k0), c.Has(k1), c.Bytes())
	}
	if freed, err := c.Sweep(0); freed != k0.Bytes || err != nil {
		t.Errorf("%d freed: %v", freed, err)
	}
	fill(t, c, k1, d1)
	sound(t, c)
}
