package content

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipfs/boxo/exchange/offline"
)

// benchFile is unrepeated and in the page cache.
func benchFile(b *testing.B, size int) string {
	path := filepath.Join(b.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for at := 0; at < size; at += 16 << 20 {
		if _, err := f.Write(randomBytes(uint64(at), min(16<<20, size-at))); err != nil {
			b.Fatal(err)
		}
	}
	return path
}

// BenchmarkAdd holds adding a file against one core of sha256 over the same
// cached file, in turn in one run, on a disk in memory:
//
//	TMPDIR=/dev/shm go test -run - -bench Add -benchtime 5x ./store/content
func BenchmarkAdd(b *testing.B) {
	const size = 1 << 30
	path := benchFile(b, size)
	s := realStore(b)
	var ours, base []float64 // seconds
	buf := make([]byte, 1<<20)
	for b.Loop() {
		start := time.Now()
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyBuffer(sha256.New(), struct{ io.Reader }{f}, buf); err != nil {
			b.Fatal(err)
		}
		f.Close()
		base = append(base, time.Since(start).Seconds())
		start = time.Now()
		c, err := s.Add(b.Context(), []string{path}, nil)
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(start).Seconds())
		if _, err := s.Remove(c.CID, false); err != nil {
			b.Fatal(err)
		}
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	b.ReportMetric(median(ours), "s/add")
	b.ReportMetric(median(base), "s/sha256")
	b.ReportMetric(median(base)/median(ours), "x-one-core")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPull is a pull without a network: hash, write, sync, register.
func BenchmarkPull(b *testing.B) {
	const size = 256 << 20
	from := realStore(b)
	held, err := from.Add(b.Context(), []string{benchFile(b, size)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		to := realStore(b)
		if _, err := pullFrom(b.Context(), to, held.CID, size, "m", offline.Exchange(from.Blocks()), nil); err != nil {
			b.Fatal(err)
		}
		if _, err := to.Remove(held.CID, true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRegister400G writes the tables of a 400 GB file whose leaves are known.
func BenchmarkRegister400G(b *testing.B) {
	const size = 400e9
	s := realStore(b)
	leaves := make([]digest, s.layout.leaves(size))
	for i := range leaves {
		leaves[i] = sha256.Sum256(fmt.Append(nil, i))
	}
	for b.Loop() {
		start := time.Now()
		rec := &file{Bytes: size, Path: "/nowhere"}
		if err := s.register(rec, leaves); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/register")
		start = time.Now()
		if _, err := s.storedLeaves(rec.Root, size); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/plan")
		start = time.Now()
		if _, err := s.Remove(rec.Root, false); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/remove")
	}
	b.ReportMetric(0, "ns/op")
}
