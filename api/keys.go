package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"relay/p2p/keys"
	"relay/scheduler"
)

// authorize finds what the key that a request came with may do. A door without keys
// says so: nobody could guess it.
func (d *Door) authorize(r *http.Request) (g keys.Grant, no *refusal) {
	const how = "set RELAY_API_KEY on this peer and start it again, use the mesh's default key, shown where the mesh was founded, or have an admin make one (relay key add)"
	secret, given := secretOf(r)
	switch {
	case !given && !d.opt.Keys.Any():
		return g, refuse(scheduler.MissingKey, "no key opens this door yet: %s", how)
	case !given:
		return g, refuse(scheduler.MissingKey, "this door needs a key: send it as \"Authorization: Bearer rk-…\" or as \"x-api-key: rk-…\"")
	}
	g, err := d.opt.Keys.Check(secret)
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, keys.ErrUnknown) && !d.opt.Heard():
		// Clients take 401 as final.
		no := refuse(scheduler.ModelLoading, "this peer has just started and does not know this key; it may learn of it from the others in a moment: ask again")
		no.after = time.Second
		return g, no
	case !d.opt.Keys.Any():
		return g, refuse(scheduler.InvalidKey, "no key opens this door yet: %s", how)
	}
	no = refuse(scheduler.InvalidKey, "%s", err)
	no.cause = err
	return g, no
}

// secretOf is the secret of the one Authorization header, or of the one x-api-key header
// that Anthropic's clients send.
func secretOf(r *http.Request) (secret string, given bool) {
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		if len(values) != 1 {
			return "", false
		}
		scheme, secret, ok := strings.Cut(values[0], " ")
		secret = strings.TrimSpace(secret)
		return secret, ok && strings.EqualFold(scheme, "Bearer") && secret != ""
	}
	values := r.Header.Values("X-Api-Key")
	if len(values) != 1 {
		return "", false
	}
	return strings.TrimSpace(values[0]), strings.TrimSpace(values[0]) != ""
}
