package llama

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// The time between two looks at an engine that loads: small models are ready in
// milliseconds.
const (
	pollFirst = 10 * time.Millisecond
	pollLast  = 250 * time.Millisecond
)

// errNotReady: the engine lives, but has not produced a token.
var errNotReady = errors.New("it has not answered yet")

// awaitReady waits until the engine has produced something real. It returns
// errNotReady, with what was seen last, where ctx is over first.
func (p *Process) awaitReady(ctx context.Context, kind Kind) error {
	wait := pollFirst
	seen := errors.New("it does not listen")
	for {
		err := p.healthy(ctx)
		if err == nil {
			seen = errors.New("it is healthy, but does not answer a first request")
			err = p.trial(ctx, kind)
		}
		var opErr *net.OpError
		switch {
		case err == nil || errors.Is(err, ErrEngine):
			return err
		case ctx.Err() == nil && !errors.As(err, &opErr):
			seen = err
		}
		timer := time.NewTimer(wait)
		select {
		case <-p.Done():
			timer.Stop()
			return p.Err()
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", errNotReady, seen)
		case <-timer.C:
		}
		wait = min(2*wait, pollLast)
	}
}

// healthy asks the engine whether its model is loaded.
func (p *Process) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, _, err := p.ask(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("it is loading the model (%d)", status)
	}
	return nil
}

// trial has the engine do the least piece of what it is for: an engine can be
// healthy and never produce a token. The error is ErrEngine where it answered
// what it must not.
func (p *Process) trial(ctx context.Context, kind Kind) error {
	var path string
	var body any
	var check func([]byte) bool
	switch kind {
	case KindEmbed:
		path, body, check = "/v1/embeddings", map[string]any{"input": "a"}, hasEmbedding
	case KindRerank:
		path, body, check = "/v1/rerank", map[string]any{"query": "a", "documents": []string{"a"}}, hasScore
	default:
		path, check = "/completion", hasToken
		body = map[string]any{"prompt": "a", "n_predict": 1, "ignore_eos": true, "cache_prompt": false, "temperature": 0}
	}
	status, answer, err := p.ask(ctx, http.MethodPost, path, body)
	switch {
	case err != nil:
		return err
	case status == http.StatusServiceUnavailable: // not quite loaded
		return errors.New("it is healthy, but takes no requests yet")
	case status != http.StatusOK && strings.HasPrefix(refusal(answer), unparsed):
		return nil // It has computed.
	case status != http.StatusOK:
		return fmt.Errorf("%w: it is healthy, but answers a first request with %d: %s", ErrEngine, status, refusal(answer))
	case !check(answer):
		return fmt.Errorf("%w: it is healthy, but its first answer has nothing in it", ErrEngine)
	}
	return nil
}

// unparsed is how llama.cpp begins to say that a token which the model gave is no text
// by itself, such as one byte of a character of several.
const unparsed = "The model produced output that does not match"

func hasToken(answer []byte) bool {
	var a struct {
		Tokens int `json:"tokens_predicted"`
	}
	return json.Unmarshal(answer, &a) == nil && a.Tokens > 0
}

func hasEmbedding(answer []byte) bool {
	var a struct {
		Data []struct {
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	return json.Unmarshal(answer, &a) == nil && len(a.Data) > 0 && len(a.Data[0].Embedding) > 0
}

func hasScore(answer []byte) bool {
	var a struct {
		Results []struct {
			Score *float64 `json:"relevance_score"`
		} `json:"results"`
	}
	return json.Unmarshal(answer, &a) == nil && len(a.Results) > 0 && a.Results[0].Score != nil
}

// refusal is the message in an engine's error answer.
func refusal(answer []byte) string {
	var a struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &a) == nil && a.Error.Message != "" {
		return printable(a.Error.Message, 200)
	}
	return "no reason given"
}

// ask sends one small request to the engine.
func (p *Process) ask(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var r io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, r)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.client.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
}
