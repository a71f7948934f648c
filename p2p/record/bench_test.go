package record_test

import (
	"fmt"
	"testing"

	"relay/p2p/record"
)

func BenchmarkOpen(b *testing.B) {
	raw := seal(b, "ann", note("a", 1, "the text of a note, some forty bytes long")).Raw
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := record.Open(raw); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOffer merges newer and newer records of a thousand keys.
func BenchmarkOffer(b *testing.B) {
	tab := table(b, "me", newDisk())
	fill(b, 1000, tab)
	batch := make([]record.Signed, 0, 1000)
	version := uint64(1)
	next := 0
	for b.Loop() {
		if next == len(batch) {
			b.StopTimer()
			batch, next, version = batch[:0], 0, version+1
			for i := range 1000 {
				batch = append(batch, seal(b, "ann", note(fmt.Sprintf("n%06d", i), version, "the text of a note")))
			}
			b.StartTimer()
		}
		if out, err := tab.Offer(batch[next]); out != record.Fresh {
			b.Fatal(out, err)
		}
		next++
	}
}

// BenchmarkOfferKnown is what gossip does most.
func BenchmarkOfferKnown(b *testing.B) {
	tab := table(b, "me", newDisk())
	fill(b, 1000, tab)
	s, _ := tab.Get("note", "n000500")
	for b.Loop() {
		if out, _ := tab.Offer(s); out != record.Same {
			b.Fatal(out)
		}
	}
}

// BenchmarkRoot is the price of a change in the digest of a thousand records.
func BenchmarkRoot(b *testing.B) {
	tab := table(b, "me", newDisk())
	fill(b, 1000, tab)
	for version := uint64(2); b.Loop(); version++ {
		b.StopTimer()
		offer(b, tab, seal(b, "ann", note("n000500", version, "x")), record.Fresh)
		b.StartTimer()
		tab.Root()
	}
}

// BenchmarkSync compares two tables of a thousand records that differ in so
// many; B/sync is what crosses the stream.
func BenchmarkSync(b *testing.B) {
	for _, differ := range []int{0, 1, 10, 1000} {
		b.Run(fmt.Sprintf("differ=%d", differ), func(b *testing.B) {
			one := table(b, "one", newDisk())
			fill(b, 1000, one)
			two := table(b, "two", newDisk())
			fill(b, 1000-differ, two)
			if differ == 0 {
				var bytes int64
				for b.Loop() {
					s, _ := mustSync(b, one, two)
					bytes = s.BytesIn + s.BytesOut
				}
				b.ReportMetric(float64(bytes), "B/sync")
				return
			}
			var bytes int64
			for b.Loop() {
				b.StopTimer()
				two := table(b, "two", newDisk())
				for _, s := range one.All()[:1000-differ] {
					two.Offer(s)
				}
				b.StartTimer()
				s, _ := mustSync(b, one, two)
				bytes = s.BytesIn + s.BytesOut
			}
			b.ReportMetric(float64(bytes), "B/sync")
		})
	}
}
