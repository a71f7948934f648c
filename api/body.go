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

// readBody reads a request's body whole, so that it can be sent more than once
// and so that the connection can be watched for the client's leaving. The
// buffer must be dropped; it is empty when there is a refusal.
func (d *Door) readBody(w http.ResponseWriter, r *http.Request) (*buffer, *refusal) {
	tooLarge := func() *refusal {
		w.Header().Set("Connection", "close")
		return refuse(scheduler.RequestTooLarge, "the body is larger than the %s bytes that this door takes", strconv.FormatInt(d.opt.MaxBody, 10))
	}
	if r.ContentLength > d.opt.MaxBody {
		return &buffer{held: d.held}, tooLarge()
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return &buffer{held: d.held}, invalid("", "the body is sent as %q; send it as it is", clip(enc, 40))
	}
	rc := http.NewResponseController(w)
	if t := d.opt.Deadlines.ReadBody; t > 0 {
		rc.SetReadDeadline(time.Now().Add(t))
	}
	buf := &buffer{held: d.held}
	no := func() *refusal {
		if r.ContentLength > 0 && !buf.more(int(min(r.ContentLength, 4<<20))+1) {
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

// completionRequest is what the door reads out of a body.
type completionRequest struct {
	body   []byte
	model  string
	at     span // of the model's name
	stream bool
}

// calling is the body with the model called uid; every other byte is as it came.
func (q completionRequest) calling(uid string) payload {
	return payload{q.body[:q.at.start], encodeJSON(uid), q.body[q.at.end:]}
}

// parseCompletion checks a body as far as the door must.
func parseCompletion(body []byte) (completionRequest, *refusal) {
	if len(body) == 0 {
		return completionRequest{}, invalid("", "the body is empty; send JSON")
	}
	out, err := outlineOf(body)
	switch {
	case errors.Is(err, errNotUTF8):
		return completionRequest{}, invalid("", "the body is not UTF-8; send JSON in UTF-8")
	case errors.Is(err, errTooDeep):
		return completionRequest{}, invalid("", "the body's JSON is nested more than %d deep", maxDepth)
	case errors.Is(err, errNotObject):
		return completionRequest{}, invalid("", "the body is JSON, but not an object")
	case err != nil:
		return completionRequest{}, invalid("", "the body is not JSON")
	case out.twice == "model" || out.twice == "stream":
		return completionRequest{}, invalid(out.twice, "%q is in the body more than once; send it once", out.twice)
	case !out.model.found() || string(out.model.of(body)) == "null":
		return completionRequest{}, invalid("model", "the body names no model; GET /v1/models lists what there is")
	case body[out.model.start] != '"':
		return completionRequest{}, invalid("model", "the model's name must be a string")
	}
	req := completionRequest{body: body, at: out.model, model: unquote(out.model.of(body))}
	switch {
	case req.model == "":
		return completionRequest{}, invalid("model", "the model's name is empty; GET /v1/models lists what there is")
	case len(req.model) > 512:
		return completionRequest{}, invalid("model", "the model's name is longer than 512 bytes")
	case out.remote != "":
		return completionRequest{}, invalid("messages", "media must be in the body as \"data:\" URLs: relay fetches nothing for a request, and this one names %q", clip(out.remote, 60))
	}
	req.stream = out.stream.found() && string(out.stream.of(body)) == "true"
	return req, nil
}
