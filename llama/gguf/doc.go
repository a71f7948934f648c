// Package gguf reads the headers of GGUF files: what a model is, and how much
// memory it takes to serve it. It is the one door to the parser: every file, from
// wherever it came, is walked with fixed bounds before the parser sees it. A
// file that lies, is cut short, or is none gets an error in words, never a panic
// and never an allocation that it chose. It never reads a tensor's data.
package gguf
