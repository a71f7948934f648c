// Package messages is Anthropic's Messages API in terms of a chat completion: a
// request becomes a chat request, and the chunks of its answer become events or
// one message.
//
// Every field that relay can neither honour nor pass on is refused by name. It
// knows no network and no clock, and no bytes from outside make it panic.
package messages
