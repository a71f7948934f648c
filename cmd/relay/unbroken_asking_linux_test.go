package main_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
)

// asking is a kind of request.
type asking struct {
	name string
	// path and body are the request, bare the body of the chat or the text that the stand-in
	// is asked in its place.
	path string
	body func(bare map[string]any) map[string]any
	text bool
	// more is what bare has beside the question.
	more map[string]any
	// named: it may end by an error that says why it cannot be continued.
	named bool
	// share of all requests, in percent.
	share int
}

var askings = []asking{
	{name: "chat", path: "/v1/chat/completions", body: streamed, share: 35},
	{name: "text", path: "/v1/completions", text: true, body: streamed, share: 20},
	{name: "responses", path: "/v1/responses", body: asResponses, share: 5},
	{name: "messages", path: "/v1/messages", body: asMessages, share: 5},
	{name: "chat at once", path: "/v1/chat/completions", body: as, share: 10},
	{name: "text at once", path: "/v1/completions", text: true, body: as, share: 5},
	{name: "json", path: "/v1/chat/completions", body: streamed, named: true, share: 10, more: map[string]any{
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": map[string]any{
			"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string", "minLength": 40}}, "required": []string{"a"}}}}}},
	{name: "two answers", path: "/v1/chat/completions", body: streamed, named: true, share: 10, more: map[string]any{"n": 2}},
}

func as(bare map[string]any) map[string]any { return bare }

func streamed(bare map[string]any) map[string]any {
	bare["stream"] = true
	return bare
}

func asResponses(bare map[string]any) map[string]any {
	return map[string]any{"model": churnModel, "stream": true, "temperature": 0, "input": bare["messages"], "max_output_tokens": bare["max_tokens"]}
}

func asMessages(bare map[string]any) map[string]any {
	return map[string]any{"model": churnModel, "stream": true, "temperature": 0, "messages": bare["messages"], "max_tokens": bare["max_tokens"]}
}

// draw is one of the kinds, by their shares.
func draw() asking {
	n := rand.IntN(100)
	for _, a := range askings {
		if n -= a.share; n < 0 {
			return a
		}
	}
	return askings[0]
}

// got is an answer as a client had it.
type got struct {
	id        string
	texts     []string
	continued bool
	reason    string // Why it ended by an error, where that says.
	err       error
}

func (g *got) add(index int, text string) {
	for len(g.texts) <= index {
		g.texts = append(g.texts, "")
	}
	g.texts[index] += text
}

// said are the answers; none of a stream that was empty from the beginning.
func (g *got) said() []string {
	return slices.DeleteFunc(slices.Clone(g.texts), func(text string) bool { return text == "" })
}

type failure struct{ Message, Code, Type string }

// whole takes in an answer that is not streamed.
func (g *got) whole(said []byte) error {
	var is struct {
		Choices []struct {
			Index   int
			Text    string
			Message struct{ Content string }
		}
		Error *failure
	}
	if err := json.Unmarshal(said, &is); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	if is.Error != nil {
		g.reason = is.Error.Code
		return errors.New(is.Error.Message)
	}
	for _, one := range is.Choices {
		g.add(one.Index, one.Text+one.Message.Content)
	}
	return nil
}

// stream takes in the events of any of the dialects.
func (g *got) stream(events io.Reader) error {
	ended := false
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF && ended {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the stream broke off: %w", err)
		}
		if strings.HasPrefix(line, ": relay continued ") {
			g.continued = true
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if data == "[DONE]" {
			ended = true
			continue
		}
		if !ok {
			continue
		}
		var is struct {
			Choices []struct {
				Index int
				Text  string
				Delta struct{ Content string }
			}
			Type  string
			Delta json.RawMessage
			Error *failure
			Code  string
		}
		if err := json.Unmarshal([]byte(data), &is); err != nil {
			return fmt.Errorf("%w: %s", err, data)
		}
		if is.Error != nil {
			g.reason = cmp.Or(is.Error.Code, is.Error.Type)
			return fmt.Errorf("an error: %s", data)
		}
		if is.Type == "error" {
			g.reason = is.Code
			return fmt.Errorf("an error: %s", data)
		}
		for _, one := range is.Choices {
			g.add(one.Index, one.Text+one.Delta.Content)
		}
		switch is.Type {
		case "response.output_text.delta":
			var text string
			if err := json.Unmarshal(is.Delta, &text); err != nil {
				return err
			}
			g.add(0, text)
		case "content_block_delta":
			var delta struct{ Text string }
			if err := json.Unmarshal(is.Delta, &delta); err != nil {
				return err
			}
			g.add(0, delta.Text)
		case "response.completed", "response.incomplete", "message_stop":
			ended = true
		}
	}
}
