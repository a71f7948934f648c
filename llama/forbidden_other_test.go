//go:build unix && !linux

package llama

func tryForbidden([]string) int { return 2 }
