package continuation

import (
	"encoding/json"
	"slices"
	"strings"

	"relay/api/chat"
)

// Ways of going on.
const (
	// ByIDs: from the tokens themselves, or from the request where nothing was delivered.
	ByIDs = "ids"
	// ByText: from their text. It is a valid way to go on, but at no temperature sure to be
	// that of the first engine.
	ByText = "text"
)

// The engine's routes.
const (
	pathChat     = "/v1/chat/completions"
	pathText     = "/v1/completions"
	pathTokenize = "/tokenize"
	pathTemplate = "/apply-template"
)

// Cannot is why an answer cannot be gone on with.
type Cannot struct {
	// Why goes on a sentence that begins with "the answer cannot be continued:", and has no
	// full stop.
	Why string
}

func (c *Cannot) Error() string { return "the answer cannot be continued: " + c.Why }

// Plan is one try to go on. It belongs to one replica: at the next one, or for another try,
// the Track is asked for a new one; and it is of what was delivered when it was made.
type Plan struct {
	t    *Track
	q    request
	body []byte
	chat conversation
	by   string
	// left is how many tokens the answer may still have; -1 is as many as fit.
	left int
	// content and reasoning were delivered, but for what the client itself began with; from
	// is where content begins in the Track's.
	content, reasoning string
	from               int
	tokens             tokens
	// next are the requests to come.
	next   []Ask
	ending [][]byte
}

// Ask is one request to the engine that goes on.
type Ask struct {
	Path string // one of the engine's routes: /apply-template, /tokenize, or a completion's
	Body []byte // JSON, with the model's name as it was in the first engine's body
	// Stream says that this is the last request: its answer is the stream that a Seam reads.
	// The answers to those before it are whole, and go to Answer.
	Stream bool
}

// Plan says how the answer is gone on with. body is what the first engine was asked, JSON
// with every member that it was sent; it must stay as it is while the plan is used. The error
// is a *Cannot. To ask for a plan changes nothing: it may be asked for only to see whether
// there is one.
func (t *Track) Plan(body []byte) (*Plan, error) {
	q, ok := readRequest(body)
	switch {
	case !ok:
		return nil, &Cannot{"what the engine was asked is not known"}
	case t.lost != "":
		return nil, &Cannot{t.lost}
	case q.several():
		return nil, &Cannot{"it is one of several answers to one request"}
	}
	p := &Plan{t: t, q: q, body: body, by: ByIDs, left: q.limit()}
	if t.finish != nil {
		p.ending = t.ending(nil)
		return p, nil
	}
	if t.content.Len()+t.reasoning.Len() == 0 && !t.tools {
		p.next = []Ask{{Path: t.path(), Body: body, Stream: true}}
		return p, nil
	}
	if t.stopped && t.end() == t.content.Len() { // All that the parser of a chat had is delivered.
		p.ending = t.ending([]byte(`"stop"`))
		return p, nil
	}
	if p.left >= 0 {
		if p.left = max(p.left-t.kept, 0); p.left == 0 {
			p.ending = t.ending([]byte(`"length"`))
			return p, nil
		}
	}
	if t.tools {
		return nil, &Cannot{"it is within a tool call"}
	}
	if why := q.cannot(); why != "" {
		return nil, &Cannot{why}
	}
	p.content, p.reasoning, p.tokens = t.content.String(), t.reasoning.String(), t.tokens.cut(t.content.Len())
	if t.kind == chat.OfChat {
		p.chat = readMessages(q.value("messages"))
		p.withoutEcho()
	}
	if t.parsed || t.kind == chat.OfChat && (p.q.tools() || p.chat.media || p.hidden()) {
		return p, p.byText()
	}
	if q.stops() {
		p.tokens.doubt()
	}
	return p, p.byIDs()
}

// Next is what the engine is asked now; it says the same until Answer was called. It must not
// be called where there is an Ending.
func (p *Plan) Next() Ask { return p.next[0] }

// Answer takes the engine's whole answer to a request that is not the last. An answer that
// cannot be read, such as a refusal, leads to another way, where there is one; the error is a
// *Cannot.
func (p *Plan) Answer(answer []byte) error {
	asked := p.next[0]
	p.next = p.next[1:]
	switch asked.Path {
	case pathTokenize:
		ids, ok := p.joined(answer)
		if !ok {
			return p.byText()
		}
		p.tokens.ids, p.tokens.runs = ids, nil
	case pathTemplate:
		prompt := memberOf(answer, "prompt")
		if len(prompt) == 0 || prompt[0] != '"' {
			return p.byText()
		}
		p.q.members = append(slices.Clip(p.q.members), member{"prompt", prompt})
	}
	if len(p.next) == 0 {
		p.last(pathText, p.completion(p.tokens.ids))
	}
	return nil
}

// By is how the answer is gone on with, ByIDs or ByText. It may change with Answer, until
// Next is the last request.
func (p *Plan) By() string { return p.by }

// Ending are the chunks that are left of an answer that needs no engine any more: it had all
// its tokens, or its finish was delivered and its usage was not. They are as a Seam's. nil
// where an engine has to be asked; empty where nothing is left.
func (p *Plan) Ending() [][]byte { return p.ending }

// Full are the chunks that end the answer when the engine that is to go on refuses the last
// request because the context is full: there the first engine would have ended it by length.
func (p *Plan) Full() [][]byte { return p.t.ending([]byte(`"length"`)) }

// Seam turns what the engine answers to the last request into what the first engine would
// have sent. With it the Track lets go of what the engine before it held back: nothing more
// of that one's may be delivered.
func (p *Plan) Seam() *Seam {
	p.t.forget()
	return newSeam(p.t, p.t.kind == chat.OfChat && p.next[0].Path == pathText)
}

func (t *Track) path() string {
	if t.kind == chat.OfChat {
		return pathChat
	}
	return pathText
}

// withoutEcho takes off what was delivered what the client itself began the answer with, where
// the engine repeated that before its first token.
func (p *Plan) withoutEcho() {
	own, runs := p.chat.own, p.tokens.runs
	if own == nil || len(runs) == 0 || !runs[0].more {
		return
	}
	if rest, ok := strings.CutPrefix(p.content, own.content); ok {
		p.content, p.from = rest, len(own.content)
	}
}

// hidden says that some of the tokens made no text: they are known to be another, or there
// are more of them than it has bytes.
func (p *Plan) hidden() bool {
	from := p.from
	for _, r := range p.tokens.runs {
		if r.byText && (r.odd || r.hole && r.count > r.text-from) {
			return true
		}
		from = r.text
	}
	return false
}

// byIDs plans to go on from the tokens.
func (p *Plan) byIDs() error {
	if slices.ContainsFunc(p.tokens.runs, func(r run) bool { return r.byText }) {
		p.next = append(p.next, Ask{Path: pathTokenize, Body: p.tokenize()})
	}
	if p.t.kind == chat.OfChat {
		p.next = append(p.next, Ask{Path: pathTemplate, Body: p.body})
	}
	if len(p.next) == 0 {
		p.last(pathText, p.completion(p.tokens.ids))
	}
	return nil
}

// byText plans to go on from the text.
func (p *Plan) byText() error {
	p.by, p.next = ByText, nil
	if p.t.kind == chat.OfText {
		p.last(pathText, p.q.with(p.changed("prompt"), p.prompt(chat.Quote(nil, p.content)), p.rest()))
		return nil
	}
	switch text(p.q.value("reasoning_format")) {
	case "none", "deepseek-legacy":
		return &Cannot{"its reasoning_format has reasoning and answer in one text, which cannot be taken up again"}
	}
	if p.chat.own != nil && p.chat.own.calls {
		return &Cannot{"it goes on with a message that has tool calls"}
	}
	phase := "content"
	if p.content == "" && p.reasoning != "" {
		phase = "reasoning_content"
	}
	messages := append([]byte(`,"messages":`), p.chat.longer(p.content, p.reasoning)...)
	p.last(pathChat, p.q.with(p.changed("messages", "add_generation_prompt", "continue_final_message"),
		messages, []byte(`,"add_generation_prompt":false,"continue_final_message":"`+phase+`"`), p.rest()))
	return nil
}

func (p *Plan) last(path string, body []byte) {
	p.next = []Ask{{Path: path, Body: body, Stream: true}}
}

// memberOf is the value of a member of a JSON object.
func memberOf(object []byte, name string) (v json.RawMessage) {
	chat.Members(object, func(n []byte, value json.RawMessage) {
		if string(n) == name {
			v = value
		}
	})
	return v
}
