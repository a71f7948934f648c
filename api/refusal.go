package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"relay/p2p/keys"
	"relay/scheduler"
)

// refusal is why a request gets no answer, as the asker is told.
type refusal struct {
	reason  scheduler.Reason
	message string
	// status, retry and after replace the table's where they are set.
	status int
	retry  scheduler.Retry
	after  time.Duration
	// param is the field of the request that is at fault, or empty.
	param string
	// tokens and context are the figures of an overflow of the context; 0 where they are
	// not known.
	tokens, context int
	// answered says that a living engine or peer said this, so that it is what
	// the client is told when there is no other replica to ask soon.
	answered bool
	// died says that the engine ended over this request, unasked that no engine was asked.
	died, unasked bool
	// last says that nobody else may give the answer: it had begun, or engines end over
	// this request.
	last bool
	// cause goes to the log only.
	cause error
}

func (r *refusal) Error() string  { return r.message }
func (r *refusal) Reason() string { return string(r.reason) }
func (r *refusal) Unwrap() error  { return r.cause }

func refuse(why scheduler.Reason, format string, args ...any) *refusal {
	return &refusal{reason: why, message: fmt.Sprintf(format, args...)}
}

// invalid is a 400 that names the field at fault; param may be empty.
func invalid(param, format string, args ...any) *refusal {
	r := refuse(scheduler.InvalidRequest, format, args...)
	r.param = param
	return r
}

// refusalOf puts any error into words that may be shown. An error without a
// reason is relay's own fault: its text stays in the log, under the reference.
func refusalOf(err error, reference string) *refusal {
	var own *refusal
	if errors.As(err, &own) {
		return own
	}
	var e *scheduler.Error
	if errors.As(err, &e) {
		if _, known := verdictOf(e.Why); known && e.Why != scheduler.Internal {
			return &refusal{reason: e.Why, message: e.Message, retry: e.Retry, after: e.RetryAfter, cause: err}
		}
		return internal(err, reference)
	}
	if why := scheduler.ReasonOf(err); why != scheduler.Internal {
		if _, known := verdictOf(why); known {
			no := &refusal{reason: why, message: err.Error(), cause: err}
			var quota *keys.QuotaError
			if errors.As(err, &quota) {
				no.after = quota.After
			}
			return no
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		r := refuse(scheduler.Timeout, "relay waited for as long as it may and no peer answered; ask again")
		r.cause = err
		return r
	}
	return internal(err, reference)
}

func internal(err error, reference string) *refusal {
	r := refuse(scheduler.Internal, "relay itself failed at this request; this peer's log says more under %s", reference)
	r.cause = err
	return r
}

// verdict is the table's row with the refusal's own values put over it.
func (r *refusal) verdict() verdict {
	v, _ := verdictOf(r.reason)
	if r.status != 0 {
		v.status = r.status
	}
	if r.retry != "" {
		v.retry = r.retry
	}
	if r.after != 0 {
		v.after = r.after
	}
	return v
}

// write answers with the refusal in a client's shape. Nothing may have been written
// before.
func (r *refusal) write(w http.ResponseWriter, s shape, id string) {
	v := r.verdict()
	h := w.Header()
	if v.after > 0 && (v.status == http.StatusServiceUnavailable || v.status == http.StatusTooManyRequests) {
		h.Set("Retry-After", seconds(v.after))
	}
	if v.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if sdkRetries(v.status) && (v.retry == scheduler.RetryNever || h.Get("Retry-After") != "" && v.after > maxSDKWait) {
		h.Set(headerShouldRetry, "false")
	}
	writeJSON(w, v.status, s.body(r, id))
}

// maxSDKWait is the longest Retry-After, in whole seconds, that those SDKs all heed: of
// one of a minute or more they take no notice, and ask again at once.
const maxSDKWait = 59 * time.Second

// headerShouldRetry tells the SDKs of OpenAI and Anthropic what they would guess from the
// status.
const headerShouldRetry = "X-Should-Retry"

// sdkRetries says whether those SDKs would ask again.
func sdkRetries(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooManyRequests || status >= 500
}

// tooLong is an overflow of the context in the words that clients look for.
func (q *request) tooLong(tokens, context int) *refusal {
	param := cmp.Or(q.asks, "messages")
	what := "your " + param
	switch q.kind { // Of several texts, each has to fit by itself.
	case kindEmbed:
		what = "a text of your input"
	case kindRerank:
		what = "one of your documents, together with the query,"
	}
	text := fmt.Sprintf("This model's maximum context length is %d tokens. However, %s resulted in %d tokens. Please reduce the length of the %s.", context, what, tokens, param)
	if tokens <= context {
		text = fmt.Sprintf("This model's maximum context length is %d tokens, which prompt and answer do not fit into together. Please reduce the length of the %s.", context, param)
	}
	no := refuse(scheduler.ContextLength, "%s", text)
	no.param, no.tokens, no.context, no.retry = param, tokens, context, scheduler.RetryNever
	return no
}

func tooLongAnthropic(tokens, context int) string {
	return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", tokens, context)
}

// seconds rounds up, as Retry-After counts in whole ones.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// writeJSON answers with a body that is JSON already; it ends with a newline,
// for those who read it in a terminal.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body)
}

// encodeJSON is JSON without HTML escapes. What is given to it can be encoded.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return []byte(`{"error":{"message":"relay could not write its answer","type":"server_error","param":null,"code":"internal"}}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
