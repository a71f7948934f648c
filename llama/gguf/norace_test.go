//go:build !race

package gguf

const raced = false
