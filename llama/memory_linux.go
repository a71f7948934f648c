package llama

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// cgroupMemory is the tightest memory limit of the cgroups around this process
// and what is left under it. ok is false where there is none.
func cgroupMemory() (limit, left uint64, ok bool) { return cgroupMemoryIn(os.DirFS("/")) }

// cgroupMemoryIn reads the files below root, the tests' or the real "/".
func cgroupMemoryIn(root fs.FS) (limit, left uint64, ok bool) {
	limit, left = math.MaxUint64, math.MaxUint64
	consider := func(max, used, reclaimable uint64) {
		used -= min(used, reclaimable)
		limit, left, ok = min(limit, max), min(left, max-min(max, used)), true
	}
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var base, usedFile, fileKey string
		var limits []string
		switch {
		case f[0] == "0" && f[1] == "":
			base, usedFile, fileKey = "sys/fs/cgroup", "memory.current", "inactive_file"
			limits = []string{"memory.max", "memory.high"} // Above high it is slowed down until it gives memory back.
		case strings.Contains(","+f[1]+",", ",memory,"):
			base, usedFile, fileKey = "sys/fs/cgroup/memory", "memory.usage_in_bytes", "total_inactive_file"
			limits = []string{"memory.limit_in_bytes"}
		default:
			continue
		}
		// A limit on any group above counts too. In a container the path may
		// be the host's and lead nowhere; then only the root is there.
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			d := path.Join(base, dir)
			for _, file := range limits {
				if max, ok := readCount(root, path.Join(d, file)); ok {
					used, _ := readCount(root, path.Join(d, usedFile))
					consider(max, used, readStat(root, path.Join(d, "memory.stat"), fileKey))
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, left, ok
}

// readCount reads a file with one number. "max", or a number that no machine
// has, means no limit.
func readCount(root fs.FS, name string) (uint64, bool) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil && n < 1<<60
}

// readStat is one value of a memory.stat file; 0 where it is not there.
func readStat(root fs.FS, name, key string) uint64 {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
