package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"relay/p2p/keys"
	"relay/scheduler"
)

// overQuota is the refusal for an error of Quota.Admit.
func overQuota(err error, reference string) *refusal {
	no := refusalOf(err, reference)
	if q := (*keys.QuotaError)(nil); errors.As(err, &q) {
		no = refuse(scheduler.QuotaExceeded, "%s", q.Text)
		no.after = max(time.Second, q.After) // Less than that cannot be said.
	}
	return no
}

// setStanding says what is left to the key, as OpenAI's headers do; nothing of a limit
// that there is not.
func setStanding(h http.Header, s keys.Standing) {
	for of, a := range map[string]*keys.Allowance{"Requests": s.Requests, "Tokens": s.Tokens} {
		if a == nil {
			continue
		}
		h.Set("X-Ratelimit-Limit-"+of, strconv.FormatInt(a.Limit, 10))
		h.Set("X-Ratelimit-Remaining-"+of, strconv.FormatInt(a.Remaining, 10))
		h.Set("X-Ratelimit-Reset-"+of, a.Reset.Round(time.Millisecond).String())
	}
}
