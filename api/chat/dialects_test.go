package chat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"relay/api/chat"
	"relay/api/messages"
	"relay/api/responses"
)

// streamOf is what the engine says to a chat, as a door asks it.
func (s server) streamOf(t *testing.T, q chat.Request, each func(*chat.Chunk) error) {
	t.Helper()
	body := strings.TrimSuffix(string(q.Append(nil)), "}")
	stream := s.ask(t, "/v1/chat/completions", body+`,"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true}`)
	for _, p := range payloads(t, stream) {
		var c chat.Chunk
		if err := c.Read(p); err != nil {
			t.Fatal(err)
		}
		if err := each(&c); err != nil {
			t.Fatalf("%v: %s", err, p)
		}
	}
}

// TestMessagesOnTheEngine: what relay says of a message is what the pinned engine
// did, also where the engine's own Messages API says something else.
func TestMessagesOnTheEngine(t *testing.T) {
	s := realServer(t)
	type message struct {
		Content    []struct{ Type, Text string }
		StopReason string  `json:"stop_reason"`
		Stop       *string `json:"stop_sequence"`
		Usage      struct {
			Input  int `json:"input_tokens"`
			Cached int `json:"cache_read_input_tokens"`
			Output int `json:"output_tokens"`
		}
	}
	const what = `"model":"m","messages":[{"role":"user","content":"What is relay?"}`
	for _, tc := range []struct{ name, body, text, reason, stop string }{
		{"to its end", `{` + what + `],"max_tokens":200,"temperature":0}`, "relay is a peer-to-peer mesh of machines. It pools their GPU memory and serves language models behind one API.", "end_turn", ""},
		{"cut", `{` + what + `],"max_tokens":3,"temperature":0}`, "relay is a", "max_tokens", ""},
		{"stopped", `{` + what + `],"max_tokens":200,"temperature":0,"stop_sequences":["xyz"," mesh"]}`, "relay is a peer-to-peer", "stop_sequence", " mesh"},
		{"gone on with", `{` + what + `,{"role":"assistant","content":"relay is"}],"max_tokens":3,"temperature":0}`, " a peer-", "max_tokens", ""},
		{"in JSON", `{` + what + `],"max_tokens":60,"temperature":0,"output_config":{"format":{"type":"json_schema","schema":{"enum":["é"]}}}}`, `"é"`, "end_turn", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, err := messages.Parse([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			r := messages.NewReply(q, "1", "m", nil)
			s.streamOf(t, q.Chat, func(c *chat.Chunk) error {
				_, err := r.Chunk(nil, c)
				return err
			})
			b, err := r.Whole()
			if err != nil {
				t.Fatal(err)
			}
			var m message
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			if len(m.Content) != 1 || m.Content[0].Text != tc.text || m.StopReason != tc.reason || (m.Stop != nil) != (tc.stop != "") || m.Stop != nil && *m.Stop != tc.stop {
				t.Errorf("%s", b)
			}

			count, err := messages.ParseCount([]byte(tc.body[:strings.Index(tc.body, `,"max_tokens"`)] + "}"))
			if err != nil {
				t.Fatal(err)
			}
			next, err := chat.TokenizeBody(count.Chat.Model, s.ask(t, "/apply-template", string(count.Chat.Append(nil))))
			if err != nil {
				t.Fatal(err)
			}
			n, err := chat.CountTokens(s.ask(t, "/tokenize", string(next)))
			if err != nil || n != m.Usage.Input+m.Usage.Cached || n == 0 {
				t.Errorf("%d tokens were counted (%v), %+v taken", n, err, m.Usage)
			}
		})
	}
}

// TestResponsesOnTheEngine is the same for responses.
func TestResponsesOnTheEngine(t *testing.T) {
	s := realServer(t)
	const what = `{"model":"m","temperature":0,"input":"What is relay?"`
	for _, tc := range []struct{ name, body, want string }{
		{"to its end", what + `}`, `"status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"relay is a peer-to-peer mesh of machines. It`},
		{"cut", what + `,"max_output_tokens":3}`, `"incomplete_details":{"reason":"max_output_tokens"}`},
		{"probable", what + `,"max_output_tokens":1,"include":["message.output_text.logprobs"],"top_logprobs":1}`, `"logprobs":[{"id":571,"token":"relay","bytes":[114,101,108,97,121],"logprob":-0.0`},
		{"probable alone", what + `,"max_output_tokens":1,"include":["message.output_text.logprobs"]}`, `,"top_logprobs":[]}],"text":"relay"`},
		{"in JSON", what + `,"max_output_tokens":60,"text":{"format":{"type":"json_schema","name":"x","schema":{"enum":["é"]}}}}`, `"text":"\"é\""`},
		{"brief", `{"model":"m","temperature":0,"instructions":"You are relay.","input":[{"role":"developer","content":"Be brief."},{"role":"user","content":"What is relay?"}],"max_output_tokens":1}`,
			`"usage":{"input_tokens":`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, err := responses.Parse([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			r := responses.NewReply(q, "1", 7, "m", nil)
			s.streamOf(t, q.Chat, func(c *chat.Chunk) error {
				_, err := r.Chunk(nil, c)
				return err
			})
			if b, err := r.Whole(8); err != nil || !strings.Contains(string(b), tc.want) {
				t.Errorf("%v: %s; want %s", err, b, tc.want)
			}
		})
	}
}
