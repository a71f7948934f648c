package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// liar is a holder that answers, whatever it is asked, with these bytes.
type liar struct {
	io.Reader
	asked chan struct{}
	once  sync.Once
	sent  atomic.Int64
}

func (l *liar) Read(p []byte) (int, error) {
	<-l.asked
	n, err := l.Reader.Read(p)
	l.sent.Add(int64(n))
	return n, err
}

func (l *liar) hear() { l.once.Do(func() { close(l.asked) }) }

func (l *liar) Write(p []byte) (int, error) { l.hear(); return len(p), nil }
func (l *liar) Close() error                { l.hear(); return nil }

func (*liar) LocalAddr() net.Addr              { return &net.IPAddr{} }
func (*liar) RemoteAddr() net.Addr             { return &net.IPAddr{} }
func (*liar) SetDeadline(time.Time) error      { return nil }
func (*liar) SetReadDeadline(time.Time) error  { return nil }
func (*liar) SetWriteDeadline(time.Time) error { return nil }

// asking is how a peer asks a holder that answers so.
func asking(t testing.TB, answer io.Reader) (to http.RoundTripper, l *liar) {
	l = &liar{Reader: answer, asked: make(chan struct{})}
	transport := newBlockTransport(func(context.Context, string, string) (net.Conn, error) { return l, nil })
	t.Cleanup(transport.CloseIdleConnections)
	return streamTripper{transport, peer.ID("liar")}, l
}

// quiet drops what net/http prints of bytes that nobody asked for.
func quiet(t testing.TB) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
}

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += len(e) {
		copy(p[i:], e)
	}
	return len(p), nil
}

// TestHoldersThatLie about the bytes [100, 200): nothing but what was asked for
// gets through, and nothing without end is read.
func TestHoldersThatLie(t *testing.T) {
	quiet(t)
	const asked = 100
	body := strings.Repeat("x", 2*asked)
	head := func(length int, span string) string {
		return fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nContent-Range: %s\r\n\r\n", length, span)
	}
	for name, c := range map[string]struct {
		answer io.Reader
		begins bool // The range is opened.
		got    int
		want   error
	}{
		"the truth":            {strings.NewReader(head(asked, "bytes 100-199/*") + body[:asked]), true, asked, nil},
		"less of it":           {strings.NewReader(head(10, "bytes 100-109/*") + body[:10]), true, 10, nil},
		"more than it says":    {strings.NewReader(head(asked, "bytes 100-199/*") + body), true, asked, nil},
		"less than it says":    {strings.NewReader(head(asked, "bytes 100-199/*") + body[:10]), true, 10, ErrPeerGone},
		"no end":               {io.MultiReader(strings.NewReader(head(asked, "bytes 100-199/*")), endless("x")), true, asked, nil},
		"more than asked":      {strings.NewReader(head(asked+1, "bytes 100-200/*") + body), false, 0, ErrBadAnswer},
		"other bytes":          {strings.NewReader(head(asked, "bytes 0-99/*") + body), false, 0, ErrBadAnswer},
		"another length":       {strings.NewReader(head(asked-1, "bytes 100-199/*") + body), false, 0, ErrBadAnswer},
		"no length":            {strings.NewReader("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 100-199/*\r\n\r\n" + body), false, 0, ErrBadAnswer},
		"in chunks":            {strings.NewReader("HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes 100-199/*\r\n\r\n64\r\n" + body[:100] + "\r\n0\r\n\r\n"), false, 0, ErrBadAnswer},
		"two lengths":          {strings.NewReader("HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Length: 200\r\nContent-Range: bytes 100-199/*\r\n\r\n" + body), false, 0, ErrPeerGone},
		"two ranges":           {strings.NewReader("HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 100-199/*\r\nContent-Range: bytes 100-199/*\r\n\r\n" + body), false, 0, ErrBadAnswer},
		"no range":             {strings.NewReader("HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\n\r\n" + body), false, 0, ErrBadAnswer},
		"all of the file":      {strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + body), false, 0, ErrBadAnswer},
		"go elsewhere":         {strings.NewReader("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"), false, 0, ErrBadAnswer},
		"no HTTP":              {endless("relay"), false, 0, ErrPeerGone},
		"no HTTP, a line":      {strings.NewReader(strings.Repeat("relay", 2000) + "\r\n\r\n"), false, 0, ErrPeerGone},
		"headers without end":  {io.MultiReader(strings.NewReader("HTTP/1.1 206 Partial Content\r\n"), endless("X-A: b\r\n")), false, 0, ErrPeerGone},
		"a line without end":   {io.MultiReader(strings.NewReader("HTTP/1.1 206 Partial Content\r\nX-A: "), endless("b")), false, 0, ErrPeerGone},
		"continue without end": {endless("HTTP/1.1 100 Continue\r\n\r\n"), false, 0, ErrPeerGone},
		"a long excuse":        {io.MultiReader(strings.NewReader("HTTP/1.1 404 Not Found\r\n\r\n"), endless("sorry \x1b[31m")), false, 0, ErrNotHere},
	} {
		t.Run(name, func(t *testing.T) {
			to, l := asking(t, c.answer)
			r, err := askRange(t.Context(), to, testRoot("model"), 100, 100+asked, false)
			if (err == nil) != c.begins {
				t.Fatalf("it began: %v", err)
			}
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r)
				_ = r.Close()
			}
			if len(got) != c.got || !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if err != nil && (len(err.Error()) > 2*maxSentence || strings.ContainsRune(err.Error(), '\x1b')) {
				t.Errorf("the error is %q", err)
			}
			if sent := l.sent.Load(); sent > 64<<10 {
				t.Errorf("%d bytes were read", sent)
			}
		})
	}
}

func TestHoldersThatLieAboutWhatTheyHave(t *testing.T) {
	quiet(t)
	for name, c := range map[string]struct {
		answer io.Reader
		have   int
		want   error
	}{
		"a part":             {strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), 3, nil},
		"all, and a part":    {strings.NewReader("HTTP/1.1 200 OK\r\nRelay-Whole: 1\r\nContent-Length: 3\r\n\r\nabc"), 0, ErrBadAnswer},
		"as much as may be":  {io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\n\r\n"), io.LimitReader(endless("x"), maxHave)), maxHave, nil},
		"more than may be":   {io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\n\r\n"), io.LimitReader(endless("x"), maxHave+1)), 0, ErrBadAnswer},
		"no end":             {io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\n\r\n"), endless("x")), 0, ErrBadAnswer},
		"less than it says":  {strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc"), 0, ErrPeerGone},
		"not what was asked": {strings.NewReader("HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc"), 0, ErrBadAnswer},
		"no answer":          {strings.NewReader(""), 0, ErrPeerGone},
	} {
		t.Run(name, func(t *testing.T) {
			to, l := asking(t, c.answer)
			have, whole, err := askHave(t.Context(), to, testRoot("model"))
			if len(have) != c.have || whole || !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%d bytes, whole %v, %v", len(have), whole, err)
			}
			if sent := l.sent.Load(); sent > maxHave+64<<10 {
				t.Errorf("%d bytes were read", sent)
			}
		})
	}
}

func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-0", "bytes=1-", "bytes=-1", "bytes=2-1", "bytes=0-1,2-3", "bytes=0-18446744073709551615", "bytes=0-67108864", "bytes=+1-2", "bytes 0-9/*", "bytes 0-9/10"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if from, to, err := parseRange([]string{text}); err == nil {
			if from < 0 || to <= from || to-from > MaxRange {
				t.Errorf("%q is %d to %d", text, from, to)
			}
			if a, b, err := parseRange([]string{formatRange(from, to)}); a != from || b != to || err != nil {
				t.Errorf("%d to %d is read as %d to %d, %v", from, to, a, b, err)
			}
		}
		if from, to, ok := parseSent([]string{text}); ok {
			if from < 0 || to <= from {
				t.Errorf("%q is %d to %d", text, from, to)
			}
			if a, b, ok := parseSent([]string{formatSent(from, to)}); a != from || b != to || !ok {
				t.Errorf("%d to %d is read as %d to %d", from, to, a, b)
			}
		}
	})
}

func FuzzHolderAnswers(f *testing.F) {
	quiet(f)
	for _, seed := range []string{
		"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 100-102/*\r\n\r\nabc",
		"HTTP/1.1 206 Partial Content\r\nContent-Length: 300\r\nContent-Range: bytes 100-399/*\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nRelay-Whole: 1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\n\r\nnot on this machine",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		to, _ := asking(t, bytes.NewReader(answer))
		if r, err := askRange(t.Context(), to, testRoot("model"), 100, 200, false); err == nil {
			if got, _ := io.ReadAll(r); len(got) > 100 {
				t.Errorf("%d bytes of 100", len(got))
			}
			_ = r.Close()
		}
		to, _ = asking(t, bytes.NewReader(answer))
		if have, whole, err := askHave(t.Context(), to, testRoot("model")); len(have) > maxHave || (whole || err != nil) && len(have) > 0 {
			t.Errorf("%d bytes, whole %v, %v", len(have), whole, err)
		}
	})
}
