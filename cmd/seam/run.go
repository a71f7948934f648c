//go:build linux

package seam

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Plan is a number of streams that are cut in one way.
type Plan struct {
	Cut Cut
	// Streams is how many are to be cut.
	Streams int
	// Questions are asked in turn. All of them have the same length.
	Questions []Question
	// Rand draws where each is cut.
	Rand *rand.Rand
	// Say is told of each stream as it ends; nil tells nobody.
	Say func(format string, args ...any)
}

// Tally is what came of them.
type Tally struct {
	// Cut is how many were, Missed how many had ended before it came to that; both are
	// judged.
	Cut, Missed int
	// Failed are those that were not complete, or not right.
	Failed []error
	// Same of those that were cut are what an engine says that nobody disturbs, ByText
	// were continued from text rather than from ids.
	Same, ByText int
	// At are the tokens before the seams.
	At []float64
	// Gaps are the times, in seconds, from the last piece before a seam to the first one
	// after it, as the client had them; Noticed what of that passed until the entrance gave
	// the replica up, by its log, and Resumed the rest.
	Gaps, Noticed, Resumed []float64
	// Prefills and Firsts are, in seconds, what the prefill of everything before the last
	// seam of each stream and one step take: an engine that is asked directly, and a client
	// that asks the entrance for just that.
	Prefills, Firsts []float64
	// Over are the streams whose last gap was longer than that at the entrance, and the
	// longest other time between two pieces of the same stream, together.
	Over int
}

// mostMissed bounds the streams that may have ended before they were cut, for each one
// that is.
const mostMissed = 3

// Run cuts streams, one after another.
func (m *Mesh) Run(ctx context.Context, p Plan) (t Tally, err error) {
	if p.Say == nil {
		p.Say = func(string, ...any) {}
	}
	for n := 0; t.Cut < p.Streams; n++ {
		if t.Missed > mostMissed*p.Streams {
			return t, fmt.Errorf("%s: %d streams had ended before they were cut, and %d had not", p.Cut.Name, t.Missed, t.Cut)
		}
		q := p.Questions[n%len(p.Questions)]
		after := 1 + p.Rand.IntN(q.Tokens-1)
		s, err := m.Cut(ctx, p.Cut, q, after)
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return t, err
		}
		v, err := m.Judge(ctx, s)
		if err != nil {
			t.Failed = append(t.Failed, fmt.Errorf("%s after %d of %+v, request %s, seams %+v: %w", p.Cut.Name, after, q, s.Request, s.Seams, err))
			t.Cut++
			p.Say("%v", t.Failed[len(t.Failed)-1])
			continue
		}
		if len(s.Seams) == 0 {
			t.Missed++
			p.Say("%s after %d: it had ended", p.Cut.Name, after)
			continue
		}
		told, err := m.told(s)
		if err != nil {
			return t, err
		}
		t.take(s, v, told)
		p.Say("%s after %d: %+v; asked for anew, the first piece takes %s; the longest other step %s; the same: %t", p.Cut.Name, after, s.Seams, v.First, s.Longest, v.Same)
	}
	return t, nil
}

func (t *Tally) take(s Stream, v Verdict, told []logged) {
	t.Cut++
	if v.Same {
		t.Same++
	}
	for i, seam := range s.Seams {
		if seam.By == "text" {
			t.ByText++
		}
		t.At = append(t.At, float64(seam.Tokens))
		t.Gaps = append(t.Gaps, seam.Gap.Seconds())
		t.Noticed = append(t.Noticed, told[i].noticed.Seconds())
		t.Resumed = append(t.Resumed, max(0, seam.Gap-told[i].noticed).Seconds())
	}
	t.Prefills, t.Firsts = append(t.Prefills, v.Prefill.Seconds()), append(t.Firsts, v.First.Seconds())
	if s.Seams[len(s.Seams)-1].Gap > v.First+s.Longest {
		t.Over++
	}
}

// logged is what the entrance's log says of a continuation.
type logged struct{ noticed, gap time.Duration }

var field = regexp.MustCompile(`\b(noticed_ms|gap_ms)=([0-9.]+)`)

// told is what the entrance's log says of a stream's continuations.
func (m *Mesh) told(s Stream) (all []logged, err error) {
	f, err := os.Open(m.Entrance.Log())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text := lines.Text()
		if !strings.Contains(text, " msg=continued ") || !strings.Contains(text, s.Request) {
			continue
		}
		var l logged
		for _, found := range field.FindAllStringSubmatch(text, -1) {
			ms, err := strconv.ParseFloat(found[2], 64)
			if err != nil {
				return nil, err
			}
			d := time.Duration(ms * float64(time.Millisecond))
			if found[1] == "gap_ms" {
				l.gap = d
			} else {
				l.noticed = d
			}
		}
		all = append(all, l)
	}
	if len(all) != len(s.Seams) {
		return nil, errors.Join(err, fmt.Errorf("the entrance logs %d continuations of a stream with %d", len(all), len(s.Seams)))
	}
	return all, nil
}
