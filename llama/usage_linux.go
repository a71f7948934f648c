package llama

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// private is what of a process's resident memory is no file's and not shared.
func private(pid int, rss uint64) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return rss
	}
	for line := range bytes.Lines(data) {
		// RssAnon:	   34812 kB
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == "RssAnon:" {
			if n, err := strconv.ParseUint(string(f[1]), 10, 48); err == nil {
				return min(n<<10, rss)
			}
		}
	}
	return rss
}
