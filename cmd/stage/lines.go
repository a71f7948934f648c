package stage

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// lines is what a process printed so far, for looking things up in.
type lines struct {
	mu      sync.Mutex
	printed []byte
	ended   bool
	changed chan struct{} // Closed and replaced at every write.
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.printed = append(l.printed, p...)
	l.wake()
	return len(p), nil
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wake()
}

func (l *lines) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.printed)
}

// find waits until what was printed matches, and returns the first group.
func (l *lines) find(ctx context.Context, pattern string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	re := regexp.MustCompile(pattern)
	for {
		l.mu.Lock()
		text, ended, changed := string(l.printed), l.ended, l.changed
		l.mu.Unlock()
		if m := re.FindStringSubmatch(text); m != nil {
			return m[1], nil
		}
		if ended {
			return "", fmt.Errorf("the peer ended: %s", text)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("the peer did not print %s: %s", pattern, text)
		}
	}
}
