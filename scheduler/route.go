package scheduler

import (
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
	// Done gives the slot back; it must be called exactly once.
	Done func(err error)
}
