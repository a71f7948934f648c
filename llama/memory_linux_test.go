package llama

import (
	"testing"
	"testing/fstest"
)

func TestCgroupMemory(t *testing.T) {
	files := func(pairs ...string) fstest.MapFS {
		fs := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			fs[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return fs
	}
	for _, c := range []struct {
		name        string
		fs          fstest.MapFS
		limit, left uint64
		ok          bool
	}{
		{"no files", files(), 0, 0, false},
		{"no limit", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "max\n", "sys/fs/cgroup/a/memory.current", "5\n"), 0, 0, false},
		{"limit", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "1000\n", "sys/fs/cgroup/a/memory.current", "600\n"), 1000, 400, true},
		{"with cache that can go", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "1000\n", "sys/fs/cgroup/a/memory.current", "600\n",
			"sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 250\n"), 1000, 650, true},
		{"limit above, less left below", files("proc/self/cgroup", "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max", "1000\n", "sys/fs/cgroup/a/memory.current", "950\n",
			"sys/fs/cgroup/a/b/memory.max", "2000\n", "sys/fs/cgroup/a/b/memory.current", "100\n"), 1000, 50, true},
		{"slowed down above less", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "1000\n", "sys/fs/cgroup/a/memory.high", "800\n",
			"sys/fs/cgroup/a/memory.current", "600\n"), 800, 200, true},
		{"over its limit", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "1000\n", "sys/fs/cgroup/a/memory.current", "1600\n"), 1000, 0, true},
		{"in a container, the host's path", files("proc/self/cgroup", "0::/docker/xyz\n", "sys/fs/cgroup/memory.max", "1000\n", "sys/fs/cgroup/memory.current", "1\n"), 1000, 999, true},
		{"version 1", files("proc/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "700\n",
			"sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 100\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"), 1000, 400, true},
		{"nonsense", files("proc/self/cgroup", "x\n::\n0::../../..\n", "sys/fs/cgroup/memory.max", "lots\n"), 0, 0, false},
	} {
		limit, left, ok := cgroupMemoryIn(c.fs)
		if ok != c.ok || ok && (limit != c.limit || left != c.left) {
			t.Errorf("%s: %d %d %v", c.name, limit, left, ok)
		}
	}
}
