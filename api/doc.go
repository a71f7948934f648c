// Package api holds the doors of a peer: /v1 for clients, the hop by which one
// peer's door hands a request to another peer's, and the control API for the
// command line.
//
// It owns what enters and leaves over HTTP: keys at the entrance, the shape of
// every error, what each route takes and how its answers look, the choice to try
// elsewhere, and the passing on of answers event by event. It promises that a
// request either gets its whole answer or an error that says why, in the shape
// that its client knows, that nothing a client asks for is ignored, and that a
// client that goes away stops the work. It never picks a replica, never starts an
// engine, never keeps a prompt or an answer, and never writes text or keys to the log.
package api
