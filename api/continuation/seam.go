package continuation

import (
	"encoding/json"
	"slices"
	"strconv"

	"relay/api/chat"
)

// Seam turns the chunks of the engine that goes on into chunks of the first one: its shape,
// id, time, model and fingerprint, one role, the counts of the whole answer. Ids stay as they
// came.
type Seam struct {
	t *Track
	// ofText: the engine answers with a text completion, and a chat is wanted.
	ofText bool
	// role: who speaks was said. before is how many tokens there were, counts and first are
	// what was told last of them.
	role   bool
	before int
	counts *chat.Timings
	first  []byte

	piece Piece
	buf   []byte
	out   [][]byte
}

func newSeam(t *Track, ofText bool) *Seam {
	s := &Seam{t: t, ofText: ofText, role: t.role, before: t.kept}
	if t.counted {
		counts := t.prompt
		s.counts, s.first = &counts, slices.Clone(t.timings)
	}
	return s
}

// Turn turns one chunk, a JSON object that is neither [DONE], null nor an error, into those
// that the first engine would have sent: one mostly, none for a chunk that has no place in
// its stream (who speaks, how far the prompt is), and up to three at the end. The list is good
// until the next call, the chunks in it stay. The error is chat.ErrChunk.
func (s *Seam) Turn(data []byte) ([][]byte, error) {
	s.out, s.buf = s.out[:0], make([]byte, 0, len(data)+256)
	p := &s.piece
	if err := p.Read(data); err != nil {
		return nil, err
	}
	switch {
	case p.progress:
		return nil, nil
	case s.ofText:
		s.asChat(data)
		return s.out, nil
	case p.role && len(p.content)+len(p.reasoning) == 0 && p.finish == nil && !p.tools:
		if s.role {
			return nil, nil
		}
		s.role = true
	}
	s.same(data)
	return s.out, nil
}

// same writes a chunk of the shape that is wanted.
func (s *Seam) same(data []byte) {
	b := append(s.buf, '{')
	chat.Members(data, func(name []byte, v json.RawMessage) {
		head := &s.t.head
		switch string(name) {
		case "id":
			v = or(head.id, v)
		case "created":
			v = or(head.created, v)
		case "model":
			v = or(head.model, v)
		case "system_fingerprint":
			v = or(head.fingerprint, v)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(chat.Quote(b, name), ':')
		switch {
		case string(name) == "usage" && !isNull(v):
			b = s.usage(b)
		case string(name) == "timings" && !isNull(v):
			b = s.timings(b)
		default:
			b = append(b, v...)
		}
	})
	s.put(append(b, '}'))
}

// put adds what was written behind s.buf, and all of it, as one chunk.
func (s *Seam) put(b []byte) {
	s.out = append(s.out, b[len(s.buf):len(b):len(b)])
	s.buf = b
}

// asChat writes a text completion's chunk as a chat's.
func (s *Seam) asChat(data []byte) {
	p := &s.piece
	var text, probs, verbose json.RawMessage
	chat.Members(data, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "choices":
			chat.Elements(v, func(v json.RawMessage) {
				chat.Members(v, func(name []byte, v json.RawMessage) {
					switch string(name) {
					case "text":
						text = v
					case "logprobs":
						probs = v
					}
				})
			})
		case "__verbose":
			verbose = v
		}
	})
	if len(p.content) > 0 {
		b := append(s.buf, `{"choices":[{"finish_reason":null,"index":0,"delta":{"content":`...)
		b = append(append(b, text...), '}')
		if !isNull(probs) {
			b = append(append(b, `,"logprobs":`...), probs...)
		}
		b = s.t.opening(append(b, "}],"...))
		if p.told && p.finish == nil {
			b = s.timings(append(b, `,"timings":`...))
		}
		s.put(append(b, '}'))
	}
	if p.finish == nil {
		return
	}
	b := append(append(s.buf, `{"choices":[{"finish_reason":`...), p.finish...)
	b = s.t.opening(append(b, `,"index":0,"delta":{}}],`...))
	if verbose != nil {
		b = append(append(b, `,"__verbose":`...), verbose...)
	}
	s.put(append(b, '}'))
	if p.usage == nil {
		return
	}
	b = s.t.opening(append(s.buf, `{"choices":[],`...))
	b = s.usage(append(b, `,"usage":`...))
	if p.told {
		b = s.timings(append(b, `,"timings":`...))
	}
	s.put(append(b, '}'))
}

// usage appends what the whole answer took.
func (s *Seam) usage(b []byte) []byte {
	var u chat.Usage
	u.Completion = s.before + number(s.piece.usage, "completion_tokens")
	if c := s.counts; c != nil {
		u.Prompt, u.Cached = c.Prompt+c.Cached, c.Cached
	} else {
		u.Prompt = max(number(s.piece.usage, "prompt_tokens")-s.before, 0)
	}
	u.Total = u.Prompt + u.Completion
	return u.Append(b)
}

// timings appends the engine's counters of the whole answer: the first engine's of the
// prompt, and of the answer those of all.
func (s *Seam) timings(b []byte) []byte {
	n, ms := s.before+s.piece.counts.Answer, decimal(s.first, "predicted_ms")+decimal(s.piece.timings, "predicted_ms")
	first := true
	add := func(name string, v []byte) {
		if first {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		first = false
		b = append(append(chat.Quote(b, name), ':'), v...)
	}
	ofPrompt := s.first
	if ofPrompt == nil {
		ofPrompt = s.piece.timings
	}
	chat.Members(ofPrompt, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second":
			add(string(name), v)
		}
	})
	var scratch [32]byte
	add("predicted_n", strconv.AppendInt(scratch[:0], int64(n), 10))
	if ms > 0 && n > 0 {
		for _, of := range []struct {
			name string
			is   float64
		}{{"predicted_ms", ms}, {"predicted_per_token_ms", ms / float64(n)}, {"predicted_per_second", float64(n) / ms * 1000}} {
			add(of.name, strconv.AppendFloat(scratch[:0], of.is, 'f', 3, 64))
		}
	}
	return append(b, '}')
}

// decimal is a member of an object that is a number; 0 where it is none.
func decimal(object []byte, name string) float64 {
	x, err := strconv.ParseFloat(string(memberOf(object, name)), 64)
	if err != nil || !(x >= 0 && x <= 1e12) {
		return 0
	}
	return x
}

func number(object []byte, name string) int {
	n, _ := whole(memberOf(object, name))
	return int(min(max(n, 0), maxCount))
}

func or(a []byte, b json.RawMessage) json.RawMessage {
	if a != nil {
		return a
	}
	return b
}
