package sim

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// BenchmarkStreams is a thousand streams at once, as fast as they go, with what
// relay asks an engine for, over loopback; client and engine in one process.
func BenchmarkStreams(b *testing.B) {
	const streams, tokens = 1000, 100
	s, err := New(Options{Slots: streams})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(b.Context()) }()
	<-s.Ready()
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("hello ", 170) + `"}],"max_tokens":100,"ignore_eos":true,"stream":true,` +
		`"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true}`
	b.ReportAllocs()
	for b.Loop() {
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				r, err := http.NewRequest(http.MethodPost, "http://"+s.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				r.Close = true // the engine would close the connection, too
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(b.N)*streams*tokens/b.Elapsed().Seconds(), "events/s")
}
