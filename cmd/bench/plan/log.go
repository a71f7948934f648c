package main

import (
	"bufio"
	"context"
	"os"
	"regexp"
	"time"

	"relay/cmd/stage"
)

// line is one line of a peer's log, to the millisecond.
type line struct {
	by   *stage.Peer
	at   time.Time
	text string
}

var stamp = regexp.MustCompile(`^time=(\S+) `)

// find waits for the first line that one of some peers logs from a moment on and
// that matches. All peers are on this machine, and so on one clock.
func find(ctx context.Context, peers []*stage.Peer, from time.Time, pattern string) (first line, err error) {
	re := regexp.MustCompile(pattern)
	err = stage.Until(ctx, "a log says "+pattern, func() bool {
		for _, p := range peers {
			if l, ok := scan(p, from, re); ok && (first.by == nil || l.at.Before(first.at)) {
				first = l
			}
		}
		return first.by != nil
	})
	return first, err
}

func scan(p *stage.Peer, from time.Time, re *regexp.Regexp) (line, bool) {
	f, err := os.Open(p.Log())
	if err != nil {
		return line{}, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := stamp.FindStringSubmatch(lines.Text())
		if m == nil || !re.MatchString(lines.Text()) {
			continue
		}
		// What was logged in the same millisecond counts.
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil && !at.Before(from.Truncate(time.Millisecond)) {
			return line{p, at, lines.Text()}, true
		}
	}
	return line{}, false
}
