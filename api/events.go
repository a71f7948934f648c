package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

// maxEvent bounds one event of a stream, in bytes. An engine's event holds one
// token; with log probabilities it stays below 64 KiB.
const maxEvent = 4 << 20

// endOfStream is the payload after which a stream is whole.
const endOfStream = "[DONE]"

var errEventTooLong = errors.New("an event is longer than relay takes")

// event is one event of a text/event-stream.
type event struct {
	// raw is the event as it came, with its blank line; every line ends in LF.
	raw []byte
	// data is the payload, its lines joined; nil where there is none, as in a
	// comment that only keeps a connection alive.
	data []byte
}

// eventReader reads events one by one, each bounded.
type eventReader struct {
	r   *bufio.Reader
	max int
	// skipLF: the last line ended in CR, and an LF that follows belongs to it.
	skipLF bool
}

func newEventReader(r io.Reader, max int) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 8<<10), max: max}
}

// next returns the next event, or io.EOF between two events, or
// io.ErrUnexpectedEOF within one. What it returns is the caller's.
func (e *eventReader) next() (event, error) {
	var ev event
	for {
		start := len(ev.raw)
		end, err := e.line(&ev.raw)
		if err == io.EOF && string(ev.data) == endOfStream && len(ev.raw) == start {
			return ev, nil // some servers leave the last blank line out
		}
		if err == io.EOF && len(ev.raw) > 0 {
			return event{}, io.ErrUnexpectedEOF
		}
		if err != nil {
			return event{}, err
		}
		line := ev.raw[start:end]
		if len(line) == 0 {
			if start == 0 {
				ev.raw = ev.raw[:0] // a blank line too many is no event
				continue
			}
			return ev, nil
		}
		if value, ok := fieldValue(line, "data"); ok {
			switch {
			case ev.data != nil:
				ev.data = append(append(ev.data, '\n'), value...)
			case value == nil:
				ev.data = []byte{}
			default: // Mostly the only one: then it is not copied, and must not grow into raw.
				ev.data = slices.Clip(value)
			}
		}
	}
}

// line appends the next line with its end to raw and returns where its text
// ends.
func (e *eventReader) line(raw *[]byte) (end int, err error) {
	for {
		if _, err := e.r.Peek(1); err != nil {
			return 0, err
		}
		part, _ := e.r.Peek(e.r.Buffered())
		if e.skipLF {
			e.skipLF = false
			if part[0] == '\n' {
				e.r.Discard(1)
				continue
			}
		}
		n := bytes.IndexByte(part, '\n')
		if n < 0 {
			n = len(part)
		}
		if cr := bytes.IndexByte(part[:n], '\r'); cr >= 0 {
			n = cr
		}
		ends := n < len(part)
		if len(*raw)+n > e.max || ends && len(*raw)+n == e.max {
			return 0, errEventTooLong
		}
		*raw = append(*raw, part[:n]...)
		if ends {
			e.skipLF = part[n] == '\r'
			*raw = append(*raw, '\n')
			e.r.Discard(n + 1)
			return len(*raw) - 1, nil
		}
		e.r.Discard(n)
	}
}

// fieldValue is the value of a line that carries the field.
func fieldValue(line []byte, field string) ([]byte, bool) {
	name, value, colon := bytes.Cut(line, []byte(":"))
	if string(name) != field {
		return nil, false
	}
	if colon {
		value = bytes.TrimPrefix(value, []byte(" "))
	}
	return value, true
}

// dataEvent is a payload as an event.
func dataEvent(payload []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(payload) + 8)
	for line := range bytes.SplitSeq(payload, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
