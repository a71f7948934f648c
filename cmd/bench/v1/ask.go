//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// body is a request for a streamed answer of some tokens, with a prompt of some
// bytes.
func body(prompt, tokens int) []byte {
	b, err := json.Marshal(map[string]any{
		"model": name, "stream": true, "max_tokens": tokens, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": strings.Repeat("All that is gold does not glitter. ", prompt/35+1)[:prompt]}},
	})
	if err != nil {
		panic(err) // There is nothing in it that could not be written.
	}
	return b
}

// ask sends one request and reads the answer to its end. It returns the time from
// the request's beginning to the first byte of the answer's body. each, unless nil,
// sees every event's data and when it came.
func (w *way) ask(ctx context.Context, body []byte, each func(data []byte, at time.Time)) (first time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := w.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return 0, fmt.Errorf("%s: %s: %s", w.name, response.Status, said)
	}
	whole := false
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadSlice('\n')
		if first == 0 && err == nil {
			first = time.Since(began)
		}
		data, isData := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case err == io.EOF && whole:
			return first, nil
		case err != nil:
			return first, errors.Join(err, errors.New(w.name+": the stream broke off"))
		case bytes.HasPrefix(data, []byte("[DONE]")):
			whole = true
		case isData && bytes.HasPrefix(data, []byte(`{"error"`)):
			return first, fmt.Errorf("%s: %s", w.name, data)
		case isData && each != nil:
			each(data, time.Now())
		}
	}
}

// crowd has so many clients ask, who begin spread over a time, and returns the
// times to the first byte, in ms.
func (w *way) crowd(ctx context.Context, clients int, spread time.Duration, body []byte) ([]float64, error) {
	var mu sync.Mutex
	var firsts []float64
	var errs []error
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			if pass(ctx, spread*time.Duration(i)/time.Duration(clients)) != nil {
				return
			}
			first, err := w.ask(ctx, body, nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
			firsts = append(firsts, ms(first))
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return nil, fmt.Errorf("%d of %d requests failed, the first: %w", len(errs), clients, errs[0])
	}
	return firsts, ctx.Err()
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
