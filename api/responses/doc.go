// Package responses is OpenAI's Responses API in terms of a chat completion: a
// request becomes a chat request, and the chunks of its answer become events or
// one response.
//
// It is stateless: what needs an answer that was kept is refused by name, as is
// every field that relay can neither honour nor pass on. It knows no network and
// no clock, and no bytes from outside make it panic.
package responses
