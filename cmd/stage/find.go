package stage

import (
	"bufio"
	"context"
	"os"
	"regexp"
	"time"
)

// Logged is one line of a peer's log, to the millisecond.
type Logged struct {
	By   *Peer
	At   time.Time
	Text string
}

var stamp = regexp.MustCompile(`^time=(\S+) `)

// Find waits for the first line that one of some peers logs from a moment on and
// that matches. All peers are on this machine, and so on one clock.
func Find(ctx context.Context, peers []*Peer, from time.Time, pattern string) (first Logged, err error) {
	re := regexp.MustCompile(pattern)
	err = Until(ctx, "a log says "+pattern, func() bool {
		for _, p := range peers {
			if l, ok := p.logged(from, re); ok && (first.By == nil || l.At.Before(first.At)) {
				first = l
			}
		}
		return first.By != nil
	})
	return first, err
}

func (p *Peer) logged(from time.Time, re *regexp.Regexp) (Logged, bool) {
	f, err := os.Open(p.Log())
	if err != nil {
		return Logged{}, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := stamp.FindStringSubmatch(lines.Text())
		if m == nil || !re.MatchString(lines.Text()) {
			continue
		}
		// What was logged in the same millisecond counts.
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil && !at.Before(from.Truncate(time.Millisecond)) {
			return Logged{p, at, lines.Text()}, true
		}
	}
	return Logged{}, false
}
