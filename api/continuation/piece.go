package continuation

import (
	"bytes"
	"encoding/json"
	"fmt"

	"relay/api/chat"
)

// Piece is what one chunk of a streamed completion says, as far as it counts here. It is
// read into again and again, and holds parts of the chunk that it was read from.
type Piece struct {
	id, created, model, fingerprint json.RawMessage
	// choices is how many there are, index that of the first.
	choices, index int
	// content and reasoning are the text that the chunk adds.
	content, reasoning []byte
	// role: the chunk says who speaks; tools: it brings a piece of a tool call.
	role, tools bool
	// finish is why the answer ends, quoted; nil while it goes on.
	finish json.RawMessage
	// ids are those of the tokens that the chunk tells, bytes what they are to the text; the
	// last bytes of it, lastLen of them, are the last token's. unknown says that a token was
	// told without an id.
	ids     []int32
	bytes   []byte
	lastLen int
	unknown bool
	// whole says that the last token's bytes are all that the token is: a token of which a
	// stop string took a part shows the rest alone. ended says that one did, and left a rest:
	// nothing but the finish comes then.
	whole, ended bool
	// told says that the chunk has the engine's counters, which are timings.
	told    bool
	counts  chat.Timings
	timings json.RawMessage
	// usage is nil where there is none; progress says that the chunk tells how far the
	// prompt is read, whose tokens are then total, of which cached are not computed anew.
	usage         json.RawMessage
	progress      bool
	total, cached int

	// wrong says that something is of another kind than it must be.
	wrong bool
}

// maxCount bounds what an engine may say of how many tokens there are.
const maxCount = 1 << 30

// Read reads a chunk, a JSON object that is neither [DONE] nor null, into p, whatever was
// there before; data must stay as it is until p is read into again. The error is
// chat.ErrChunk.
func (p *Piece) Read(data []byte) error {
	*p = Piece{ids: p.ids[:0], bytes: p.bytes[:0]}
	isObject := chat.Members(data, func(name []byte, v json.RawMessage) {
		if isNull(v) {
			return
		}
		switch string(name) {
		case "id":
			p.id = v
		case "created":
			p.created = v
		case "model":
			p.model = v
		case "system_fingerprint":
			p.fingerprint = v
		case "choices":
			p.list(v, p.choice)
		case "timings":
			p.told, p.timings = true, v
			p.object(v, p.counter)
		case "usage":
			p.usage = v
		case "prompt_progress":
			p.progress = true
			p.object(v, func(name []byte, v json.RawMessage) {
				switch string(name) {
				case "total":
					p.total = p.count(v)
				case "cache":
					p.cached = p.count(v)
				}
			})
		}
	})
	if !isObject || p.wrong {
		return fmt.Errorf("%w: it is not JSON, or a field is of another kind", chat.ErrChunk)
	}
	return nil
}

func (p *Piece) object(v json.RawMessage, each func(name []byte, v json.RawMessage)) {
	if !isNull(v) && !chat.Members(v, each) {
		p.wrong = true
	}
}

func (p *Piece) list(v json.RawMessage, each func(v json.RawMessage)) {
	if !isNull(v) && !chat.Elements(v, each) {
		p.wrong = true
	}
}

func (p *Piece) text(v json.RawMessage) []byte {
	if isNull(v) {
		return nil
	}
	text, ok := chat.Unquote(v)
	p.wrong = p.wrong || !ok
	return text
}

// count reads a number of tokens.
func (p *Piece) count(v json.RawMessage) int {
	n, ok := whole(v)
	if !ok || n < 0 || n > maxCount {
		p.wrong = true
		return 0
	}
	return int(n)
}

func (p *Piece) counter(name []byte, v json.RawMessage) {
	switch string(name) {
	case "cache_n":
		p.counts.Cached = p.count(v)
	case "prompt_n":
		p.counts.Prompt = p.count(v)
	case "predicted_n":
		p.counts.Answer = p.count(v)
	}
}

func (p *Piece) choice(v json.RawMessage) {
	if p.choices++; p.choices > 1 {
		return
	}
	p.object(v, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "index":
			p.index = p.count(v)
		case "text":
			p.content = p.text(v)
		case "delta":
			p.object(v, p.delta)
		case "finish_reason":
			if !isNull(v) {
				p.finish = v
			}
		case "logprobs":
			p.object(v, func(name []byte, v json.RawMessage) {
				if string(name) == "content" {
					p.list(v, p.token)
				}
			})
		}
	})
}

func (p *Piece) delta(name []byte, v json.RawMessage) {
	switch string(name) {
	case "role":
		p.role = true
	case "content":
		p.content = p.text(v)
	case "reasoning_content":
		p.reasoning = p.text(v)
	case "tool_calls":
		p.tools = p.tools || !isNull(v)
	}
}

// token takes one entry of the logprobs.
func (p *Piece) token(v json.RawMessage) {
	var id, bytes, top json.RawMessage
	p.object(v, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "id":
			id = v
		case "bytes":
			bytes = v
		case "top_probs", "top_logprobs":
			top = v
		}
	})
	n, ok := whole(id)
	if !ok || n < 0 || n > maxID {
		p.unknown = true
		return
	}
	p.ids = append(p.ids, int32(n))
	from := len(p.bytes)
	p.bytes, ok = appendBytes(p.bytes, bytes)
	p.wrong = p.wrong || !ok
	p.lastLen = len(p.bytes) - from
	own := ownBytes(top, id)
	p.whole = own != nil && string(own) == string(bytes)
	p.ended = own != nil && p.lastLen > 0 && !isTail(own, bytes)
}

// maxID is the largest id that a token may have.
const maxID = 1<<31 - 1

// appendBytes appends what a list of bytes, or null, has.
func appendBytes(dst []byte, list json.RawMessage) (all []byte, ok bool) {
	if isNull(list) {
		return dst, true
	}
	if list[0] != '[' {
		return dst, false
	}
	n, digits := 0, 0
	for _, c := range list[1:] {
		switch {
		case c >= '0' && c <= '9' && digits < 3:
			n, digits = n*10+int(c-'0'), digits+1
		case c == ',' || c == ']':
			if n > 255 {
				return dst, false
			}
			if digits > 0 {
				dst = append(dst, byte(n))
			}
			n, digits = 0, 0
		case c != ' ' || digits > 0:
			return dst, false
		}
	}
	return dst, true
}

// ownBytes are those of a token, a list, if it is among the likeliest, which are told with all
// of theirs.
func ownBytes(top, id json.RawMessage) (own json.RawMessage) {
	chat.Elements(top, func(v json.RawMessage) {
		var its, bytes json.RawMessage
		chat.Members(v, func(name []byte, v json.RawMessage) {
			switch string(name) {
			case "id":
				its = v
			case "bytes":
				bytes = v
			}
		})
		if string(its) == string(id) {
			own = bytes
		}
	})
	return own
}

// isTail says whether a list of numbers ends another one, both written alike.
func isTail(tail, list json.RawMessage) bool {
	if len(tail) < 2 || len(tail) > len(list) {
		return false
	}
	inner := tail[1:]
	before := list[len(list)-len(inner)-1]
	return bytes.HasSuffix(list, inner) && (len(inner) == 1 || before == '[' || before == ',')
}

func isNull(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// whole reads a whole number of at most 18 digits.
func whole(v json.RawMessage) (n int64, ok bool) {
	digits := v
	if len(v) > 0 && v[0] == '-' {
		digits = v[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(v) {
		n = -n
	}
	return n, true
}
