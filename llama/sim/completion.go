package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
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

// counted is a route whose requests have faults and are counted.
func (s *Server) counted(answer func(http.ResponseWriter, *http.Request, *Fault) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.count(func(st *State) { st.Requests++ })
		began := time.Now()
		fault := s.takeFault()
		err := answer(w, r, fault)
		struck := fault != nil && (err == nil || !isGone(err))
		s.count(func(st *State) {
			switch {
			case isGone(err):
				st.Cancelled++
				st.CancelledAt = time.Now()
			case struck:
				st.Struck++
			default:
				st.Finished++
			}
		})
		s.opt.Log.Info("request", "path", r.URL.Path, "took_ms", time.Since(began).Milliseconds(), "err", err)
		if errors.Is(err, errDie) || errors.Is(err, errDrop) {
			panic(http.ErrAbortHandler) // which cuts the connection
		}
	}
}

// early is what a fault that comes before the answer says, or nil.
func (f *Fault) early() error {
	switch {
	case f == nil:
		return nil
	case f.Kind == FaultRefuse:
		return loading()
	case f.Kind == FaultError && f.After == 0:
		return errCompute
	case f.Kind == FaultDrop:
		return errDrop
	}
	return nil
}

func isGone(err error) bool {
	var goneErr goneError
	return errors.Is(err, context.Canceled) || errors.As(err, &goneErr)
}

// goneError is a failed write.
type goneError struct{ error }

// completions answers a request. What it returns is for the log and the counts:
// the answer is written, or must be cut.
func (s *Server) completions(f form) http.HandlerFunc {
	return s.counted(func(w http.ResponseWriter, r *http.Request, fault *Fault) error {
		p, tasks, err := s.read(r, f, fault)
		if err != nil {
			if !errors.Is(err, errDrop) {
				writeError(w, err)
			}
			return err
		}
		sh := shape{
			model: s.opt.Model, id: "chatcmpl-" + randomID(), created: time.Now().Unix(), chat: f == chat, native: f == native, stream: p.Stream,
			usage: p.StreamOptions.IncludeUsage, tokens: p.ReturnTokens, timings: p.TimingsPerToken, settings: settings(tasks[0], p.Stream, p.TimingsPerToken, true),
			stopWord: p.Verbose && slices.Contains(p.ResponseFields, "stopping_word"),
		}
		if !sh.stream {
			return s.answerWhole(r.Context(), w, sh, tasks, fault)
		}
		ping := 30 * time.Second
		if p.PingInterval != nil {
			ping = time.Duration(*p.PingInterval) * time.Second
		}
		ctx := context.WithValue(r.Context(), pingKey{}, ping)
		return s.answerStream(ctx, newStream(ctx, w, sh, p.ReturnProgress), tasks, fault)
	})
}

func (s *Server) read(r *http.Request, f form, fault *Fault) (params, []task, error) {
	body, err := readBody(r)
	if err != nil {
		return params{}, nil, err
	}
	if err := fault.early(); err != nil {
		return params{}, nil, err
	}
	p, err := decode(body)
	if err != nil {
		return p, nil, err
	}
	tasks, err := s.tasks(p, f == chat)
	return p, tasks, err
}

// each computes every task in a slot of its own, all at the same time as far as
// there are slots, and ends them all when one fails.
func (s *Server) each(ctx context.Context, tasks []task, compute func(context.Context, task, *slot) error) error {
	one := func(ctx context.Context, t task) error {
		slot, err := s.takeSlot(ctx, t.ids)
		if err != nil {
			return err
		}
		defer s.giveSlot(slot)
		return compute(ctx, t, slot)
	}
	if len(tasks) == 1 {
		return one(ctx, tasks[0])
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		all.Go(func() error { return one(ctx, t) })
	}
	return all.Wait()
}

// nobody watches an answer that is not streamed.
type nobody struct{}

func (nobody) progress(*answer) error     { return nil }
func (nobody) piece(*answer, piece) error { return nil }
func (nobody) silent() error              { return nil }

func (s *Server) answerWhole(ctx context.Context, w http.ResponseWriter, sh shape, tasks []task, fault *Fault) error {
	answers := make([]answer, len(tasks))
	err := s.each(ctx, tasks, func(ctx context.Context, t task, slot *slot) (err error) {
		answers[t.index], err = s.generate(ctx, t, slot, fault, nobody{})
		return err
	})
	if err != nil {
		return s.spoil(w, err)
	}
	writeJSON(w, http.StatusOK, sh.whole(answers))
	return nil
}

// spoil ends an unstreamed answer the way its fault says.
func (s *Server) spoil(w http.ResponseWriter, err error) error {
	switch {
	case errors.Is(err, errDie):
		// A part of the body is out when the connection goes.
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"choices":[`)
		http.NewResponseController(w).Flush()
	case errors.Is(err, errWrong):
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, garbage)
	case errors.Is(err, errEnd):
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	case errors.Is(err, errCompute):
		writeError(w, errCompute)
	}
	return err
}

func (s *Server) answerStream(ctx context.Context, st *stream, tasks []task, fault *Fault) error {
	err := s.each(ctx, tasks, func(ctx context.Context, t task, slot *slot) error {
		if err := st.open(t); err != nil {
			return err
		}
		a, err := s.generate(ctx, t, slot, fault, st)
		if err != nil {
			return err
		}
		return st.events(st.last(a)...)
	})
	switch {
	case errors.Is(err, errWrong):
		return errors.Join(err, st.send("data: "+garbage+"\n\n"))
	case errors.Is(err, errCompute):
		return errors.Join(err, st.events(object{{"error", errCompute}}))
	case err != nil || st.native:
		return err
	}
	return st.send("data: [DONE]\n\n")
}
