package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

var status = regexp.MustCompile(`^\[(\d+)/(\d+)\]`)

// A progress reads ninja's output and says how far it is: on a terminal in one
// line that is redrawn, elsewhere by a line now and then.
type progress struct {
	say    func(format string, args ...any)
	redraw io.Writer // nil where lines cannot be redrawn
	every  time.Duration
	now    func() time.Time
	part   []byte
	last   time.Time
	drawn  bool
}

func (p *progress) Write(data []byte) (int, error) {
	p.part = append(p.part, data...)
	for {
		line, rest, ok := bytes.Cut(p.part, []byte("\n"))
		if !ok {
			break
		}
		p.line(line)
		p.part = rest
	}
	if len(p.part) > 64<<10 { // no line of interest is that long
		p.part = nil
	}
	return len(data), nil
}

func (p *progress) line(line []byte) {
	m := status.FindSubmatch(line)
	if m == nil {
		return
	}
	if p.redraw != nil {
		fmt.Fprintf(p.redraw, "\rengine: %s/%s … ", m[1], m[2])
		p.drawn = true
		return
	}
	if now := p.now(); now.Sub(p.last) >= p.every || bytes.Equal(m[1], m[2]) {
		p.last = now
		p.say("%s/%s …", m[1], m[2])
	}
}

// end leaves the redrawn line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.redraw)
	}
}

// A tail keeps the end of what is written to it.
type tail struct {
	data []byte
	max  int
}

func (t *tail) Write(data []byte) (int, error) {
	t.data = append(t.data, data...)
	if len(t.data) > 2*t.max {
		t.data = append(t.data[:0], t.data[len(t.data)-t.max:]...)
	}
	return len(data), nil
}

// lastLines is the last n lines of data, indented.
func lastLines(data []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return "  " + strings.Join(lines, "\n  ")
}
