// Package gguftest makes GGUF files for tests: right ones of any kind, split
// sets, a tiny projector, and wrong ones out of raw values. It promises the same
// bytes each time. Nothing but tests imports it, and no file from outside comes
// near it: it believes what it reads.
package gguftest
