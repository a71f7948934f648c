package llama

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
)

const (
	tailLines    = 200
	lineBytes    = 1000
	logFileBytes = 1 << 20 // of each of the two files
)

// A journal takes in what an engine writes. It keeps the last lines in memory
// and in a file of bounded size, notes what the engine says about itself, and
// leaves out whatever could be a user's text.
type journal struct {
	mu         sync.Mutex
	tail       []string
	firstError string // the first line about an error: mostly the cause
	crash      string // the last line of a crash
	ready      bool
	report     reportReader
	file       *logFile // nil where there is none
	// listening is closed when the engine says that it listens: then all that
	// it says about its start has been read.
	listening chan struct{}
	listens   bool
}

func newJournal(file *logFile) *journal {
	return &journal{file: file, listening: make(chan struct{})}
}

// serving says that from now on requests are served: the log may hold their text.
func (j *journal) serving() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ready = true
}

// lines returns the last lines, oldest first.
func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.tail...)
}

// cause is the line that says best why the engine failed; empty where none does.
func (j *journal) cause() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range []string{j.crash, j.firstError} {
		if line != "" {
			return message(line)
		}
	}
	return ""
}

func (j *journal) facts() (layers, offloaded int, buffers []Buffer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report.layers, j.report.offloaded, append([]Buffer(nil), j.report.buffers...)
}

// read takes in r to its end.
func (j *journal) read(r io.Reader) {
	buf := make([]byte, 32<<10)
	var part []byte // of a line
	for {
		n, err := r.Read(buf)
		for data := buf[:n]; len(data) > 0; {
			line, rest, whole := bytes.Cut(data, []byte("\n"))
			part = append(part, line[:min(len(line), max(0, 4*lineBytes-len(part)))]...)
			if whole {
				j.add(string(part))
				part = part[:0]
			}
			data = rest
		}
		if err != nil {
			if len(part) > 0 {
				j.add(string(part))
			}
			return
		}
	}
}

var (
	// 0.00.002.328 I srv    load_model: loading model
	logLine = regexp.MustCompile(`^\d+\.\d\d\.\d{3}\.\d{3} ([A-Z]) (.*)$`)
	// How llama.cpp and the libraries under it give up: by assertions and
	// aborts with their place in the source, by C++ exceptions that nobody
	// catches, by a GPU's errors; and what the shim says.
	crashLine = regexp.MustCompile(`^(\S{1,200}\.(c|cpp|cu|cuh|h|hpp|m|mm):\d+: |terminate called |  what\(\): |(CUDA|ROCm|HIP|SYCL|Vulkan) error|` +
		`Segmentation fault|\S{1,100}: .{0,100}Assertion |(free|malloc|double free|munmap_chunk|corrupted)\b.{0,60}$|engine-shim: )`)
)

// plainError is how an RPC server, which writes no levels, says why it gives up.
var plainError = regexp.MustCompile(`^(error: |Failed to |No devices found|Invalid parameters)`)

// add takes in one line.
//
// Until the engine serves, its lines are about itself. After that, only
// warnings, errors and crashes are kept, each only up to the first quotation
// mark or brace, behind which the engine quotes what it was asked; and no
// line that continues another one.
func (j *journal) add(line string) {
	line = printable(strings.TrimRight(line, "\r"), lineBytes)
	if strings.TrimSpace(line) == "" {
		return
	}
	m := logLine.FindStringSubmatch(line)
	crash := m == nil && crashLine.MatchString(line)
	level := ""
	if m != nil {
		level = m[1]
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ready {
		if level != "W" && level != "E" && !crash {
			return
		}
		if i := strings.IndexAny(line, "\"'`{"); i >= 0 {
			line = line[:i] + "…"
		}
	}
	switch {
	case crash:
		j.crash = line
	case (level == "E" || m == nil && !j.ready && plainError.MatchString(line)) && j.firstError == "":
		j.firstError = line
	}
	j.report.line(line)
	if !j.listens && strings.Contains(line, "listening on ") {
		j.listens = true
		close(j.listening)
	}
	if j.tail = append(j.tail, line); len(j.tail) > tailLines {
		j.tail = append(j.tail[:0], j.tail[len(j.tail)-tailLines:]...)
	}
	if j.file != nil {
		j.file.add(line)
	}
}

// message is a line of the engine's log without time, level and place.
func message(line string) string {
	if m := logLine.FindStringSubmatch(line); m != nil {
		line = strings.TrimSpace(m[2])
		// "srv    load_model: failed to …": up to the first colon is the place.
		if place, rest, ok := strings.Cut(line, ": "); ok && len(place) < 40 && !strings.ContainsAny(place, "'\"") {
			line = strings.TrimSpace(rest)
		}
	}
	return printable(line, 300)
}

// A logFile is a file that begins anew when it is full; the full one is kept
// beside it with ".1". Errors to write end the file, not the engine.
type logFile struct {
	path string
	f    *os.File
	size int64
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	l.f, l.size = f, 0
	return err
}

func (l *logFile) add(line string) {
	if l.f == nil {
		return
	}
	n, err := l.f.WriteString(line + "\n")
	l.size += int64(n)
	if err == nil && l.size < logFileBytes {
		return
	}
	l.close()
	if err == nil && os.Rename(l.path, l.path+".1") == nil {
		if l.open() != nil {
			l.f = nil
		}
	}
}

func (l *logFile) close() {
	if l.f != nil {
		_ = l.f.Close() // all that was to be kept is in the tail as well
		l.f = nil
	}
}
