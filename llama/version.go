package llama

import "regexp"

// Version is what `llama-server --version` says.
type Version struct {
	// Name is the version, such as "0.4.0-dev"; builds before llama.cpp had
	// versions have only a number.
	Name string
	// Commit is the commit as short as it is printed.
	Commit string
}

var (
	// version: 0.4.0-dev (build 1, commit 80fb11a)
	versionNew = regexp.MustCompile(`(?m)^version: (\S+) \(build \d+, commit ([0-9a-f]{6,40})\)`)
	// version: 4567 (abcdef12)
	versionOld = regexp.MustCompile(`(?m)^version: (\d+) \(([0-9a-f]{6,40})\)`)
)

// ParseVersion reads the output of `llama-server --version`. What is not the
// output of a llama.cpp program gives the zero Version.
func ParseVersion(output string) Version {
	for _, re := range []*regexp.Regexp{versionNew, versionOld} {
		if m := re.FindStringSubmatch(output); m != nil {
			return Version{Name: m[1], Commit: m[2]}
		}
	}
	return Version{}
}
