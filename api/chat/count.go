package chat

import (
	"encoding/json"
	"errors"
)

// ErrCount is an answer of the engine's of which no tokens can be counted.
var ErrCount = errors.New("the engine's answer has no prompt, or no tokens")

// TokenizeBody makes of the engine's answer to /apply-template what its /tokenize is
// asked, of that model: the tokens of a prompt are those of its text, with what the
// vocabulary puts before it. The error is ErrCount.
func TokenizeBody(model string, template []byte) ([]byte, error) {
	var t struct {
		Prompt *string `json:"prompt"`
	}
	if err := json.Unmarshal(template, &t); err != nil || t.Prompt == nil {
		return nil, ErrCount
	}
	b := Quote([]byte(`{"model":`), model)
	b = Quote(append(b, `,"content":`...), *t.Prompt)
	return append(b, `,"add_special":true,"parse_special":true}`...), nil
}

// CountTokens counts what the engine answered to /tokenize. The error is ErrCount.
func CountTokens(answer []byte) (int, error) {
	var t struct {
		Tokens *[]int `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &t); err != nil || t.Tokens == nil {
		return 0, ErrCount
	}
	return len(*t.Tokens), nil
}
