package p2p

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// BenchmarkRange sends 1 GiB in ranges of 32 MiB between two hosts on loopback,
// and then the same bytes on one plain stream of libp2p, which nothing can be
// faster than.
func BenchmarkRange(b *testing.B) {
	for i, transport := range []string{"tcp", "quic"} {
		for _, piece := range []int{256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/read=%dK", transport, piece>>10), func(b *testing.B) {
				benchmarkRange(b, bothTransports[i], piece)
			})
		}
	}
}

func benchmarkRange(b *testing.B, transport string, piece int) {
	const size, part = 1 << 30, 32 << 20
	data := bytes.Repeat([]byte("0123456789abcdef"), part/16)
	root := testRoot("big")
	attic, den := pairOn(b, transport, filesOf{open: func(_ context.Context, _ request) (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(data)), part, nil
	}})
	attic.host.Host.SetStreamHandler("/test/raw/1", func(s network.Stream) {
		defer s.Close()
		for range size / part {
			for rest := data; len(rest) > 0; rest = rest[256<<10:] {
				if _, err := s.Write(rest[:256<<10]); err != nil {
					return
				}
			}
		}
	})
	into := make([]byte, piece)
	drain := func(r io.Reader, want int64) {
		var got int64
		for {
			n, err := r.Read(into)
			if got += int64(n); err != nil {
				if err != io.EOF || got != want {
					b.Fatalf("%d bytes, %v", got, err)
				}
				return
			}
		}
	}
	ours := func() float64 {
		began := time.Now()
		for from := int64(0); from < size; from += part {
			r, err := den.Range(b.Context(), attic.Self(), root, from, from+part, false)
			if err != nil {
				b.Fatal(err)
			}
			drain(r, part)
			_ = r.Close()
		}
		return size / time.Since(began).Seconds()
	}
	base := func() float64 {
		began := time.Now()
		s, err := den.host.Host.NewStream(b.Context(), attic.Self(), "/test/raw/1")
		if err != nil {
			b.Fatal(err)
		}
		defer s.Reset()
		drain(s, size)
		return size / time.Since(began).Seconds()
	}
	var speeds [][2]float64
	for b.Loop() {
		speeds = append(speeds, [2]float64{ours(), base()})
	}
	slices.SortFunc(speeds, func(x, y [2]float64) int { return cmp.Compare(x[0]/x[1], y[0]/y[1]) })
	median := speeds[len(speeds)/2]
	b.ReportMetric(median[0]/median[1], "ratio")
	b.ReportMetric(median[0]/1e6, "ours-MB/s")
	b.ReportMetric(median[1]/1e6, "base-MB/s")
}
