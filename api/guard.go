package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"relay/scheduler"
)

// guard keeps web pages away from a door that only this machine may use: a
// page cannot choose the Host that its browser sends, nor hide where it comes
// from. nil guards nothing.
type guard struct {
	// host is the name or address that the door listens at.
	host string
}

// newGuard makes the guard of a door at a listen address; a door that others
// may reach has none, its keys are its guard.
func newGuard(listen string) *guard {
	host := ""
	if listen != "" {
		host, _, _ = net.SplitHostPort(listen)
	}
	if listen != "" && !isLoopback(host) {
		return nil
	}
	return &guard{host: host}
}

func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback()
}

// check refuses a request that a page of another site may have sent.
func (g *guard) check(r *http.Request) *refusal {
	if g == nil {
		return nil
	}
	if !g.ours(hostname(r.Host)) {
		return refuse(scheduler.ForbiddenOrigin, "this door answers only as localhost or %s, not as %.100q; use that address, or listen on another one (--listen)",
			g.shown(), r.Host)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		return refuse(scheduler.ForbiddenOrigin, "this door takes no requests that a web page of another site sends (Sec-Fetch-Site: %.40q)", site)
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.EqualFold(u.Host, r.Host) {
			return refuse(scheduler.ForbiddenOrigin, "this door takes no requests that a web page of another site sends (Origin: %.100q)", origin)
		}
	}
	return nil
}

func (g *guard) ours(host string) bool {
	return isLoopback(host) || g.host != "" && strings.EqualFold(host, g.host)
}

func (g *guard) shown() string {
	if g.host == "" {
		return "127.0.0.1"
	}
	return g.host
}

// hostname is a Host header without its port and brackets.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
