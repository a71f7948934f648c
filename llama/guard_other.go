//go:build !linux

package llama

import "context"

// tryGuard says why ports cannot be guarded.
func tryGuard(context.Context, []string) error { return errNoGuard }
