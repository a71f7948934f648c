package content

import (
	"strings"

	"github.com/ipfs/go-cid"
)

// fileName makes a file's name out of a model's, which may hold anything, and
// the end of its CID: letters, digits, dot, dash and underscore, at most 80
// characters before the CID, never hidden, never a device of Windows.
func fileName(name string, root cid.Cid) string {
	name = strings.TrimSuffix(name, ".gguf")
	var b strings.Builder
	for _, r := range name {
		if b.Len() >= 80 {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	clean := strings.Trim(b.String(), "-.")
	if clean == "" {
		clean = "model"
	}
	tail := root.String()
	return clean + "-" + tail[max(0, len(tail)-10):]
}
