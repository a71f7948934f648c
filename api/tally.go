package api

import (
	"bytes"
	"cmp"
)

// tally counts the tokens of a request as the engine tells them, event by event.
type tally struct {
	// answers is how many answers each prompt gets; they share the prompt's tokens.
	answers int
	// most is how many answers there are in all; 0 is not known.
	most int
	each []counts
	last int // the answer that was spoken of last
}

// counts are the tokens of one answer.
type counts struct{ prompt, cached, done int }

// maxAnswers bounds the answers of one request that are counted apart.
const maxAnswers = 4096

// note takes what an event tells of its answer, and says whether that is anything.
func (t *tally) note(c *chunk) bool {
	// Within a JSON value no string can hold these bytes: its quotes are escaped.
	if n, ok := numberAt(c.value("choices"), `"index":`); ok && n < min(maxAnswers, cmp.Or(t.most, maxAnswers)) {
		t.last = n
	}
	for len(t.each) <= t.last {
		t.each = append(t.each, counts{})
	}
	at := &t.each[t.last]
	if u := c.value("usage"); len(u) > 0 && u[0] == '{' {
		at.prompt, _ = numberAt(u, `"prompt_tokens":`)
		at.done, _ = numberAt(u, `"completion_tokens":`)
		at.cached, _ = numberAt(u, `"cached_tokens":`)
		return true
	}
	if p := c.value("prompt_progress"); len(p) > 0 {
		at.prompt, _ = numberAt(p, `"processed":`)
		at.cached, _ = numberAt(p, `"cache":`)
		return true
	}
	if v := c.value("timings"); len(v) > 0 {
		fresh, _ := numberAt(v, `"prompt_n":`)
		at.cached, _ = numberAt(v, `"cache_n":`)
		at.prompt = at.cached + fresh
		at.done, _ = numberAt(v, `"predicted_n":`)
		return true
	}
	return false
}

// sum is what the whole request took so far.
func (t *tally) sum() (u usage) {
	for i, c := range t.each {
		u.Completion += c.done
		if i%max(t.answers, 1) == 0 {
			u.Prompt += c.prompt
			u.Cached += c.cached
		}
	}
	return u
}

// numberAt is the whole number behind a name in JSON; ok is false where there is none.
func numberAt(b []byte, name string) (n int, ok bool) {
	at := bytes.Index(b, []byte(name))
	if at < 0 {
		return 0, false
	}
	b = bytes.TrimLeft(b[at+len(name):], " \t\r\n")
	end := 0
	for end < len(b) && b[end] >= '0' && b[end] <= '9' {
		end++
	}
	return whole(b[:end])
}
