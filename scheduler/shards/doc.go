// Package shards plans how several peers run one model together that none of them
// could hold whole: who coordinates, who works for it, and which layers go where.
//
// It promises: the same problem gives the same plan, whatever order the members come
// in; no device is asked for more than it has for the verdict; a peer that is trusted
// with shards only gets layers in the middle; as few peers as do take part; and what
// is not planned is refused in one sentence, with the figures.
//
// It is pure: no clock, no network, no goroutine, no memory between calls. The peers
// have the last word (package ledger).
package shards
