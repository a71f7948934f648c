// Package gguf reads the headers of GGUF files: what a model is, and how much
// memory it takes to serve it. It is the one door to the parser, which reads no
// file by itself: relay walks each file, from wherever it came, with fixed
// bounds, and hands on what it found and checked. A file that lies, is cut
// short, or is none gets an error in words: never a panic, never a loop or an
// allocation of a length that it chose. It never reads a tensor's data.
package gguf
