package sim

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
)

// maxTexts is how many texts one request may have embedded or ranked. The real
// engine has no such bound.
const maxTexts = 10_000

// Embed is the unit vector of some ids: what their tokens have, added up, so
// that texts with words in common are near each other.
func Embed(ids []int, width int) []float64 {
	v := make([]float64, width)
	for _, id := range ids {
		c := newChain(uint64(id))
		for i := range v {
			c = c.add(i)
			v[i] += float64(int64(c.mix())) / (1 << 63)
		}
	}
	var sum float64
	for _, x := range v {
		sum += x * x
	}
	if sum > 0 {
		for i := range v {
			v[i] = float64(float32(v[i] / math.Sqrt(sum)))
		}
	}
	return v
}

// compute takes a slot for each text in turn, and gives it back.
func (s *Server) compute(ctx context.Context, texts [][]int, fault *Fault) error {
	for i, ids := range texts {
		if len(ids) > s.opt.MaxInput {
			return fail("input (%d tokens) is too large to process. increase the physical batch size (current batch size: %d)", len(ids), s.opt.MaxInput)
		}
		slot, err := s.takeSlot(ctx, nil)
		if err != nil {
			return err
		}
		if fault != nil && i == fault.After {
			err = strike(ctx, fault.Kind, nobody{}.silent)
		}
		if err == nil {
			a := answer{task: task{ids: ids}, slot: slot.n}
			err = s.prefill(ctx, &a, nobody{})
		}
		s.giveSlot(slot)
		if err != nil {
			return err
		}
	}
	return nil
}

// vectors is a route that computes no text.
func (s *Server) vectors(answer func(body []byte) (texts [][]int, write func() any, err error)) http.HandlerFunc {
	return s.counted(func(w http.ResponseWriter, r *http.Request, fault *Fault) error {
		body, err := readBody(r)
		if err == nil {
			err = fault.early()
		}
		var texts [][]int
		var write func() any
		if err == nil {
			texts, write, err = answer(body)
		}
		if err == nil {
			err = s.compute(r.Context(), texts, fault)
		}
		var own *engineError
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, write())
		case errors.As(err, &own):
			writeError(w, err)
		default:
			return s.spoil(w, err)
		}
		return err
	})
}

func (s *Server) embeddings(openAI bool) http.HandlerFunc {
	return s.vectors(func(body []byte) ([][]int, func() any, error) {
		if !s.opt.Embeddings && !s.opt.Reranking {
			return nil, nil, unsupported("embeddings", "--embeddings")
		}
		var q struct {
			Input    json.RawMessage `json:"input"`
			Content  json.RawMessage `json:"content"`
			Encoding *string         `json:"encoding_format"`
			Model    *string         `json:"model"`
		}
		if err := parse(body, &q); err != nil {
			return nil, nil, err
		}
		openAI := openAI
		input := q.Input
		if input == nil {
			if input, openAI = q.Content, false; input == nil {
				return nil, nil, refuse("\"input\" or \"content\" must be provided")
			}
		}
		if e := q.Encoding; e != nil && *e != "float" && *e != "base64" {
			return nil, nil, refuse("The format to return the embeddings in. Can be either float or base64")
		}
		texts, err := params{Prompt: input}.prompts()
		var own *engineError
		if errors.As(err, &own) && own.Message != invalidTokens {
			err = fail("%s", own.Message) // a 500 here, as the real one's
		}
		if err == nil && len(texts) > maxTexts {
			err = refuse("%d texts are more than %d", len(texts), maxTexts)
		}
		return texts, func() any {
			if !openAI {
				all := make([]object, 0, len(texts))
				for i, ids := range texts {
					all = append(all, object{{"index", i}, {"embedding", [][]float64{Embed(ids, s.opt.Width)}}})
				}
				return all
			}
			return s.embedded(texts, q.Model, q.Encoding != nil && *q.Encoding == "base64")
		}, err
	})
}

func (s *Server) embedded(texts [][]int, model *string, base bool) object {
	data := make([]object, 0, len(texts))
	for i, ids := range texts {
		v := Embed(ids, s.opt.Width)
		if !base {
			data = append(data, object{{"embedding", v}, {"index", i}, {"object", "embedding"}})
			continue
		}
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
		data = append(data, object{
			{"embedding", base64.StdEncoding.EncodeToString(b)}, {"index", i}, {"object", "embedding"}, {"encoding_format", "base64"},
		})
	}
	return s.list(texts, model, field{"data", data})
}

func (s *Server) list(texts [][]int, model *string, results field) object {
	name, n := s.opt.Model, 0
	if model != nil {
		name = *model
	}
	for _, ids := range texts {
		n += len(ids)
	}
	return object{{"model", name}, {"object", "list"}, {"usage", object{{"prompt_tokens", n}, {"total_tokens", n}}}, results}
}

func (s *Server) rerank() http.HandlerFunc {
	return s.vectors(func(body []byte) ([][]int, func() any, error) {
		if !s.opt.Reranking {
			return nil, nil, unsupported("reranking", "--reranking")
		}
		var q struct {
			Query      json.RawMessage `json:"query"`
			Documents  json.RawMessage `json:"documents"`
			Texts      json.RawMessage `json:"texts"`
			TopN       *int            `json:"top_n"`
			Model      *string         `json:"model"`
			ReturnText bool            `json:"return_text"`
		}
		if err := parse(body, &q); err != nil {
			return nil, nil, err
		}
		if q.Query == nil {
			return nil, nil, refuse("\"query\" must be provided")
		}
		var query string
		if json.Unmarshal(q.Query, &query) != nil {
			return nil, nil, refuse("\"query\" must be a string")
		}
		var documents []string
		if json.Unmarshal(q.Documents, &documents) != nil {
			documents = nil
			_ = json.Unmarshal(q.Texts, &documents)
		}
		if len(documents) == 0 {
			return nil, nil, refuse("\"documents\" must be a non-empty string array")
		}
		if len(documents) > maxTexts {
			return nil, nil, refuse("%d texts are more than %d", len(documents), maxTexts)
		}
		asked := Tokenize(query, false, false)
		var texts [][]int
		for _, d := range documents {
			texts = append(texts, slices.Concat([]int{tokenBOS}, asked, []int{tokenEOS}, Tokenize(d, false, false), []int{tokenEOS}))
		}
		return texts, func() any {
			score, tei := "relevance_score", q.Texts != nil
			if tei {
				score = "score"
			}
			ranks := s.rank(asked, documents)
			if q.TopN != nil {
				ranks = ranks[:min(max(*q.TopN, 0), len(ranks))]
			}
			results := make([]object, 0, len(ranks))
			for _, r := range ranks {
				o := object{{"index", r.index}, {score, r.score}}
				if tei && q.ReturnText {
					o = append(o, field{"text", documents[r.index]})
				}
				results = append(results, o)
			}
			if tei {
				return results
			}
			return s.list(texts, q.Model, field{"results", results})
		}, nil
	})
}

type rank struct {
	index int
	score float64
}

// rank orders documents by how near they are to what is asked: ten times the
// cosine, from -10 to 10.
func (s *Server) rank(asked []int, documents []string) []rank {
	near := Embed(asked, s.opt.Width)
	ranks := make([]rank, 0, len(documents))
	for i, d := range documents {
		score := 0.0
		for j, x := range Embed(Tokenize(d, false, false), s.opt.Width) {
			score += 10 * x * near[j]
		}
		ranks = append(ranks, rank{i, float64(float32(score))})
	}
	slices.SortStableFunc(ranks, func(a, b rank) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	return ranks
}

func parse(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		if e, ok := err.(*json.UnmarshalTypeError); ok {
			return fail("[json.exception.type_error.302] type must be %s, but is %s", jsonKind(e.Type), e.Value)
		}
		return fail("[json.exception.parse_error.101] parse error: %v", err)
	}
	return nil
}
