package api

import (
	"net/http/httptest"
	"testing"
	"time"

	"relay/p2p/keys"
	"relay/scheduler"
)

// TestLongWaitsAreNotRetriedAtOnce: SDKs that would take no notice of a long Retry-After
// are told not to ask again by themselves.
func TestLongWaitsAreNotRetriedAtOnce(t *testing.T) {
	busy := func(after time.Duration) *refusal {
		return refusalOf(&scheduler.Error{Why: scheduler.Busy, Message: "busy", Retry: scheduler.RetryLater, RetryAfter: after}, "ref")
	}
	for _, s := range []shape{shapeOpenAI{}, shapeAnthropic{}} {
		for _, tc := range []struct {
			no           *refusal
			status       int
			after, retry string
		}{
			{refusalOf(&keys.QuotaError{Text: "x", After: time.Second}, "ref"), 429, "1", ""},
			{refusalOf(&keys.QuotaError{Text: "x", After: 59 * time.Second}, "ref"), 429, "59", ""},
			{refusalOf(&keys.QuotaError{Text: "x", After: 59*time.Second + 1}, "ref"), 429, "60", "false"},
			{refusalOf(&keys.QuotaError{Text: "x", After: 20 * time.Hour}, "ref"), 429, "72000", "false"},
			{busy(10 * time.Second), 503, "10", ""},
			{busy(10 * time.Minute), 503, "600", "false"},
		} {
			w := httptest.NewRecorder()
			tc.no.write(w, s, "id")
			if h := w.Header(); w.Code != tc.status || h.Get("Retry-After") != tc.after || h.Get(headerShouldRetry) != tc.retry {
				t.Errorf("%+v: %d %v", tc.no, w.Code, h)
			}
		}
	}
}
