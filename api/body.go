package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"relay/scheduler"
)

// lateBody is how long a client may go on with a body that is too large: most read no answer
// before they have sent it.
const lateBody = 5 * time.Second

// readBody reads a request's body whole, so that it can be sent more than once
// and so that the connection can be watched for the client's leaving. The
// buffer must be dropped; it is empty when there is a refusal.
func (d *Door) readBody(w http.ResponseWriter, r *http.Request) (*buffer, *refusal) {
	rc := http.NewResponseController(w)
	// tooLarge lets a client that sends on hear why, unless that takes too long.
	tooLarge := func() *refusal {
		rc.SetReadDeadline(time.Now().Add(lateBody))
		io.CopyN(io.Discard, r.Body, 4*d.opt.MaxBody)
		w.Header().Set("Connection", "close")
		return refuse(scheduler.RequestTooLarge, "the body is larger than the %s bytes that this door takes", strconv.FormatInt(d.opt.MaxBody, 10))
	}
	if r.ContentLength > d.opt.MaxBody {
		return &buffer{held: d.held}, tooLarge()
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return &buffer{held: d.held}, invalid("", "the body is sent as %q; send it as it is", clip(enc, 40))
	}
	if t := d.opt.Deadlines.ReadBody; t > 0 {
		rc.SetReadDeadline(time.Now().Add(t))
	}
	buf := &buffer{held: d.held}
	no := func() *refusal {
		if r.ContentLength > 0 && !buf.more(int(min(r.ContentLength, 64<<10))+1) {
			return busyBodies()
		}
		for {
			if len(buf.b) == cap(buf.b) && !buf.more(1) {
				return busyBodies()
			}
			n, err := r.Body.Read(buf.b[len(buf.b):cap(buf.b)])
			buf.b = buf.b[:len(buf.b)+n]
			switch {
			case int64(len(buf.b)) > d.opt.MaxBody:
				return tooLarge()
			case err == io.EOF:
				return nil
			case errors.Is(err, os.ErrDeadlineExceeded):
				no := refuse(scheduler.Timeout, "the body did not come within %s", d.opt.Deadlines.ReadBody)
				no.status = http.StatusRequestTimeout
				return no
			case err != nil:
				no := invalid("", "the body ended before its end")
				no.cause = err
				return no
			}
		}
	}()
	if no != nil {
		buf.drop()
		return buf, no
	}
	// From here on the connection is only watched, for as long as it takes.
	rc.SetReadDeadline(time.Time{})
	return buf, nil
}

func busyBodies() *refusal {
	no := refuse(scheduler.Busy, "this peer holds as many bytes of requests and answers as it may; ask again in a moment, or ask another peer")
	no.retry = scheduler.RetryLater
	return no
}
