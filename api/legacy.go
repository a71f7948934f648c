package api

import (
	"bytes"
	"encoding/json"

	"unicode/utf8"
)

// legacyLogprobs has a text completion's logprobs in the shape that OpenAI's route has;
// the engine gives them as those of a chat. top is how many likely tokens were asked for.
func legacyLogprobs(inner func(*call, string) reply, top int) func(*call, string) reply {
	return func(c *call, model string) reply {
		return &legacy{reply: inner(c, model), top: top, at: map[int]int{}}
	}
}

type legacy struct {
	reply
	top int
	// at is how many characters of each answer came before.
	at map[int]int
	// ahead are events of the first answer with tokens whose text is yet to come. Where that
	// never comes, as another replica goes on with the answer, it has these tokens once more.
	ahead []aheadOfText
	held  int // bytes of them
}

// aheadOfText is an event that has logprobs and no text, after which the answer had n tokens.
type aheadOfText struct {
	data []byte
	n    int
}

// maxAhead bounds the bytes of events that are kept back until their text comes.
const maxAhead = 64 << 10

// logprobs is OpenAI's shape of them.
type logprobs struct {
	Tokens  []string             `json:"tokens"`
	Values  []float64            `json:"token_logprobs"`
	Top     []map[string]float64 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

func (l *legacy) event(c *chunk) ([]byte, error) {
	choices := c.value("choices")
	// Within a JSON value no string can hold these bytes: its quotes are escaped.
	if bytes.IndexByte(choices, '{') < 0 || !bytes.Contains(choices, []byte(`"index":0`)) {
		return l.pass(c)
	}
	ended := bytes.Contains(choices, []byte(`"finish_reason":"`))
	n, counted := numberAt(c.value("timings"), `"predicted_n":`)
	for counted && !ended && len(l.ahead) > 0 && l.ahead[len(l.ahead)-1].n >= n {
		l.held -= len(l.ahead[len(l.ahead)-1].data)
		l.ahead = l.ahead[:len(l.ahead)-1]
	}
	if counted && !ended && bytes.Contains(choices, []byte(`"text":""`)) && bytes.Contains(choices, []byte(`"logprobs":{`)) && l.held+len(c.data) <= maxAhead {
		l.ahead = append(l.ahead, aheadOfText{bytes.Clone(c.data), n})
		l.held += len(c.data)
		return nil, nil
	}
	var out []byte
	for _, a := range l.ahead {
		kept := chunk{data: a.data}
		if err := outlineInto(&kept.out, a.data); err != nil {
			return nil, err
		}
		b, err := l.pass(&kept)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	l.ahead, l.held = nil, 0
	b, err := l.pass(c)
	if out == nil {
		return b, err
	}
	return append(out, b...), err
}

// pass gives the reply an event with its logprobs turned.
func (l *legacy) pass(c *chunk) ([]byte, error) {
	b, err := l.turned(c)
	if err != nil {
		return nil, err
	}
	turned := chunk{data: b}
	if err := outlineInto(&turned.out, b); err != nil {
		return nil, err
	}
	return l.reply.event(&turned)
}

// turned is the chunk with its logprobs as OpenAI has them.
func (l *legacy) turned(c *chunk) ([]byte, error) {
	var choices []map[string]json.RawMessage
	at := c.out.get("choices")
	if !at.found() || bytes.IndexByte(at.of(c.data), '{') < 0 {
		return c.data, nil
	}
	if err := json.Unmarshal(at.of(c.data), &choices); err != nil {
		return nil, err
	}
	for _, choice := range choices {
		var is struct {
			Index    int    `json:"index"`
			Text     string `json:"text"`
			Logprobs *struct {
				Content []struct {
					Token   string  `json:"token"`
					Logprob float64 `json:"logprob"`
					Top     []struct {
						Token   string  `json:"token"`
						Logprob float64 `json:"logprob"`
					} `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		}
		whole, err := json.Marshal(choice)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(whole, &is); err != nil {
			return nil, err
		}
		offset := l.at[is.Index]
		if is.Logprobs != nil {
			p := logprobs{Tokens: []string{}, Values: []float64{}, Top: []map[string]float64{}, Offsets: []int{}}
			for _, t := range is.Logprobs.Content {
				likely := map[string]float64{}
				for _, o := range t.Top[:min(len(t.Top), l.top)] {
					likely[o.Token] = o.Logprob
				}
				p.Tokens, p.Values, p.Top, p.Offsets = append(p.Tokens, t.Token), append(p.Values, t.Logprob), append(p.Top, likely), append(p.Offsets, offset)
				offset += utf8.RuneCountInString(t.Token)
			}
			choice["logprobs"] = encodeJSON(p)
		}
		if len(l.at) < maxAnswers {
			l.at[is.Index] += utf8.RuneCountInString(is.Text)
		}
	}
	return append(append(append([]byte(nil), c.data[:at.start]...), encodeJSON(choices)...), c.data[at.end:]...), nil
}
