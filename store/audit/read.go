package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// Page is what a question for rows is answered with.
type Page struct {
	// Rows are in the order in which their requests ended.
	Rows []Row `json:"rows"`
	// Next is the mark after which Since goes on.
	Next uint64 `json:"next"`
	// Now is what the clock by which the rows are dated says, where another peer asks.
	Now time.Time `json:"now,omitzero"`
}

// Tail returns the last n rows, at most MostRows.
func (l *Log) Tail(n int) (Page, error) {
	n = min(max(n, 0), MostRows)
	unwritten, end := l.unwritten()
	page := Page{Rows: []Row{}, Next: end}
	for i := len(unwritten) - 1; i >= 0 && len(page.Rows) < n; i-- {
		page.Rows = append(page.Rows, unwritten[i].row)
	}
	if len(page.Rows) < n {
		err := l.opt.Space.ScanBack(func(key, value []byte) error {
			if mark := markOf(key); mark > end || isIn(unwritten, mark) {
				return nil
			}
			page.add(value)
			return enoughIf(len(page.Rows) >= n)
		})
		if err != nil && !errors.Is(err, errEnough) {
			return Page{}, err
		}
	}
	slices.Reverse(page.Rows)
	return page, nil
}

// Since returns the rows after a mark, the oldest first, at most n and MostRows.
func (l *Log) Since(mark uint64, n int) (Page, error) {
	n = min(max(n, 0), MostRows)
	unwritten, end := l.unwritten()
	page := Page{Rows: []Row{}, Next: max(mark, end)}
	if mark >= end {
		return page, nil
	}
	full := func(at uint64) error {
		if len(page.Rows) < n {
			return nil
		}
		page.Next = at
		return errEnough
	}
	err := l.opt.Space.ScanFrom(keyOf(mark+1), func(key, value []byte) error {
		at := markOf(key)
		if at > end || isIn(unwritten, at) {
			return nil
		}
		page.add(value)
		return full(at)
	})
	for _, e := range unwritten {
		if err == nil && e.mark > mark {
			page.Rows = append(page.Rows, e.row)
			err = full(e.mark)
		}
	}
	if err != nil && !errors.Is(err, errEnough) {
		return Page{}, err
	}
	return page, nil
}

// lookEvery is after how many rows Find looks whether it is still asked.
const lookEvery = 128

// Find returns the rows with a request's id, at most MostRows, the newest ones:
// clients may use one again. It looks through all rows until ctx is done; its error is
// that of ctx then.
func (l *Log) Find(ctx context.Context, id string) (Page, error) {
	quoted, err := json.Marshal(id)
	if err != nil {
		return Page{}, err
	}
	start := append([]byte(`{"id":`), quoted...)
	unwritten, end := l.unwritten()
	page := Page{Rows: []Row{}, Next: end}
	for _, e := range slices.Backward(unwritten) {
		if e.row.ID == id && len(page.Rows) < MostRows {
			page.Rows = append(page.Rows, e.row)
		}
	}
	seen := 0
	err = l.opt.Space.ScanBack(func(key, value []byte) error {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !bytes.HasPrefix(value, start) || isIn(unwritten, markOf(key)) {
			return nil
		}
		page.add(value)
		return enoughIf(len(page.Rows) >= MostRows)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return Page{}, err
	}
	slices.Reverse(page.Rows)
	return page, nil
}

// add takes in a row from the disk. One that cannot be read is left out.
func (p *Page) add(value []byte) {
	var r Row
	if json.Unmarshal(value, &r) == nil {
		p.Rows = append(p.Rows, r)
	}
}

func enoughIf(enough bool) error {
	if enough {
		return errEnough
	}
	return nil
}

// unwritten are the rows that wait for the disk, and the mark of the last row of all.
// They are taken first: what is written meanwhile is then in both, not in neither.
func (l *Log) unwritten() (list []entry, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.waiting), l.last
}

func isIn(list []entry, mark uint64) bool {
	return len(list) > 0 && mark >= list[0].mark && mark <= list[len(list)-1].mark
}
