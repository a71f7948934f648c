package tensorcache

import (
	"bytes"
	"testing"
)

// BenchmarkFill is how fast a tensor is hashed and written.
func BenchmarkFill(b *testing.B) {
	c := open(b, b.TempDir(), Options{})
	k, data := tensor(0, 64<<20)
	b.SetBytes(k.Bytes)
	for b.Loop() {
		if err := c.Fill(b.Context(), k, bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Sweep(0); err != nil {
			b.Fatal(err)
		}
	}
}
