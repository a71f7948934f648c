package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"relay/p2p/keys"
)

// mark puts into an answer's headers who serves it, and what that took so far. What is
// not known is left out.
func (c *call) mark(h http.Header) {
	if c.tries == 0 {
		return
	}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set(headerPeer, c.peer)
	set(headerPath, c.path)
	set(headerHardware, c.hardware)
	set(headerServed, headerText(c.served))
	h.Set(headerAttempts, strconv.Itoa(c.tries))
	waited := c.routed + c.queue
	h.Set(headerQueue, milliseconds(waited))
	timing := fmt.Sprintf("route;dur=%s, queue;dur=%s", milliseconds(c.routed), milliseconds(c.queue))
	if c.token > 0 {
		timing += ", first;dur=" + milliseconds(c.token)
	}
	h.Set("Server-Timing", timing)
}

func milliseconds(d time.Duration) string { return strconv.FormatFloat(ms(d), 'f', -1, 64) }

// headerText is a name as a header can hold it: bytes that it cannot are written as Go
// writes them in strings.
func headerText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	if quoted = quoted[1 : len(quoted)-1]; len(quoted) == len(s) {
		return s
	}
	return quoted
}

// admit asks whether the key may ask for more now, and says in the headers how it stands.
func (d *Door) admit(w http.ResponseWriter, c *call) (keys.Ticket, *refusal) {
	if d.opt.Quota == nil {
		return unlimited{}, nil
	}
	ticket, standing, err := d.opt.Quota.Admit(c.grant)
	h := w.Header()
	for what, a := range map[string]*keys.Allowance{"requests": standing.Requests, "tokens": standing.Tokens} {
		if a == nil {
			continue
		}
		h.Set("X-Ratelimit-Limit-"+what, strconv.FormatInt(a.Limit, 10))
		h.Set("X-Ratelimit-Remaining-"+what, strconv.FormatInt(max(a.Remaining, 0), 10))
		h.Set("X-Ratelimit-Reset-"+what, max(a.Reset, 0).Round(time.Millisecond).String())
	}
	if err != nil {
		return nil, refusalOf(err, c.id)
	}
	return ticket, nil
}

// unlimited is the ticket of a door without quotas.
type unlimited struct{}

func (unlimited) Used(int, int) {}
func (unlimited) Done()         {}
