package llama

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// client reaches one engine. It is safe for concurrent use.
type client struct {
	transport *http.Transport
	key       string // for an engine on a port
	// dial opens a new connection to the engine.
	dial func(context.Context) (net.Conn, error)
}

// connections is how many connections a client opens at most, and how many
// threads the engine gets for them. In llama-server every open connection, idle
// ones too, has a thread to itself, and one more than its pool has may wait for
// seconds until another closes, although the pool could grow.
func connections(slots int) int { return 32 + 4*slots }

// newClient makes a client for an endpoint. Its idle connections end before
// llama-server's side of them does (5 s), so that no request is sent on one
// that is just being closed.
func newClient(at endpoint, slots int) *client {
	network, address := "unix", at.socket
	if at.socket == "" {
		network, address = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(at.port))
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	dial := at.dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, address) }
	}
	return &client{
		key: at.key, dial: dial,
		transport: &http.Transport{
			DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			MaxConnsPerHost:     connections(slots),
			MaxIdleConnsPerHost: connections(slots),
			IdleConnTimeout:     3 * time.Second,
			DisableCompression:  true,
		},
	}
}

// RoundTrip sends a request to the engine; only path and query of its URL
// count. It leaves out credentials, which are not for the engine, and the header
// by which llama-server would keep an answer for later and go on generating it
// without its client; and from the answer the headers about other sites, which
// llama-server adds to every one.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	r2 := r.WithContext(r.Context()) // a shallow copy
	u := *r.URL
	u.Scheme, u.Host, u.User = "http", "engine", nil
	r2.URL, r2.Host = &u, "engine"
	r2.Header = r.Header.Clone()
	if r2.Header == nil {
		r2.Header = http.Header{}
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "X-Conversation-Id"} {
		r2.Header.Del(name)
	}
	if c.key != "" {
		r2.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.transport.RoundTrip(r2)
	if err != nil {
		return nil, err
	}
	for name := range resp.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			resp.Header.Del(name)
		}
	}
	return resp, nil
}

// CloseIdleConnections is for http.Client's method of that name.
func (c *client) CloseIdleConnections() { c.transport.CloseIdleConnections() }
