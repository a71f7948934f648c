package api

import (
	"bytes"
	"net/http"

	"relay/api/chat"
)

// dialect is what clients of one route speak. It turns a request's body into what an
// engine is asked; header is the client's. The body is not changed and stays as it is
// until the request is over, so that the request may hold parts of it.
type dialect func(header http.Header, body []byte) (*request, *refusal)

// Kinds of models, as ServedModel.Kind has them.
const (
	kindChat   = "chat"
	kindEmbed  = "embed"
	kindRerank = "rerank"
)

// request is what a client wants, in the engine's words. readRequest makes one of what a client
// sent, translated one of what relay wrote.
type request struct {
	// path is the engine's: one of those in forwarded.
	path string
	// body is JSON, members are those of its members that the engine gets, changed by the
	// edits, and added are more of them, each with a comma before it. For the model's name
	// the uid of the model is sent.
	body    []byte
	members []member
	edits   []edit
	added   [][]byte
	// model is the model's name as the client wrote it, at most 512 bytes.
	model string
	// asks is the field of the client's body that holds what is asked: a refusal of its
	// text names it. Empty counts as messages.
	asks string
	// kind is the kind of model that can answer; empty where every kind can.
	kind string
	// tools and images say that the answer needs a model that can do such a thing.
	tools, images bool
	// ids is how many token ids the longest prompt has, text how many bytes of JSON the
	// longest text takes; 0 where that says nothing of what the engine will read.
	ids, text int
	// stream says that the client wants events.
	stream bool
	// answers is how many answers each prompt gets, prompts how many prompts there are; 0
	// counts as 1. progress says that the client wants to see how far its prompt is.
	answers, prompts int
	progress         bool
	// tracked says that an answer of this kind can be gone on with by another replica when
	// its own is lost; completion is what the engine's chunks are of.
	tracked    bool
	completion chat.Kind
	// single says that the client wants one tool call at most in each answer; the engine
	// does not keep every model to that.
	single bool

	// One of these two is set.

	// reply makes what renders the engine's events for this client; it is called once
	// for each time that the answer is begun. The engine is asked for a stream, however the client wants it.
	reply func(c *call, model string) reply
	// whole renders the engine's whole answer, JSON in UTF-8, for the client. What it
	// cannot read is an error, and the engine's fault.
	whole func(c *call, model string, answer []byte) ([]byte, error)

	// then, where it is set beside whole, is asked first: it makes the request that the
	// same replica is asked next, of the engine's answer to this one. whole then renders
	// the answer to that.
	then func(answer []byte) (*request, error)
}

// reply renders one answer, event by event. model is what the answer is to call the
// model: the name that the client used, or that of the fallback that answers. All of its
// methods are called from one goroutine at a time. What they return is sent at once,
// must not be changed later and may be empty.
type reply interface {
	// event takes the payload of one event: a chat or text completion chunk, which is a
	// JSON object. It is not called for comments, errors, null, the engine's own account
	// of how far the prompt is, nor [DONE]. It may keep c.data, but not c.out. For an
	// answer that is not streamed it returns nothing. An error is the engine's fault,
	// unless it is chat.ErrTooLarge.
	event(c *chunk) ([]byte, error)
	// end returns what a whole answer ends with: the last events, or the whole body of
	// one that is not streamed. u is what the engine says it took.
	end(u usage) ([]byte, error)
	// failed returns the events that end an answer that breaks off.
	failed(no *refusal) []byte
	// keepAlive returns what is sent after a silence: waiting is fit for it. It is called
	// for streams only, possibly before any event and from another goroutine, though never
	// at the same time as another method.
	keepAlive() []byte
}

// chunk is one event of the engine's.
type chunk struct {
	data []byte
	out  outline
}

// value is the value of a member of the chunk; nil where there is none.
func (c *chunk) value(name string) []byte {
	at := c.out.get(name)
	return at.of(c.data)
}

// furtherCall says whether the chunk is a piece of a tool call after the first one.
func (c *chunk) furtherCall() bool {
	choices := c.value("choices")
	// Within a JSON value no string can hold these bytes: its quotes are escaped.
	at := bytes.Index(choices, []byte(`"tool_calls":`))
	if at < 0 {
		return false
	}
	nth, ok := numberAt(choices[at:], `"index":`)
	return ok && nth > 0
}

// usage is what an answer took, in tokens.
type usage struct {
	// Prompt counts the prompt once, however many answers there are to it; Cached are
	// those of it that were not computed anew.
	Prompt, Completion, Cached int
}

// edit replaces a part of a body.
type edit struct {
	at   span
	text []byte
}

// waiting is the comment that keeps a stream alive.
var waiting = []byte(": waiting\n\n")

// shape is how refusals look in a client's language.
type shape interface {
	// body is a refusal as a whole answer's JSON, without a newline at its end; id is the
	// request's.
	body(no *refusal, id string) []byte
	// event is a refusal as the event that ends a stream.
	event(no *refusal, id string) []byte
	// header adds to the headers of every answer, refusals or not.
	header(h http.Header, id string)
}

// The engine's routes.
const (
	pathChat       = "/v1/chat/completions"
	pathText       = "/v1/completions"
	pathEmbeddings = "/v1/embeddings"
	pathRerank     = "/v1/rerank"
	pathTokenize   = "/tokenize"
	pathDetokenize = "/detokenize"
	pathTemplate   = "/apply-template"
)

// forwarded are the engine's routes that requests are sent on to, between peers too.
func forwarded(path string) bool {
	switch path {
	case pathChat, pathText, pathEmbeddings, pathRerank, pathTokenize, pathDetokenize, pathTemplate:
		return true
	}
	return false
}
