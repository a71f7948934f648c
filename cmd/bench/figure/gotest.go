package figure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// GoTest runs tests or benchmarks and returns what they print, in the folder of
// their package: elsewhere go shows nothing of it. Entries of env, such as A=b,
// are added to the environment.
func GoTest(ctx context.Context, folder string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return string(out), nil
}
