package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
)

// rerankDialect is POST /v1/rerank, as Jina and Cohere have it.
func rerankDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(rerankFields, body)
	if no != nil {
		return nil, no
	}
	q.path, q.kind, q.asks = pathRerank, kindRerank, "documents"
	if q.value("query") == nil {
		return nil, invalid("query", "the body has no query")
	}
	documents, no := documentsOf(q.value("documents"))
	if no != nil {
		return nil, no
	}
	_, q.text = longest(q.value("documents"))
	top, _ := whole(q.value("top_n"))
	given := string(q.value("return_documents")) == "true"
	q.drop("top_n", "return_documents")
	q.set("documents", string(encodeJSON(documents)))
	q.whole = func(_ *call, model string, answer []byte) ([]byte, error) {
		return ranked(model, answer, documents, top, given)
	}
	return q, nil
}

// documentsOf are the texts of documents, which are strings or objects with a text.
func documentsOf(v []byte) ([]string, *refusal) {
	var list []json.RawMessage
	each(v, func(e []byte) bool {
		list = append(list, e)
		return len(list) <= maxInputs
	})
	if len(list) == 0 {
		return nil, invalid("documents", "the body has no documents")
	}
	if len(list) > maxInputs {
		return nil, invalid("documents", "there are more than %d documents; send them in several requests", maxInputs)
	}
	texts := make([]string, 0, len(list))
	for i, raw := range list {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			var with map[string]json.RawMessage
			if json.Unmarshal(raw, &with) != nil || len(with) != 1 || with["text"] == nil || with["text"][0] != '"' {
				return nil, invalid("documents", "documents[%d] must be a string, or an object with nothing but a text", i)
			}
			text = unquote(with["text"])
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// ranked renders the engine's ranks, the best first. top is 0 for all.
func ranked(model string, answer []byte, documents []string, top int, given bool) ([]byte, error) {
	type text struct {
		Text string `json:"text"`
	}
	type rank struct {
		Index    int     `json:"index"`
		Score    float64 `json:"relevance_score"`
		Document *text   `json:"document,omitempty"`
	}
	var is struct {
		Results []rank `json:"results"`
		Usage   struct {
			Prompt int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(answer, &is); err != nil {
		return nil, err
	}
	if len(is.Results) != len(documents) {
		return nil, errors.New("not as many ranks as documents")
	}
	slices.SortStableFunc(is.Results, func(a, b rank) int { return cmp.Or(-cmp.Compare(a.Score, b.Score), a.Index-b.Index) })
	if top > 0 && top < len(is.Results) {
		is.Results = is.Results[:top]
	}
	for i := range is.Results {
		r := &is.Results[i]
		if r.Index < 0 || r.Index >= len(documents) {
			return nil, errors.New("the rank of a document that there is not")
		}
		r.Document = nil
		if given {
			r.Document = &text{documents[r.Index]}
		}
	}
	return encodeJSON(struct {
		Model   string         `json:"model"`
		Object  string         `json:"object"`
		Usage   map[string]int `json:"usage"`
		Results []rank         `json:"results"`
	}{model, "list", map[string]int{"prompt_tokens": is.Usage.Prompt, "total_tokens": is.Usage.Prompt}, is.Results}), nil
}
