package scheduler

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"relay/store/content"
)

// sum makes one progress of those of several contents that come one after the
// other.
type sum struct {
	report func(content.Progress)

	mu            sync.Mutex
	total         int64
	done, fetched int64 // Of the contents before.
	before        []content.Source
	last          content.Progress
}

// newSum counts up to total, in bytes; report may be nil.
func newSum(total int64, report func(content.Progress)) *sum {
	return &sum{total: total, report: report}
}

// progress takes that of the content that comes now.
func (s *sum) progress(p content.Progress) {
	if s.report == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = p
	p.Done, p.Total, p.Fetched = s.done+p.Done, s.total, s.fetched+p.Fetched
	p.From = joined(s.before, p.From)
	p.Left = -1
	if p.Rate > 0 {
		p.Left = time.Duration(float64(p.Total-p.Done) / p.Rate * float64(time.Second))
	}
	s.report(p)
}

// next goes on to the next content; the last one had that many bytes.
func (s *sum) next(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += bytes
	s.fetched += s.last.Fetched
	for _, f := range s.last.From {
		f.Rate = 0
		s.before = joined(s.before, []content.Source{f})
	}
	s.last = content.Progress{}
}

// joined adds up what came from each source, the most first.
func joined(a, b []content.Source) []content.Source {
	if len(a) == 0 {
		return b
	}
	list := slices.Clone(a)
	for _, f := range b {
		if i := slices.IndexFunc(list, func(o content.Source) bool { return o.Name == f.Name }); i >= 0 {
			list[i].Bytes += f.Bytes
			list[i].Rate += f.Rate
		} else {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(x, y content.Source) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return list
}
