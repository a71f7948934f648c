package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"relay/p2p/keys"
)

func TestStandingIsSaidAsOpenAIDoes(t *testing.T) {
	h := http.Header{}
	setStanding(h, keys.Standing{})
	if len(h) != 0 {
		t.Errorf("without limits: %v", h)
	}
	setStanding(h, keys.Standing{Requests: &keys.Allowance{Limit: 60, Remaining: 59, Reset: 1500*time.Millisecond + 3*time.Microsecond},
		Tokens: &keys.Allowance{Limit: 1_000_000, Remaining: 0, Reset: 6 * time.Minute}})
	for name, want := range map[string]string{
		"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1.5s",
		"x-ratelimit-limit-tokens": "1000000", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s",
	} {
		if got := h.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if len(h) != 6 {
		t.Errorf("%v", h)
	}
}

func TestOverQuotaSaysWhenToAskAgain(t *testing.T) {
	for after, want := range map[time.Duration]string{90*time.Second + time.Millisecond: "91", 0: "1"} {
		w := httptest.NewRecorder()
		overQuota(&keys.QuotaError{Text: "no more", After: after}, "req-1").write(w)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != want {
			t.Errorf("%d, Retry-After %q, want %q", w.Code, w.Header().Get("Retry-After"), want)
		}
	}
	if no := overQuota(errors.New("a fault"), "req-1"); no.verdict().status != http.StatusInternalServerError {
		t.Errorf("another error: %+v", no)
	}
}
