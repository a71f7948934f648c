package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJournalCause(t *testing.T) {
	for _, c := range []struct{ name, log, want string }{
		{"nothing", "0.00.000.001 I srv    load_model: loading\n", ""},
		{"first error", "0.00.000.001 E llama_model_load: error loading model: bad\n0.00.000.002 E srv  llama_server: exiting\n", "error loading model: bad"},
		{"crash", "0.00.000.001 E x: y\n/a/b.cpp:12: GGML_ASSERT(n > 0) failed\n", "/a/b.cpp:12: GGML_ASSERT(n > 0) failed"},
		{"last crash", "CUDA error: out of memory\n  current device: 0\n/ggml/src/ggml-cuda/ggml-cuda.cu:98: CUDA error\n[New LWP 12]\n", "/ggml/src/ggml-cuda/ggml-cuda.cu:98: CUDA error"},
		{"no newline at the end", "terminate called after throwing", "terminate called after throwing"},
	} {
		j := newJournal(nil)
		j.read(strings.NewReader(c.log))
		if got := j.cause(); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestJournalServing(t *testing.T) {
	j := newJournal(nil)
	j.read(strings.NewReader("0.00.000.001 I srv  model loaded\n"))
	j.serving()
	j.read(strings.NewReader(`0.01.000.001 I slot launch_slot_: id  1 | task 0 | processing task
0.01.000.002 W srv    operator(): got exception: {"error":{"message":"SECRET"}}
0.01.000.003 E cmn: failed to parse 'SECRET
SECRET goes on here, out of memory, Segmentation fault
0.01.000.004 D request: SECRET
terminate called after throwing an instance of 'nlohmann'
  what():  parse error - last read: 'SECRET'
/a/b.cpp:12: GGML_ASSERT(n > 0) failed
`))
	got := strings.Join(j.lines(), "\n")
	want := `0.00.000.001 I srv  model loaded
0.01.000.002 W srv    operator(): got exception: …
0.01.000.003 E cmn: failed to parse …
terminate called after throwing an instance of …
  what():  parse error - last read: …
/a/b.cpp:12: GGML_ASSERT(n > 0) failed`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestJournalBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.log")
	file, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	j := newJournal(file)
	long := strings.Repeat("é\x1b", 10*lineBytes)
	for i := range 4000 {
		j.add(fmt.Sprintf("%d %s", i, long))
	}
	lines := j.lines()
	if len(lines) != tailLines || !strings.HasPrefix(lines[tailLines-1], "3999 ") {
		t.Errorf("%d lines, the last %.20q", len(lines), lines[len(lines)-1])
	}
	j.file.close()
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		if err != nil || info.Size() > logFileBytes+4*lineBytes || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", p, info, err)
		}
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
}

func TestReport(t *testing.T) {
	var r reportReader
	for line := range strings.Lines(`0.00.002.328 I load_tensors: offloading output layer to GPU
0.00.002.328 I load_tensors: offloaded 5/7 layers to GPU
0.00.002.328 I load_tensors:   CPU_Mapped model buffer size =     1.50 MiB
0.00.002.328 I load_tensors:        CUDA0 model buffer size =  1000.00 MiB
0.00.002.328 I load_tensors:    CUDA_Host model buffer size =    10.00 MiB
0.00.002.328 I llama_kv_cache:      CUDA0 KV buffer size =     6.00 MiB
0.00.002.328 I llama_kv_cache_iswa:      CUDA0 KV buffer size =     4.00 MiB
0.00.002.328 I sched_reserve:      CUDA0 compute buffer size =     3.89 MiB
0.00.002.328 I nothing: of the kind = 9 MiB
`) {
		r.line(line)
	}
	want := []Buffer{
		{Device: "CPU_Mapped", Model: 3 << 19},
		{Device: "CUDA0", Model: 1000 << 20, Context: 10 << 20, Compute: 4078961},
		{Device: "CUDA_Host", Model: 10 << 20},
	}
	if r.layers != 7 || r.offloaded != 5 || fmt.Sprint(r.buffers) != fmt.Sprint(want) {
		t.Errorf("%+v", r)
	}
	gpus := []string{"CUDA0"}
	if !(Report{Devices: gpus, Buffers: r.buffers}).GPU() || (Report{Devices: gpus, Buffers: []Buffer{want[0], want[2]}}).GPU() || (Report{Buffers: r.buffers}).GPU() {
		t.Error("it does not tell a GPU's memory from the host's")
	}
}

// Which memory a buffer is in goes by the devices that the engine was started with.
func TestReportUsed(t *testing.T) {
	for _, c := range []struct{ device, buffer, want string }{
		{"CUDA0", "CUDA0", "CUDA0"},
		{"CUDA1", "CUDA10", HostID},
		{"CUDA0", "CUDA_Host", HostID},
		{"CUDA0", "AMX", HostID},
		{"", "AMX", HostID},
		{"CUDA0", "CPU_REPACK", HostID},
		{"MTL0", "MTL0_Mapped", "MTL0"},
		{"MTL0", "MTL0_Private", "MTL0"},
		{"HTP0", "HTP0-REPACK", "HTP0"},
		{"GPUOpenCL", "OpenCL", "GPUOpenCL"},
		{"GPUOpenCL", "OpenCL_Host", HostID},
		{"CUDA0", "Vulkan0", HostID},
	} {
		r := Report{Devices: []string{c.device}, Buffers: []Buffer{{Device: c.buffer, Model: 1, Context: 2, Compute: 4}}}
		if c.device == "" {
			r.Devices = nil
		}
		if used := r.Used(); len(used) != 1 || used[c.want] != 7 || r.GPU() != (c.want != HostID) {
			t.Errorf("%+v: %v", c, used)
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add("0.01.000.002 W srv    operator(): got exception: {\"SECRET\n  what(): 'SECRET'\n", true)
	f.Add("0.00.000.001 I load_tensors: offloaded 7/7 layers to GPU\n", false)
	f.Fuzz(func(t *testing.T, log string, ready bool) {
		j := newJournal(nil)
		j.ready = ready
		j.read(strings.NewReader(log))
		for _, line := range j.lines() {
			if strings.ContainsAny(line, "\n\r\x1b\x00") || len([]rune(line)) > lineBytes+1 {
				t.Errorf("%q", line)
			}
			// Nothing behind a quotation mark, once requests are served.
			if i := strings.IndexAny(line, `"'{`); ready && i >= 0 {
				t.Errorf("%q", line)
			}
		}
		j.cause()
	})
}
