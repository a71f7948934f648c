// Package chat holds the shapes of OpenAI's chat and text completions as far as
// relay reads and writes them: a request's fields, the chunks of a stream, and
// the answer that a stream's chunks make.
//
// It promises that what was put together of a stream is what the engine would
// have answered unstreamed, within the bytes that it was granted, and that no
// bytes from outside make it panic. It knows no network, no clock and no
// engine: what it needs of them is handed in.
package chat
