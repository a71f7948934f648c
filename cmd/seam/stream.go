//go:build linux

package seam

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Seam is where a stream was continued, as the client was told.
type Seam struct {
	// Tokens is how many were delivered before it, By what they were continued from:
	// ids or text.
	Tokens   int
	From, To string
	By       string
	// Gap is the time from the last piece before it to the first one after it.
	Gap time.Duration

	at int // The pieces before it.
}

// piece is an event with something of the answer in it.
type piece struct {
	at     time.Time
	text   string
	ids    []int    // Of a chat with logprobs.
	tokens []string // Of a text with logprobs.
	offset []int
}

// Stream is an answer as the client had it.
type Stream struct {
	Question Question
	// Request is its id, Peer the id of the one that served its beginning.
	Request, Peer string
	Seams         []Seam
	Text, Finish  string
	Prompt        int // Tokens, by the usage.
	Completion    int
	// Longest is the longest time between two pieces, but those with a seam between them.
	Longest time.Duration
	// Broken is why it is not a complete stream of one answer.
	Broken error

	pieces []piece
}

// clientOf reaches the entrance from its own machine. The system is to hold back as
// little as it can of what the client has not read.
func (m *Mesh) clientOf() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			if m.lab != nil {
				c, err = m.lab.Dial(ctx, entrance, address)
			} else {
				var d net.Dialer
				c, err = d.DialContext(ctx, network, address)
			}
			if tcp, ok := c.(*net.TCPConn); ok && err == nil {
				err = tcp.SetReadBuffer(4096)
			}
			return c, err
		},
	}}
}

var continued = regexp.MustCompile(`^: relay continued from=(\S+) to=(\S+) tokens=(\d+) by=(ids|text)$`)

// ask sends a question to the entrance and reads the answer to its end. began is told
// by whom it is served, before the first piece; each is called after every piece, from
// the one that reads.
func (m *Mesh) ask(ctx context.Context, q Question, began func(peer string), each func(pieces int)) Stream {
	s := Stream{Question: q}
	s.Broken = m.read(ctx, &s, began, each)
	return s
}

func (m *Mesh) read(ctx context.Context, s *Stream, began func(peer string), each func(pieces int)) error {
	q := s.Question
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
	defer cancel()
	body, err := q.body()
	if err != nil {
		return err
	}
	response, err := m.post(ctx, q.path(), body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	s.Request, s.Peer = response.Header.Get("X-Request-Id"), response.Header.Get("X-Relay-Peer")
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s: %s", response.Status, said)
	}
	began(s.Peer)
	var kept constant
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the stream broke off after %d pieces: %w", len(s.pieces), err)
		}
		line = strings.TrimSuffix(line, "\n")
		if m := continued.FindStringSubmatch(line); m != nil {
			tokens, _ := strconv.Atoi(m[3])
			s.Seams = append(s.Seams, Seam{From: m[1], To: m[2], Tokens: tokens, By: m[4], at: len(s.pieces)})
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return errors.Join(s.end(response, lines), kept.complete())
		}
		new, err := s.event([]byte(data), &kept)
		if err != nil {
			return err
		}
		if new {
			each(len(s.pieces))
		}
	}
}

// post sends a request to the entrance.
func (m *Mesh) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Entrance.Door+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	return m.client.Do(r)
}

// first is how long a client waits for the first piece of what comes after a prompt and
// some tokens.
func (m *Mesh) first(ctx context.Context, prompt string, ids []int) (time.Duration, error) {
	body, err := json.Marshal(map[string]any{"model": model, "prompt": behind(prompt, ids), "max_tokens": 2, "temperature": 0, "ignore_eos": true,
		"cache_prompt": false, "stream": true})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	response, err := m.post(ctx, "/v1/completions", body)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	line, err := lines.ReadString('\n')
	took := time.Since(began)
	if err != nil || !strings.HasPrefix(line, "data: {\"choices\"") {
		return 0, fmt.Errorf("asked for what comes after %d tokens, the entrance says %s: %s %v", len(ids), response.Status, line, err)
	}
	_, err = io.Copy(io.Discard, lines)
	return took, err
}

// streamPatience bounds one stream.
const streamPatience = 2 * time.Minute

// constant is what all events of a stream have in common, and what comes once.
type constant struct {
	id, model, print        string
	first, created          int64
	roles, finishes, usages int
}

func (k *constant) complete() error {
	if k.finishes != 1 || k.usages != 1 || k.roles > 1 {
		return fmt.Errorf("a role came %d times, a reason for the end %d times, the usage %d times", k.roles, k.finishes, k.usages)
	}
	return nil
}

// event takes one in, and says whether it has a piece of the answer.
func (s *Stream) event(data []byte, kept *constant) (bool, error) {
	now := time.Now()
	var is struct {
		ID, Model string
		Created   int64
		Print     string `json:"system_fingerprint"`
		Choices   []struct {
			Text  string
			Delta struct {
				Role    string
				Content *string
			}
			Finish   *string `json:"finish_reason"`
			Logprobs *struct {
				Content []struct{ ID int }
				Tokens  []string
				Offsets []int `json:"text_offset"`
			}
		}
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
		Timings json.RawMessage
		Error   *struct{ Message, Code string }
	}
	if err := json.Unmarshal(data, &is); err != nil {
		return false, fmt.Errorf("%w: %s", err, data)
	}
	if is.Error != nil {
		return false, fmt.Errorf("after %d pieces: %s: %s", len(s.pieces), is.Error.Code, is.Error.Message)
	}
	if kept.id == "" {
		kept.id, kept.model, kept.print, kept.first = is.ID, is.Model, is.Print, is.Created
	}
	// An engine's time goes on from event to event; what is gone on with has the first one.
	if is.ID != kept.id || is.Model != kept.model || is.Print != kept.print || is.Created < kept.created && is.Created != kept.first {
		return false, fmt.Errorf("after %d pieces the stream is another one, not %+v: %s", len(s.pieces), *kept, data)
	}
	kept.created = is.Created
	if is.Timings != nil {
		return false, fmt.Errorf("timings, which nobody asked for: %s", data)
	}
	if is.Usage != nil {
		kept.usages++
		s.Prompt, s.Completion = is.Usage.Prompt, is.Usage.Completion
	}
	new := false
	for _, c := range is.Choices {
		p := piece{at: now, text: c.Text}
		if c.Delta.Role != "" {
			kept.roles++
		}
		if c.Delta.Content != nil {
			p.text = *c.Delta.Content
		}
		if c.Finish != nil {
			kept.finishes++
			s.Finish = *c.Finish
		}
		if c.Logprobs != nil {
			if !s.Question.Logprobs {
				return false, fmt.Errorf("logprobs, which nobody asked for: %s", data)
			}
			for _, t := range c.Logprobs.Content {
				p.ids = append(p.ids, t.ID)
			}
			p.tokens, p.offset = c.Logprobs.Tokens, c.Logprobs.Offsets
		}
		if p.text == "" && p.ids == nil && p.tokens == nil {
			continue
		}
		s.took(p)
		new = true
	}
	return new, nil
}

func (s *Stream) took(p piece) {
	s.Text += p.text
	if n := len(s.pieces); n > 0 {
		gap := p.at.Sub(s.pieces[n-1].at)
		if last := len(s.Seams) - 1; last >= 0 && s.Seams[last].at == n {
			s.Seams[last].Gap = gap
		} else {
			s.Longest = max(s.Longest, gap)
		}
	}
	s.pieces = append(s.pieces, p)
}

// end reads what comes after the last event: nothing, and the trailer.
func (s *Stream) end(response *http.Response, rest io.Reader) error {
	more, err := io.ReadAll(rest)
	if err != nil || len(bytes.TrimSpace(more)) > 0 {
		return fmt.Errorf("after the end: %q, %v", more, err)
	}
	want := ""
	if len(s.Seams) > 0 {
		want = strconv.Itoa(len(s.Seams))
	}
	if got := response.Trailer.Get("X-Relay-Continued"); got != want {
		return fmt.Errorf("the trailer says %q, and %d comments came", got, len(s.Seams))
	}
	return nil
}
