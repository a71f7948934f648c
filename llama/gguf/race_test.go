//go:build race

package gguf

// raced: the race detector allocates too, and makes everything slow.
const raced = true
