package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestServer checks relay-tiny.gguf (or the file named by TINY_MODEL: a .gguf or
// a checkpoint) in a real llama-server that serves it at the address in
// TINY_SERVER:
//
//	llama-server -m llama/demo/relay-tiny.gguf -c 4096 -np 2 --port 18190
//	TINY_SERVER=http://127.0.0.1:18190 go test -v -run Server ./llama/demo/train
func TestServer(t *testing.T) {
	url := os.Getenv("TINY_SERVER")
	if url == "" {
		t.Skip("set TINY_SERVER to the address of a llama-server that serves llama/demo/relay-tiny.gguf to run this")
	}
	name := shipped
	if s := os.Getenv("TINY_MODEL"); s != "" {
		name = s
	}
	ck, err := readCheckpoint(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := readCorpus("corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	tok := newTokenizer(ck.Pieces)
	t.Run("tokens", func(t *testing.T) { (&server{t, url}).checkTokens(c, tok) })
	t.Run("held-out", func(t *testing.T) { (&server{t, url}).checkQuestions(c.tests, 0.85) })
	t.Run("trained", func(t *testing.T) { (&server{t, url}).checkQuestions(c.questions, 0.97) })
	t.Run("system", func(t *testing.T) { (&server{t, url}).checkSystem(c) })
	t.Run("turns", func(t *testing.T) { (&server{t, url}).checkTurns(c) })
	t.Run("stories", func(t *testing.T) { (&server{t, url}).checkStories(c) })
	t.Run("continue", func(t *testing.T) { (&server{t, url}).checkContinue(c, tok) })
}

type server struct {
	*testing.T
	url string
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (s *server) post(path string, body any, result any) {
	data, _ := json.Marshal(body)
	req, _ := http.NewRequest("POST", s.url+path, bytes.NewReader(data))
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		s.Fatalf("%s: %s: %s", path, resp.Status, text)
	}
	if out, ok := result.(*string); ok { // of an event stream
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			*out += lines.Text() + "\n"
		}
	} else if err := json.NewDecoder(resp.Body).Decode(result); err != nil {
		s.Fatal(err)
	}
}

// chat returns the answer and the finish reason.
func (s *server) chat(messages ...message) (string, string) {
	var r struct {
		Choices []struct {
			Message message
			Reason  string `json:"finish_reason"`
		}
	}
	s.post("/v1/chat/completions", map[string]any{"messages": messages, "temperature": 0, "max_tokens": 200}, &r)
	return r.Choices[0].Message.Content, r.Choices[0].Reason
}

// stream is chat with "stream": true.
func (s *server) stream(messages ...message) (text, reason string) {
	var events string
	s.post("/v1/chat/completions", map[string]any{"messages": messages, "temperature": 0, "max_tokens": 200, "stream": true}, &events)
	for _, line := range strings.Split(events, "\n") {
		var e struct {
			Choices []struct {
				Delta  message
				Reason string `json:"finish_reason"`
			}
		}
		if data, ok := strings.CutPrefix(line, "data: {"); ok {
			if err := json.Unmarshal([]byte("{"+data), &e); err != nil {
				s.Fatal(err)
			}
			for _, c := range e.Choices {
				text, reason = text+c.Delta.Content, reason+c.Reason
			}
		}
	}
	return text, reason
}

func user(text string) message { return message{"user", text} }

// report prints a share and fails if it is too low.
func (s *server) report(what string, good, all int, least float64) {
	fmt.Printf("%s: %d of %d\n", what, good, all)
	if float64(good) < least*float64(all) {
		s.Errorf("%s: only %d of %d", what, good, all)
	}
}

func (s *server) checkTokens(c *corpus, tok *tokenizer) {
	r := rand.New(rand.NewPCG(5, 5))
	texts := append(c.texts(), "", " ", "  two  spaces ", "line\nbreak\n", "Zoë: 3.5€ ▁ 日本", "\tx := map[string]int{\"a\": 1}")
	for range 300 { // nonsense made of pieces and bytes
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteString(tok.decode([]int{idAssistant + 1 + r.IntN(len(tok.pieces)-idAssistant-1)}))
		}
		texts = append(texts, b.String())
	}
	same, back := 0, 0
	for _, text := range texts {
		var tokens struct{ Tokens []int }
		s.post("/tokenize", map[string]any{"content": text, "add_special": false, "parse_special": false}, &tokens)
		if slices.Equal(tokens.Tokens, tok.encode(text)) {
			same++
		} else {
			s.Errorf("%q: %v here, %v there", text, tok.encode(text), tokens.Tokens)
		}
		var content struct{ Content string }
		s.post("/detokenize", map[string]any{"tokens": tokens.Tokens}, &content)
		if content.Content == strings.ReplaceAll(text, space, " ") {
			back++
		} else {
			s.Errorf("%q came back as %q", text, content.Content)
		}
	}
	s.report("texts cut as by the trainer", same, len(texts), 1)
	s.report("texts that come back from their tokens", back, len(texts), 1)
}

func (s *server) checkQuestions(list []exchange, least float64) {
	good, stopped, streamed := 0, 0, 0
	for _, e := range list {
		text, reason := s.chat(user(e.question))
		if text == e.answer {
			good++
		} else {
			s.Logf("%q: %q", e.question, text)
		}
		if reason == "stop" {
			stopped++
		}
		if text2, reason2 := s.stream(user(e.question)); text2 == text && reason2 == reason {
			streamed++
		}
	}
	s.report("questions answered as intended", good, len(list), least)
	s.report("answers that stop by themselves", stopped, len(list), 1)
	s.report("answers that are the same as a stream", streamed, len(list), 1)
}

func (s *server) checkSystem(c *corpus) {
	good := 0
	for i, e := range c.tests {
		system := "You are a pirate. Keep it short!"
		if i%2 == 0 {
			system = c.systems[i%len(c.systems)]
		}
		if text, _ := s.chat(message{"system", system}, user(e.question)); text == e.answer {
			good++
		}
	}
	s.report("held-out questions answered under a system message", good, len(c.tests), 0.8)
}

func (s *server) checkTurns(c *corpus) {
	r := rand.New(rand.NewPCG(6, 6))
	for _, turns := range []int{2, 3, 5, 10, 20} {
		good := 0
		const all = 20
		for range all {
			var chat []message
			for i := range turns {
				e := pick(r, c.questions)
				chat = append(chat, user(e.question))
				if i < turns-1 {
					chat = append(chat, message{"assistant", e.answer})
				} else if text, _ := s.chat(chat...); text == e.answer {
					good++
				}
			}
		}
		s.report(fmt.Sprintf("right answers in turn %d of a chat", turns), good, all, 0)
	}
}

func (s *server) checkStories(c *corpus) {
	told := func(prompt string) bool {
		text, reason := s.chat(user(prompt))
		known := slices.ContainsFunc(c.stories, func(st story) bool { return st.text == text })
		if !known {
			s.Logf("%q: %q (%s)", prompt, text, reason)
		}
		return known && reason == "stop"
	}
	good := 0
	for _, p := range c.anyStory {
		if told(p) {
			good++
		}
	}
	s.report("requests for any story that give a whole one", good, len(c.anyStory), 0.9)
	good = 0
	for _, st := range c.stories {
		if text, _ := s.chat(user("Tell me a story about " + st.topic + ".")); text == st.text {
			good++
		}
	}
	s.report("stories told about their topic", good, len(c.stories), 0.8)
	var r struct{ Choices []struct{ Text string } }
	s.post("/v1/completions", map[string]any{"prompt": "Once upon a time", "temperature": 0, "max_tokens": 200}, &r)
	s.Logf("plain completion: %q", r.Choices[0].Text)
}

// checkContinue cuts the answers off: anywhere, at the end of a word, and at the
// end of a piece, as when a peer stops in the middle of a stream.
func (s *server) checkContinue(c *corpus, tok *tokenizer) {
	r := rand.New(rand.NewPCG(7, 7))
	list := slices.Clone(c.tests)
	for _, st := range c.stories {
		list = append(list, exchange{"Tell me a story about " + st.topic + ".", st.text})
	}
	kinds := []string{"any letter", "any space", "the end of a word", "the end of a piece"}
	least := []float64{0.5, 0.1, 1, 1} // only whole words and pieces are easy
	good, all := make([]int, len(kinds)), make([]int, len(kinds))
	for _, e := range append(list, list...) {
		any := 2 + r.IntN(len(e.answer)-2)
		word := strings.LastIndex(e.answer[:any], " ")
		ids := tok.encode(e.answer)
		piece := len(tok.decode(ids[:1+r.IntN(len(ids)-1)]))
		for kind, cut := range []int{any, word + 1, word, piece} {
			if cut < 1 {
				continue
			}
			all[kind]++
			text, reason := s.chat(user(e.question), message{"assistant", e.answer[:cut]})
			// Some versions of llama-server repeat what they continue.
			if strings.TrimPrefix(text, e.answer[:cut]) == e.answer[cut:] && reason == "stop" {
				good[kind]++
			} else if least[kind] == 1 {
				s.Logf("%s: %q | %q", kinds[kind], e.answer[:cut], text)
			}
		}
	}
	for kind, name := range kinds {
		s.report("answers continued exactly from "+name, good[kind], all[kind], least[kind])
	}
}
