package api

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string // payloads; "-" for an event without
		err  error
	}{
		{"data: a\n\ndata: b\n\n", []string{"a", "b"}, io.EOF},
		{"data:a\n\ndata:  b\n\n", []string{"a", " b"}, io.EOF},
		{"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, io.EOF},
		{"data: a\r\rdata: b\r\r", []string{"a", "b"}, io.EOF},
		{"data: a\ndata: b\n\n", []string{"a\nb"}, io.EOF},
		{"\n\n\ndata: a\n\n\n\n", []string{"a"}, io.EOF},
		{": ping\n\ndata: a\n\n:\n\n", []string{"-", "a", "-"}, io.EOF},
		{"event: x\nid: 1\ndata: a\n\n", []string{"a"}, io.EOF},
		{"data\n\n", []string{""}, io.EOF},
		{"data: [DONE]\n\n", []string{"[DONE]"}, io.EOF},
		{"data: [DONE]\n", []string{"[DONE]"}, io.EOF},
		{"", nil, io.EOF},
		{"data: a\n\ndata: b\n", []string{"a"}, io.ErrUnexpectedEOF},
		{"data: a\n\ndat", []string{"a"}, io.ErrUnexpectedEOF},
		{"data: " + strings.Repeat("x", 100) + "\n\n", nil, errEventTooLong},
		{strings.Repeat("data: x\n", 20), nil, errEventTooLong},
		{strings.Repeat(":\n", 60), nil, errEventTooLong},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(c.in), "by bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
			e := newEventReader(r, 64)
			var got []string
			var err error
			for {
				var ev event
				if ev, err = e.next(); err != nil {
					break
				}
				if ev.data == nil {
					got = append(got, "-")
				} else {
					got = append(got, string(ev.data))
				}
			}
			if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) || !errors.Is(err, c.err) {
				t.Errorf("%.60q, %s: %q, %v; want %q, %v", c.in, name, got, err, c.want, c.err)
			}
		}
	}
}

// What an event reader passes on, an event reader reads as the same.
func checkEvents(t interface{ Fatalf(string, ...any) }, in []byte) {
	const max = 1 << 10
	first := newEventReader(bytes.NewReader(in), max)
	for {
		ev, err := first.next()
		if err != nil {
			return
		}
		if len(ev.raw) > max || len(ev.data) > max {
			t.Fatalf("an event of %d and %d bytes", len(ev.raw), len(ev.data))
		}
		raw := ev.raw
		if !bytes.HasSuffix(raw, []byte("\n\n")) && string(raw) != "\n" && string(ev.data) != endOfStream {
			t.Fatalf("%q has no end", raw)
		}
		if !bytes.HasSuffix(raw, []byte("\n\n")) {
			raw = append(raw, '\n')
		}
		for _, passed := range [][]byte{raw, dataEvent(ev.data)} {
			if ev.data == nil && !bytes.Equal(passed, raw) {
				continue
			}
			again := newEventReader(bytes.NewReader(passed), 2*max)
			same, err := again.next()
			if err != nil || !bytes.Equal(same.data, ev.data) {
				t.Fatalf("%q is read as %q, passed on as %q, read as %q, %v", ev.raw, ev.data, passed, same.data, err)
			}
			if _, err := again.next(); err != io.EOF {
				t.Fatalf("%q passed on as %q is more than one event", ev.raw, passed)
			}
		}
	}
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "data: a\r\n\r\n:x\n\nevent: y\rdata\r\r", "\n\n\n", "data: [DONE]\n", "data: \xff\x00\n\ndata", ":"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) { checkEvents(t, in) })
}

func TestEventsGenerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"data: x", "data", "data:", ": c", "event: e", "", "id: 1", "garbage"})
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"})
		var b bytes.Buffer
		for range rapid.IntRange(0, 30).Draw(t, "lines") {
			b.WriteString(line.Draw(t, "line") + end.Draw(t, "end"))
		}
		checkEvents(t, b.Bytes())
	})
}
