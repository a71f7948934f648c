package sim

import (
	"context"
	"net/http"
	"sync"
)

// stream sends the events of one request, whose answers may be made at the same
// time.
type stream struct {
	shape
	tellProgress bool

	mu     sync.Mutex // guards what is below it
	w      http.ResponseWriter
	flush  func() error
	opened bool
	buf    []byte
}

func newStream(ctx context.Context, w http.ResponseWriter, sh shape, progress bool) *stream {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.streamed.Store(true)
	}
	return &stream{shape: sh, tellProgress: progress, w: w, flush: http.NewResponseController(w).Flush}
}

// open sends the headers when the first slot starts, long before the first
// token. Of the start of every further prompt llama-server says "null".
func (s *stream) open(t task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = s.buf[:0]
	if s.opened && t.first && !s.tellProgress {
		s.buf = append(s.buf, "data: null\n\n"...)
	}
	return s.write()
}

func (s *stream) send(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(s.buf[:0], text...)
	return s.write()
}

// events sends some, in one piece.
func (s *stream) events(events ...object) error {
	if len(events) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = s.buf[:0]
	for _, e := range events {
		var err error
		if s.buf, err = appendJSON(append(s.buf, "data: "...), e); err != nil {
			return err
		}
		s.buf = append(s.buf, "\n\n"...)
	}
	return s.write()
}

func (s *stream) write() error {
	if !s.opened {
		s.opened = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	} else if len(s.buf) == 0 {
		return nil
	}
	if _, err := s.w.Write(s.buf); err != nil {
		return goneError{err}
	}
	if err := s.flush(); err != nil {
		return goneError{err}
	}
	return nil
}

func (s *stream) progress(a *answer) error {
	if !s.tellProgress {
		return nil
	}
	return s.events(s.progressEvent(a))
}

func (s *stream) piece(a *answer, p piece) error { return s.events(s.pieceEvents(a, p)...) }

func (s *stream) silent() error { return s.send(":\n\n") }
