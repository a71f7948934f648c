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
	"sync/atomic"
	"time"
)

const (
	// written is the tokens of each answer.
	written = 64
	// letter is a token of the demo model's vocabulary that is text by itself.
	letter = 300
)

// answer is how fast one came, in tokens/s: the prompt until the first token, which
// came at first, and then the others.
type answer struct {
	first           time.Time
	prefill, decode float64
}

var asked atomic.Int64

// short and long are how often a question is repeated in a prompt.
const short, long = 1, 20

// ask has the model write so many tokens, and calls each at every one. No prompt is
// the beginning of another one, so that all of it is read.
func ask(ctx context.Context, door string, length, tokens int, each func(nth int)) (a answer, err error) {
	prompt := fmt.Sprintf("%d. %s", asked.Add(1), strings.Repeat("What is relay? ", length))
	body, err := json.Marshal(map[string]any{"model": name, "prompt": prompt, "max_tokens": tokens, "ignore_eos": true, "temperature": 0,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
		// Random weights would write what is no text.
		"logit_bias": map[string]int{fmt.Sprint(letter): 100}})
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, door+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return a, fmt.Errorf("%s: %s", response.Status, said)
	}
	n, prompted, last := 0, 0, time.Time{}
	for events := bufio.NewScanner(response.Body); events.Scan(); {
		data, ok := strings.CutPrefix(events.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if n != tokens || prompted == 0 {
				return a, fmt.Errorf("%d tokens of %d were written after %d", n, tokens, prompted)
			}
			a.prefill = float64(prompted) / a.first.Sub(began).Seconds()
			a.decode = float64(n-1) / last.Sub(a.first).Seconds()
			return a, nil
		}
		var event struct {
			Choices []struct{ Text string }
			Usage   struct {
				Prompt int `json:"prompt_tokens"`
			}
			Error *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return a, err
		}
		if event.Error != nil {
			return a, errors.New(event.Error.Message)
		}
		prompted = max(prompted, event.Usage.Prompt)
		for _, c := range event.Choices {
			if c.Text == "" {
				continue
			}
			last = time.Now()
			if n++; n == 1 {
				a.first = last
			}
			each(n)
		}
	}
	return a, errors.New("the stream ended before its end")
}

func silent(int) {}
