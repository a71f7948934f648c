package api

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
)

// errTooMuch is an answer that may not be held.
var errTooMuch = errors.New("more bytes than may be held")

// embeddingsDialect is POST /v1/embeddings. The engine is always asked for floats;
// relay cuts vectors to the dimensions that are wanted, and encodes them.
func embeddingsDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(embeddingFields, body)
	if no != nil {
		return nil, no
	}
	q.path, q.kind, q.asks = pathEmbeddings, kindEmbed, "input"
	if q.value("input") == nil {
		return nil, invalid("input", "the body has no input")
	}
	q.ids, q.text = longest(q.value("input"))
	wanted, _ := whole(q.value("dimensions"))
	encoded := string(q.value("encoding_format")) == `"base64"`
	q.drop("dimensions")
	q.set("encoding_format", `"float"`)
	q.whole = func(c *call, model string, answer []byte) ([]byte, error) {
		return embeddings(c, model, answer, wanted, encoded)
	}
	return q, nil
}

// embeddings renders the engine's vectors. dimensions is 0 for all of them.
func embeddings(c *call, model string, answer []byte, dimensions int, encoded bool) ([]byte, error) {
	var is struct {
		Data []struct {
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	// The vectors once more, and as they go out.
	if !c.grab(2 * len(answer)) {
		return nil, errTooMuch
	}
	if err := json.Unmarshal(answer, &is); err != nil {
		return nil, err
	}
	type vector struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	out := struct {
		Object string         `json:"object"`
		Data   []vector       `json:"data"`
		Model  string         `json:"model"`
		Usage  map[string]int `json:"usage"`
	}{"list", []vector{}, model, map[string]int{"prompt_tokens": is.Usage.Prompt, "total_tokens": is.Usage.Prompt}}
	for i, d := range is.Data {
		v := d.Embedding
		if len(v) == 0 {
			return nil, errors.New("an empty vector")
		}
		if dimensions > len(v) {
			return nil, invalid("dimensions", "model %q makes vectors of %d dimensions, not of %d; ask for fewer, or leave dimensions out", clip(model, 100), len(v), dimensions)
		}
		if dimensions > 0 && dimensions < len(v) {
			v = normalised(v[:dimensions])
		}
		shown := vector{"embedding", i, v}
		if encoded {
			shown.Embedding = base64Of(v)
		}
		out.Data = append(out.Data, shown)
	}
	return encodeJSON(out), nil
}

// normalised brings a vector to length 1; one of zeros stays.
func normalised(v []float32) []float32 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return v
	}
	by := 1 / math.Sqrt(sum)
	for i := range v {
		v[i] = float32(float64(v[i]) * by)
	}
	return v
}

// base64Of is a vector as OpenAI encodes it: 32-bit floats, the low byte first.
func base64Of(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
