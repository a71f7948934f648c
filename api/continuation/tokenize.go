package continuation

import (
	"encoding/json"

	"relay/api/chat"
)

// anchors are what a text is tokenised behind, each on its own: many vocabularies put a space
// before whatever text begins, and join a text's first characters with some that are before
// it, but hardly with both of these.
var anchors = []string{"\n", "a"}

// tokenize is the body that asks for the tokens of all runs that are known by their text.
func (p *Plan) tokenize() []byte {
	b := []byte(`{`)
	if model := p.q.value("model"); model != nil {
		b = append(append(append(b, `"model":`...), model...), ',')
	}
	b = append(b, `"add_special":false,"parse_special":false,"with_pieces":true,"content":[`...)
	first := true
	p.texts(func(_ run, text string) bool {
		for _, anchor := range anchors {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = chat.Quote(b, anchor+text)
		}
		return true
	})
	return append(b, "]}"...)
}

// texts calls each for the runs that are known by their text, in order, while it says true.
func (p *Plan) texts(each func(r run, text string) bool) {
	at := 0
	for _, r := range p.tokens.runs {
		end := r.text - p.from
		if r.byText && !each(r, p.content[at:end]) {
			return
		}
		at = end
	}
}

// piece is a token of the engine's answer to /tokenize.
type piece struct {
	id   int32
	text string
}

// joined are the ids of all runs, with those of the engine's answer for the runs that are
// known by their text. ok is false where the tokens are not exactly of the text, or, in a
// chat, may be others than there were: then some may have been hidden, and mean something to
// what reads the rest.
func (p *Plan) joined(answer []byte) (ids []int32, ok bool) {
	pieces, ok := readPieces(answer)
	if !ok {
		return nil, false
	}
	ids = make([]int32, 0, len(p.tokens.ids)+len(pieces)/2)
	from := 0
	runs := p.tokens.runs
	i := 0
	p.texts(func(r run, text string) bool {
		for ; !runs[i].byText; i++ {
			ids = append(ids, p.tokens.ids[from:runs[i].ids]...)
			from = runs[i].ids
		}
		i++
		var best []int32
		same := false
		for _, anchor := range anchors {
			var found []int32
			if found, pieces, ok = behind(pieces, anchor, text); !ok {
				return false
			}
			if found == nil || same {
				continue
			}
			if same = len(found) == r.count && found[len(found)-1] == r.lastID; same || best == nil {
				best = found
			}
		}
		ok = (best != nil || text == "") && (same || !r.hole || p.t.kind == chat.OfText)
		ids = append(ids, best...)
		return ok
	})
	return append(ids, p.tokens.ids[from:]...), ok
}

// behind takes the pieces that are an anchor with a text behind it, and gives the ids of the
// text's: nil where a token has a part of both. rest are the pieces after them. ok is false
// where they are of another text.
func behind(pieces []piece, anchor, text string) (ids []int32, rest []piece, ok bool) {
	all := anchor + text
	if len(pieces) > 0 && len(pieces[0].text) > 0 && pieces[0].text[0] == ' ' {
		all = " " + all // The vocabulary's own.
	}
	begins := len(all) - len(text)
	for at := 0; at < len(all); {
		if len(pieces) == 0 {
			return nil, nil, false
		}
		one := pieces[0]
		pieces = pieces[1:]
		if len(one.text) > len(all)-at || all[at:at+len(one.text)] != one.text {
			return nil, nil, false
		}
		switch {
		case at >= begins && (ids != nil || at == begins):
			ids = append(ids, one.id)
		case at+len(one.text) > begins: // It is of both.
			begins = len(all) + 1
		}
		at += len(one.text)
	}
	return ids, pieces, true
}

// readPieces reads the engine's answer to /tokenize.
func readPieces(answer []byte) (pieces []piece, ok bool) {
	ok = true
	isList := chat.Elements(memberOf(answer, "tokens"), func(v json.RawMessage) {
		var one piece
		id := int64(-1)
		isObject := chat.Members(v, func(name []byte, v json.RawMessage) {
			switch string(name) {
			case "id":
				id, _ = whole(v)
			case "piece":
				if v[0] == '[' {
					var b []byte
					chat.Elements(v, func(v json.RawMessage) {
						n, _ := whole(v)
						b = append(b, byte(n))
					})
					one.text = string(b)
				} else {
					one.text = text(v)
				}
			}
		})
		ok = ok && isObject && id >= 0 && id <= maxID
		one.id = int32(id)
		pieces = append(pieces, one)
	})
	return pieces, ok && isList
}
