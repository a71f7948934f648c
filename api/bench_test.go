package api

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
)

// BenchmarkDoor measures what the door adds to asking the engine itself, and
// what a hop adds to that, over a new TCP connection each time and over kept
// libp2p streams, all on loopback: medians of requests that take
// turns, so that all meet the same machine. The engine takes no time to think.
//
//	go test ./api -run '^$' -bench Door -benchtime 2000x
func BenchmarkDoor(b *testing.B) {
	for _, c := range []struct {
		name, body string
	}{
		{"whole", `{"model":"tiny","prompt":"a","max_tokens":1,"ignore_eos":true}`},
		{"stream64", `{"model":"tiny","prompt":"a","max_tokens":64,"ignore_eos":true,"stream":true}`},
		{"body1MiB", `{"model":"tiny","prompt":[1,20],"max_tokens":1,"ignore_eos":true,"user":"` + strings.Repeat("y", 1<<20) + `"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			here := newPeer(b, "here", sim.Options{}, nil)
			entrance, _ := newMesh(b, []sim.Options{{}}, nil)
			// The same hop as it is in a mesh, over libp2p on TCP.
			const address = "/ip4/127.0.0.1/tcp/0"
			inMesh, serving := newMesh(b, []sim.Options{{}}, nil)
			hopOver(b, newHost(b, address), newHost(b, address), inMesh, serving[0], false)
			urls := []string{"http://" + here.engine.Addr().String(), here.url, entrance.url, inMesh.url}
			client := &http.Transport{}
			defer client.CloseIdleConnections()
			ask := func(url string) (first, whole time.Duration) {
				r, err := http.NewRequestWithContext(b.Context(), "POST", url+"/v1/completions", strings.NewReader(c.body))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+testKey)
				r.Header["Idempotency-Key"] = nil // the engine closes kept connections
				r.Close = url == urls[0]
				began := time.Now()
				resp, err := client.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				defer resp.Body.Close()
				var one [1]byte
				if _, err := io.ReadFull(resp.Body, one[:]); err != nil {
					b.Fatal(err)
				}
				first = time.Since(began)
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					b.Fatal(resp.StatusCode, err)
				}
				return first, time.Since(began)
			}
			var first, whole [4][]time.Duration
			for b.Loop() {
				for i, url := range urls {
					f, w := ask(url)
					first[i], whole[i] = append(first[i], f), append(whole[i], w)
				}
			}
			median := func(d []time.Duration) float64 {
				slices.Sort(d)
				return float64(d[len(d)/2].Nanoseconds()) / 1000
			}
			for i, name := range []string{"direct", "door", "tcphop", "p2phop"} {
				b.ReportMetric(median(first[i]), name+"-first-us")
				b.ReportMetric(median(whole[i]), name+"-whole-us")
				if i > 0 {
					base, ours := median(whole[0]), median(whole[i])
					fmt.Printf("BENCH name=%s_%s ratio=%.2f ours=%.0f base=%.0f unit=us\n", name, c.name, ours/base, ours, base)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
