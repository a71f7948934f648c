package scheduler

import (
	"context"
	"net/http"
)

// ServedModel is a model as clients of /v1 see it.
type ServedModel struct {
	UID  string
	Name string
	// Context is the number of tokens one slot holds; 0 while unknown.
	Context int
	// Created is when the model was registered, in Unix seconds, by the clock
	// of the peer that registered it. For display only.
	Created int64
	// Kind is chat, embed or rerank.
	Kind string
	// Tools: its chat template has a place for tools. Where there is none the engine
	// leaves a request's tools out of the prompt without a word, whatever tool_choice
	// says. Images: it has a projector that reads them. Unknown: it was registered by a
	// release that did not look, and both are false; adding it again fills them in.
	Tools, Images, Unknown bool
	// Aliases are the further names that mean this model and no other. Fallback is the
	// name of the model that an admin lets answer in its stead, or empty.
	Aliases  []string
	Fallback string
}

// Want is what a request asks for: the model, and what helps to choose who answers.
type Want struct {
	// UID is the model's.
	UID string
	// Tried are the marks of the replicas, or the ids of the peers, that already failed
	// this request, in order.
	Tried []string
	// Prefix are hashes of the prompt's leading blocks, each with all before it, from the
	// shortest to the longest; two requests that begin alike begin with the same ones. The
	// first Shared of them are of what many begin with, such as a system prompt and tools.
	// Tokens is how long the prompt is, about; 0 where nobody knows.
	Prefix         []uint64
	Shared, Tokens int
	// Answers is how many of the engine's slots the request takes at the same time; 0
	// counts as 1. Light says that it takes none: it only reads or writes tokens.
	Answers int
	Light   bool
	// Key is the id of the key that it came with, for Serve behind that of the peer that
	// says so: those of one key share its turns. Batch says that it gives way to others.
	Key   string
	Batch bool
	// Continues says that a part of the answer is there already, and what is left of it is
	// asked for: it comes before what has not begun.
	Continues bool
}

// Load is how busy a replica is.
type Load struct {
	// Running are the requests in its slots, of which there are Slots, Waiting those that
	// wait for one.
	Running, Waiting, Slots int
}

// Route is the one replica that was picked to serve one attempt of a request.
type Route struct {
	Model ServedModel
	// Peer is the full peer id of the machine that serves; PeerName its name.
	Peer, PeerName string
	// Mark names the replica as it was when it was picked, for Route's tried.
	Mark string
	// Local says that the replica runs on this very peer.
	Local bool
	// Path is how the peer is reached: "local", "direct" or "relay".
	Path string
	// Hardware is what the replica computes on, for people, as its peer says it.
	Hardware string
	// Client carries a request to the replica: to the engine's own socket where
	// Local, to the other peer's hop handler otherwise. Only the URL's path and
	// query count; host and scheme are ignored.
	Client http.RoundTripper
	// Away ends once the answer had better go on elsewhere: the replica's peer does not
	// answer or is drained, or the replica is on its way out, and another one is ready.
	// Its cause is an *Error that says which. Who cannot go on elsewhere takes no notice.
	// nil is never.
	Away context.Context
	// Heard takes how busy the replica says it is, as often as it says so. It may be nil.
	Heard func(Load)
	// Done must be called exactly once, when the attempt is over. It takes the
	// error that ended it, or nil when the whole answer was passed on.
	Done func(err error)
}

// Lease is a slot on this peer's own replica, held while one forwarded request
// is served.
type Lease struct {
	Model ServedModel
	// Client reaches the engine's socket; only path and query of the URL count.
	Client http.RoundTripper
	// Load is how busy the replica is, this request included.
	Load Load
	// Done gives the slot back; it must be called exactly once.
	Done func(err error)
}
