package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// form is which of the three completion routes a request came by.
type form int

const (
	native form = iota
	text
	chat
)

// garbage is what FaultWrong sends.
const garbage = "{\"choices\":[{\"del\x00\xff\xfe"

func (s *Server) completions(f form) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.count(func(st *State) { st.Requests++ })
		began := time.Now()
		fault := s.takeFault()
		err := s.complete(w, r, f, fault)
		struck := fault != nil && (err == nil || !isGone(err))
		s.count(func(st *State) {
			switch {
			case isGone(err):
				st.Cancelled++
			case struck:
				st.Struck++
			default:
				st.Finished++
			}
		})
		s.opt.Log.Info("request", "path", r.URL.Path, "took_ms", time.Since(began).Milliseconds(), "err", err)
		if errors.Is(err, errDie) {
			panic(http.ErrAbortHandler) // which cuts the connection
		}
	}
}

func isGone(err error) bool {
	var goneErr goneError
	return errors.Is(err, context.Canceled) || errors.As(err, &goneErr)
}

// goneError is a failed write.
type goneError struct{ error }

// complete answers one request. What it returns is for the log and the counts:
// the answer is written, or must be cut.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, f form, fault *Fault) error {
	body, err := readBody(r)
	if err != nil {
		writeError(w, err)
		return err
	}
	if fault != nil {
		switch fault.Kind {
		case FaultRefuse:
			err = loading()
		case FaultError:
			err = fail("Compute error.")
		case FaultDrop:
			return errDie
		}
		if err != nil {
			writeError(w, err)
			return err
		}
	}
	p, err := decode(body)
	if err != nil {
		writeError(w, err)
		return err
	}
	tasks, err := p.tasks(f == chat, s.opt.Seed, s.opt.Context)
	if err != nil {
		writeError(w, err)
		return err
	}
	ctx := r.Context()
	slot, err := s.takeSlot(ctx)
	if err != nil {
		return err
	}
	defer s.giveSlot(slot)

	sh := shape{
		model: s.opt.Model, id: newID(), created: time.Now().Unix(), chat: f == chat, native: f == native, stream: bool(p.Stream),
		usage: bool(p.StreamOptions.IncludeUsage), tokens: bool(p.ReturnTokens), settings: settings(tasks[0], bool(p.Stream), true),
	}
	if !sh.stream {
		return s.answerWhole(ctx, w, sh, tasks, slot, fault)
	}
	ping := 30 * time.Second
	if p.PingInterval != nil {
		ping = time.Duration(*p.PingInterval) * time.Second
	}
	return s.answerStream(context.WithValue(ctx, pingKey{}, ping), w, sh, tasks, slot, fault)
}

func (s *Server) answerWhole(ctx context.Context, w http.ResponseWriter, sh shape, tasks []task, slot int, fault *Fault) error {
	var answers []answer
	for _, t := range tasks {
		a, err := s.generate(ctx, t, slot, fault, func(piece) error { return nil }, func() error { return nil })
		switch {
		case err == nil:
			answers = append(answers, a)
		case errors.Is(err, errDie):
			// A part of the body is out when the connection goes.
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"choices":[`)
			http.NewResponseController(w).Flush()
			return err
		case errors.Is(err, errWrong):
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprint(w, garbage)
			return err
		case errors.Is(err, errEnd):
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			return err
		default:
			return err
		}
	}
	writeJSON(w, http.StatusOK, sh.whole(answers))
	return nil
}

func (s *Server) answerStream(ctx context.Context, w http.ResponseWriter, sh shape, tasks []task, slot int, fault *Fault) error {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.streamed.Store(true)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	send := func(text string) error {
		if _, err := fmt.Fprint(w, text); err != nil {
			return goneError{err}
		}
		if err := flush(); err != nil {
			return goneError{err}
		}
		return nil
	}
	// The headers go out when the slot starts, long before the first token.
	if err := send(""); err != nil {
		return err
	}
	sendAll := func(events []object) error {
		var text string
		for _, e := range events {
			b, err := encode(e)
			if err != nil {
				return err
			}
			text += "data: " + string(b) + "\n\n"
		}
		if text == "" {
			return nil
		}
		return send(text)
	}
	for _, t := range tasks {
		a, err := s.generate(ctx, t, slot, fault,
			func(p piece) error { return sendAll(sh.events(t, p)) },
			func() error { return send(":\n\n") })
		if errors.Is(err, errWrong) {
			return errors.Join(err, send("data: "+garbage+"\n\n"))
		}
		if err != nil {
			return err
		}
		if err := sendAll(sh.last(a)); err != nil {
			return err
		}
	}
	if sh.native {
		return nil
	}
	return send("data: [DONE]\n\n")
}

func (s *Server) takeSlot(ctx context.Context) (int, error) {
	s.count(func(st *State) { st.Waiting++ })
	select {
	case slot := <-s.slots:
		s.count(func(st *State) { st.Waiting--; st.Active++ })
		return slot, nil
	case <-ctx.Done():
		s.count(func(st *State) { st.Waiting-- })
		return 0, ctx.Err()
	}
}

func (s *Server) giveSlot(slot int) {
	s.slots <- slot
	s.count(func(st *State) { st.Active-- })
}
