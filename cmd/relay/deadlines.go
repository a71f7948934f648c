package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"relay/api"
)

// deadlines are how long the door waits for what; 0 is what was not said.
type deadlines struct {
	Dial          time.Duration `json:"dial,omitempty"`
	Headers       time.Duration `json:"headers,omitempty"`
	FirstToken    time.Duration `json:"first_token,omitempty"`
	BetweenTokens time.Duration `json:"between_tokens,omitempty"`
	Total         time.Duration `json:"total,omitempty"`
}

// deadlineNames are what the deadlines are called in settings, in the order of their
// coming.
const deadlineNames = "dial, headers, first-token, between-tokens, total"

// minDeadline and maxDeadline bound them: below no machine keeps them, above they are
// none.
const (
	minDeadline = 10 * time.Millisecond
	maxDeadline = 30 * 24 * time.Hour
)

// each goes through them by name.
func (d *deadlines) each(f func(name string, v *time.Duration)) {
	f("dial", &d.Dial)
	f("headers", &d.Headers)
	f("first-token", &d.FirstToken)
	f("between-tokens", &d.BetweenTokens)
	f("total", &d.Total)
}

// Set reads NAME=DURATION, the value of a flag.
func (d *deadlines) Set(text string) error {
	name, value, _ := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	var at *time.Duration
	d.each(func(known string, v *time.Duration) {
		if known == name {
			at = v
		}
	})
	if at == nil {
		return fmt.Errorf("there is no deadline %q; there is: %s", name, deadlineNames)
	}
	v, err := time.ParseDuration(strings.TrimSpace(value))
	if err != nil || v < minDeadline || v > maxDeadline {
		return fmt.Errorf("%s takes a time from %v to %v, such as 30s or 5m, not %q", name, minDeadline, maxDeadline, value)
	}
	*at = v
	return nil
}

// String is the deadlines as Set reads them, with commas; "" where nothing was said.
func (d *deadlines) String() string {
	var list []string
	d.each(func(name string, v *time.Duration) {
		if *v != 0 {
			list = append(list, name+"="+v.String())
		}
	})
	return strings.Join(list, ",")
}

// Type is what the help of the command calls it.
func (d *deadlines) Type() string { return "NAME=DURATION" }

// over fills in what is not said from what counts less.
func (d deadlines) over(earlier deadlines) deadlines {
	earlier.each(func(name string, less *time.Duration) {
		d.each(func(same string, v *time.Duration) {
			if same == name && *v == 0 {
				*v = *less
			}
		})
	})
	return d
}

// deadlinesFromEnvironment reads RELAY_DEADLINES.
func deadlinesFromEnvironment() (d deadlines, err error) {
	const name = "RELAY_DEADLINES"
	text := os.Getenv(name)
	if text == "" {
		return d, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := d.Set(part); err != nil {
			return d, &usageError{fmt.Sprintf("%s=%s: %v", name, text, err)}
		}
	}
	return d, nil
}

// ofDoor are the deadlines as the door takes them.
func (d deadlines) ofDoor() api.Deadlines {
	return api.Deadlines{Dial: d.Dial, Headers: d.Headers, FirstToken: d.FirstToken, BetweenTokens: d.BetweenTokens, Total: d.Total}
}
