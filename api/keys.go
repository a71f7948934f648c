package api

import (
	"net/http"
	"strings"

	"relay/scheduler"
)

// authorize finds the key that a request came with.
func (d *Door) authorize(r *http.Request) (id string, no *refusal) {
	const how = "set RELAY_API_KEY on this peer and start it again, or use the mesh's default key, shown where the mesh was founded"
	secret, given := bearer(r)
	if !given {
		if !d.opt.Keys.Any() {
			return "", refuse(scheduler.MissingKey, "no key opens this door yet: %s", how)
		}
		return "", refuse(scheduler.MissingKey, "this door needs a key: send it as \"Authorization: Bearer rk-…\"")
	}
	grant, err := d.opt.Keys.Check(secret)
	switch {
	case err == nil:
		return grant.ID, nil
	case !d.opt.Keys.Any():
		return "", refuse(scheduler.InvalidKey, "no key opens this door yet: %s", how)
	}
	return "", refuse(scheduler.InvalidKey, "%s", err)
}

// bearer is the secret of the one Authorization header.
func bearer(r *http.Request) (secret string, given bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	secret = strings.TrimSpace(secret)
	return secret, ok && strings.EqualFold(scheme, "Bearer") && secret != ""
}
