package figure

import (
	"io"
	"math/rand/v2"
	"os"

	"relay/llama/demo"
)

// WriteLarge makes a model's file of that many bytes: the demo model with random
// bytes behind it, so that no two blocks are the same, nor those of two seeds.
func WriteLarge(path string, bytes int64, seed uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(demo.GGUF()); err != nil {
		return err
	}
	var key [32]byte
	key[0] = byte(seed)
	_, err = io.CopyN(f, rand.NewChaCha8(key), bytes-demo.Size())
	return err
}
