package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// kindsOfDialects has the other dialects' streams lose their peer: they are rendered
// from the stream that goes on, and their own events stay in order.
func kindsOfDialects(t *testing.T, m *kindsMesh, w *walked) {
	want := w.text(w.plain, len(w.plain))
	tokens := len(w.plain) + 1
	t.Run("responses", func(t *testing.T) {
		h, err := m.cut(t.Context(), "/v1/responses", map[string]any{"model": "walk", "stream": true, "temperature": 0, "input": "hello"}, 20)
		if err != nil {
			t.Fatal(err)
		}
		type item struct {
			Content []struct{ Text string }
		}
		var text, id string
		var last struct {
			Type     string
			Response struct {
				ID, Status string
				Output     []item
				Usage      struct {
					Output int `json:"output_tokens"`
				}
			}
		}
		added := map[string]int{}
		for i, data := range h.events {
			var e struct {
				Type     string
				Number   int    `json:"sequence_number"`
				ItemID   string `json:"item_id"`
				Delta    string
				Response struct{ ID string }
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil || e.Number != i || h.names[i] != e.Type {
				t.Fatalf("event %d, named %q, is %v: %s", i, h.names[i], err, data)
			}
			added[e.Type]++
			if e.Response.ID != "" {
				if id == "" {
					id = e.Response.ID
				} else if e.Response.ID != id {
					t.Errorf("event %d is of %s, the first of %s", i, e.Response.ID, id)
				}
			}
			if e.Type == "response.output_text.delta" {
				text += e.Delta
			}
		}
		if err := json.Unmarshal([]byte(h.events[len(h.events)-1]), &last); err != nil {
			t.Fatal(err)
		}
		r := last.Response
		if text != want || last.Type != "response.completed" || r.Status != "completed" || len(r.Output) != 1 || r.Output[0].Content[0].Text != want || r.Usage.Output != tokens {
			t.Errorf("%q, %+v", text, last)
		}
		for _, once := range []string{"response.created", "response.output_item.added", "response.content_part.added", "response.output_item.done"} {
			if added[once] != 1 {
				t.Errorf("%s came %d times", once, added[once])
			}
		}
		continuedOnce(t, m, h, "ids")
	})
	t.Run("messages", func(t *testing.T) {
		h, err := m.cut(t.Context(), "/v1/messages", map[string]any{
			"model": "walk", "stream": true, "temperature": 0, "max_tokens": 500, "messages": []map[string]string{{"role": "user", "content": "hello"}},
		}, 20)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var text, reason string
		output := 0
		for i, data := range h.events {
			var e struct {
				Type  string
				Delta struct {
					Text   string
					Reason string `json:"stop_reason"`
				}
				Usage struct {
					Output int `json:"output_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil || h.names[i] != e.Type {
				t.Fatalf("event %d, named %q, is %v: %s", i, h.names[i], err, data)
			}
			if e.Type != "ping" && (len(order) == 0 || order[len(order)-1] != e.Type) {
				order = append(order, e.Type)
			}
			text += e.Delta.Text
			if e.Type == "message_delta" {
				reason, output = e.Delta.Reason, e.Usage.Output
			}
		}
		if got := strings.Join(order, " "); got != "message_start content_block_start content_block_delta content_block_stop message_delta message_stop" {
			t.Errorf("%s", got)
		}
		if text != want || reason != "end_turn" || output != tokens {
			t.Errorf("%q ended by %q with %d tokens", text, reason, output)
		}
		continuedOnce(t, m, h, "ids")
	})
}

// kindsUnstreamed has answers that are no streams lose their peer: the client sees one
// answer. What cannot be continued is asked for anew, for nothing of it was seen.
func kindsUnstreamed(t *testing.T, m *kindsMesh, w *walked) {
	const n = 400
	for _, k := range []struct {
		name  string
		kind  kind
		want  string
		begun bool // Anew.
	}{
		{"unstreamed", kind{start: w.fragments[0]}, w.text(w.fragments, n), false},
		{"unstreamed text", kind{path: textRoute, start: w.letters[0]}, w.text(w.letters, n), false},
		{"unstreamed grammar", kind{start: w.fragments[0], more: map[string]any{"grammar": "root ::= [a-zA-Z ]+"}}, w.text(w.fragments, n), true},
	} {
		t.Run(k.name, func(t *testing.T) {
			path, body := k.kind.body()
			delete(body, "stream")
			delete(body, "stream_options")
			body["max_tokens"] = n
			h, err := m.cutWhole(t.Context(), path, body)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Choices []struct {
					Text    string
					Finish  string `json:"finish_reason"`
					Message struct{ Content string }
				}
				Usage struct {
					Completion int `json:"completion_tokens"`
				}
			}
			if err := json.Unmarshal(h.body, &got); err != nil || h.status != 200 || len(got.Choices) != 1 {
				t.Fatalf("%d %v %s", h.status, err, h.body)
			}
			c := got.Choices[0]
			if text := c.Text + c.Message.Content; text != k.want || c.Finish != "length" || got.Usage.Completion != n {
				t.Errorf("%d tokens to %s: %q, want %q", got.Usage.Completion, c.Finish, text, k.want)
			}
			log, err := os.ReadFile(m.entrance.Log())
			if err != nil {
				t.Fatal(err)
			}
			continued, again := false, false
			for line := range strings.Lines(string(log)) {
				if strings.Contains(line, h.header.Get("X-Request-Id")) {
					continued = continued || strings.Contains(line, "msg=continued")
					again = again || strings.Contains(line, "attempts=2")
				}
			}
			if !again || continued == k.begun {
				t.Errorf("asked again: %v, continued: %v", again, continued)
			}
		})
	}
}
