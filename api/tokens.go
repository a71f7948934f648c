package api

import (
	"encoding/json"
	"net/http"
)

// tokenizeDialect is POST /v1/tokenize: what tokens a text is to a model.
func tokenizeDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(tokenizeFields, body)
	if no != nil {
		return nil, no
	}
	q.path = pathTokenize
	if q.value("content") == nil {
		return nil, invalid("content", "the body has no content")
	}
	q.whole = func(_ *call, model string, answer []byte) ([]byte, error) {
		var is struct {
			Tokens []json.RawMessage `json:"tokens"`
		}
		if err := json.Unmarshal(answer, &is); err != nil {
			return nil, err
		}
		if is.Tokens == nil {
			is.Tokens = []json.RawMessage{}
		}
		return encodeJSON(struct {
			Model  string            `json:"model"`
			Count  int               `json:"count"`
			Tokens []json.RawMessage `json:"tokens"`
		}{model, len(is.Tokens), is.Tokens}), nil
	}
	return q, nil
}

// detokenizeDialect is POST /v1/detokenize: what text tokens are.
func detokenizeDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(detokenizeFields, body)
	if no != nil {
		return nil, no
	}
	q.path = pathDetokenize
	if q.value("tokens") == nil {
		return nil, invalid("tokens", "the body has no tokens")
	}
	q.whole = func(_ *call, model string, answer []byte) ([]byte, error) {
		var is struct {
			Content *string `json:"content"`
		}
		if err := json.Unmarshal(answer, &is); err != nil {
			return nil, err
		}
		if is.Content == nil {
			is.Content = new(string)
		}
		return encodeJSON(struct {
			Model   string `json:"model"`
			Content string `json:"content"`
		}{model, *is.Content}), nil
	}
	return q, nil
}
