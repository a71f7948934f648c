package gpu

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"strings"
)

// Ask runs a program that answers and exits, and returns what it wrote. It
// bounds how long that takes and how much is read. Its error is exec.ErrNotFound
// or fs.ErrNotExist where there is no such program.
type Ask func(ctx context.Context, program string, args ...string) (string, error)

// askFirst asks the first of these places of a program where it is. program is
// "" where it is in none.
func askFirst(ctx context.Context, ask Ask, places []string, args ...string) (program, out string, err error) {
	for _, place := range places {
		out, err := ask(ctx, place, args...)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return place, out, err
	}
	return "", "", nil
}

// saidLine is the first line that a failed program wrote, or why it failed.
func saidLine(out string, err error) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return err.Error()
}
