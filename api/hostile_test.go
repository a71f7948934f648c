package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/llama/sim"
)

// besieged is a door on loopback with tight bounds, which bad clients come to.
type besieged struct {
	*testPeer
	address string
	mu      sync.Mutex
	ends    map[string]chan struct{} // Of connections, by the client's address.
}

// ended is closed when the door has closed its side of a client's connection.
func (b *besieged) ended(client net.Addr) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := b.ends[client.String()]
	if end == nil {
		end = make(chan struct{})
		b.ends[client.String()] = end
	}
	return end
}

// watchedListener has a besieged told of the ends of connections.
type watchedListener struct {
	net.Listener
	by *besieged
}

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{c, sync.OnceFunc(func() { close(l.by.ended(c.RemoteAddr())) })}, nil
}

type watchedConn struct {
	net.Conn
	close func()
}

func (c *watchedConn) Close() error {
	defer c.close()
	return c.Conn.Close()
}

const (
	siegeConns   = 300
	siegeWaiting = 200
	siegeBody    = 64 << 10
	siegeHeld    = 4 << 20
)

var siegeDeadlines = Deadlines{ReadHeader: time.Second, ReadBody: time.Second, Write: time.Second, Idle: 10 * time.Second}

func newBesieged(t *testing.T, engine sim.Options) *besieged {
	if engine.Slots == 0 {
		engine.Slots = 64
	}
	p := newPeer(t, "one", engine, func(o *DoorOptions) {
		o.MaxBody, o.MaxHeld, o.Deadlines, o.Listen = siegeBody, siegeHeld, siegeDeadlines, "127.0.0.1:8420"
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &besieged{testPeer: p, address: l.Addr().String(), ends: map[string]chan struct{}{}}
	run(t, func(ctx context.Context) error {
		return Serve(ctx, watchedListener{l, b}, p.door.Handler(), ServeOptions{Deadlines: siegeDeadlines, MaxConns: siegeConns, MaxWaiting: siegeWaiting, Log: slog.New(slog.DiscardHandler)})
	})
	p.url = "http://" + b.address
	return b
}

// siege has many bad clients come, each with a connection of its own. A good client asks
// all the while: none of its requests may fail, and half of them are answered soon. When
// all of the bad ones have come, no more memory may be in use than most bytes for each.
// Every one of them has to be got rid of: bad returns when its connection has ended.
func (b *besieged) siege(t *testing.T, crowd, most int, bad func(c *net.TCPConn) error) {
	t.Helper()
	before := heap()
	var came atomic.Int32
	var all sync.WaitGroup
	ended := make(chan struct{})
	for i := range crowd {
		all.Go(func() {
			<-time.After(time.Duration(i) * 2 * time.Millisecond) // one after the other
			c, err := net.Dial("tcp", b.address)
			came.Add(1)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			if err := bad(c.(*net.TCPConn)); err != nil {
				t.Error(err)
			}
		})
	}
	go func() { all.Wait(); close(ended) }()

	client := &http.Transport{}
	defer client.CloseIdleConnections()
	var took []time.Duration
	held, looks := int64(1<<60), 0 // the least of some: others allocate meanwhile
	for over := false; !over || len(took) < 20; {
		select {
		case <-ended:
			over = true
		default:
		}
		if int(came.Load()) == crowd && looks < 10 {
			held = min(held, heap()-before)
			looks++
		}
		began := time.Now()
		if err := b.good(t.Context(), client); err != nil {
			t.Errorf("a good client's request, after %d: %v", len(took), err)
			break
		}
		took = append(took, time.Since(began))
	}
	<-ended
	if len(took) > 0 {
		slices.Sort(took)
		median := took[len(took)/2]
		t.Logf("%d bad clients: %d bytes each; of %d good requests half took %v, the longest %v", crowd, held/int64(crowd), len(took), median, took[len(took)-1])
		if median > 500*time.Millisecond {
			t.Errorf("half of the good requests took more than %v", median)
		}
	}
	if held > int64(crowd*most)+(4<<20) {
		t.Errorf("%d bad clients take %d bytes", crowd, held)
	}
	b.sched.settled()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func (b *besieged) good(ctx context.Context, client *http.Transport) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/chat/completions", strings.NewReader(chatBody(testModel, true)))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+testKey)
	resp, err := client.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != 200 || !strings.HasSuffix(string(body), "data: [DONE]\n\n")) {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// head is the beginning of a request with the good key, ended by what is given.
func head(more string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\n" + more
}

// answered reads one answer and wants its status, or one of them.
func answered(c net.Conn, want ...int) error {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	if !slices.Contains(want, resp.StatusCode) {
		return fmt.Errorf("%s, not %d", resp.Status, want)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// cut waits for the end of a connection that the door closes.
func cut(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the connection was not closed")
	}
	return nil
}

// drip sends byte by byte, for ever, until it is cut off.
func drip(c net.Conn, text string) error {
	for tick, i := time.NewTicker(10*time.Millisecond), 0; ; i++ {
		if _, err := c.Write([]byte{text[i%len(text)]}); err != nil {
			tick.Stop()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return errors.New("the connection was not closed")
			}
			return nil
		}
		<-tick.C
	}
}

func TestBadClients(t *testing.T) {
	const crowd = 100
	// Shared, so that what is measured is the door's.
	long := func(text, again string, times int) []byte { return []byte(text + strings.Repeat(again, times)) }
	longHeader := long("GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ", "a", 8<<20)
	manyHeaders := long("GET /healthz HTTP/1.1\r\nHost: x\r\n", "A: b\r\n", 1<<20)
	longPath := long("GET /", "a/../", 1<<20)
	chunk := long("4000\r\n", "x", 0x4000)
	chunk = append(chunk, "\r\n"...)
	chunkHeader := long("", "x", 4<<10)
	forEver := func(c net.Conn, part []byte) error {
		for {
			if _, err := c.Write(part); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return errors.New("the connection was not closed")
				}
				return nil
			}
		}
	}
	for _, c := range []struct {
		name  string
		crowd int
		most  int // bytes of memory for each
		bad   func(c *net.TCPConn) error
	}{
		{"says nothing", 3 * siegeConns, 40 << 10, func(c *net.TCPConn) error { return cut(c) }},
		{"header byte by byte", crowd, 40 << 10, func(c *net.TCPConn) error {
			return drip(c, "GET / HTTP/1.1\r\nX-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
		}},
		{"body byte by byte", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Content-Length: 60000\r\n\r\n"))
			return drip(c, " ")
		}},
		{"chunks byte by byte", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Transfer-Encoding: chunked\r\n\r\n"))
			return drip(c, "1\r\n \r\n")
		}},
		{"endless chunks", crowd, 200 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Transfer-Encoding: chunked\r\n\r\n"))
			return forEver(c, chunk)
		}},
		{"an endless chunk header", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Transfer-Encoding: chunked\r\n\r\n1;"))
			return forEver(c, chunkHeader)
		}},
		{"a length that is a lie", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Content-Length: 60000\r\n\r\n{}"))
			c.CloseWrite()
			return answered(c, 400)
		}},
		{"a length without end", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Content-Length: 9000000000000000000\r\n\r\n{}"))
			return answered(c, 413)
		}},
		{"two lengths", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, head("Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"))
			return answered(c, 400)
		}},
		{"not UTF-8", crowd, 200 << 10, func(c *net.TCPConn) error {
			body := `{"model":"tiny","x":"` + strings.Repeat("\xff\xfe\xc0\x80", 10<<10) + `"}`
			fmt.Fprint(c, head(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)))
			return answered(c, 400, 503)
		}},
		{"deep JSON", crowd, 200 << 10, func(c *net.TCPConn) error {
			body := `{"model":"tiny","messages":` + strings.Repeat(`[{"a":`, 8<<10)
			fmt.Fprint(c, head(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)))
			return answered(c, 400, 503)
		}},
		{"one long header", crowd, 200 << 10, func(c *net.TCPConn) error {
			c.Write(longHeader)
			return cut(c)
		}},
		{"many headers", crowd, 200 << 10, func(c *net.TCPConn) error {
			c.Write(manyHeaders)
			return cut(c)
		}},
		{"a long path", crowd, 200 << 10, func(c *net.TCPConn) error {
			c.Write(longPath)
			return cut(c)
		}},
		{"half closed before the answer", crowd, 60 << 10, func(c *net.TCPConn) error {
			body := `{"model":"tiny","stream":true,"messages":[{"role":"user","content":"a"}],"max_tokens":4000}`
			fmt.Fprint(c, head(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)))
			c.CloseWrite()
			return cut(c)
		}},
		{"half closed in the header", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, "GET /v1/models HTTP/1.1\r\nHo")
			c.CloseWrite()
			return cut(c)
		}},
		{"garbage behind a request", crowd, 60 << 10, func(c *net.TCPConn) error {
			go func() {
				fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"+strings.Repeat("\x00\xffgarbage\r\n", 1<<10))
			}()
			return cut(c)
		}},
		{"not HTTP", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"+strings.Repeat("\x00", 100)+"\r\n\r\n")
			return cut(c)
		}},
		{"HTTP/2", crowd, 60 << 10, func(c *net.TCPConn) error {
			fmt.Fprint(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
			return cut(c)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			newBesieged(t, sim.Options{}).siege(t, c.crowd, c.most, c.bad)
		})
	}
}

// TestStreamsThatNobodyReads are ended, and until then held back at the engine.
func TestStreamsThatNobodyReads(t *testing.T) {
	const crowd = 50
	b := newBesieged(t, sim.Options{})
	engine := &talker{RoundTripper: b.client}
	b.client = engine
	body := `{"model":"tiny","stream":true,"messages":[{"role":"user","content":"for ever"}]}`
	b.siege(t, crowd, 100<<10, func(c *net.TCPConn) error {
		c.SetReadBuffer(4 << 10)
		fmt.Fprint(c, head(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)))
		select { // A client that does not read learns nothing of it.
		case <-b.ended(c.LocalAddr()):
			return nil
		case <-time.After(time.Minute):
			return errors.New("the connection was not closed")
		}
	})
	select { // Some may have come too late with their request, where the machine is busy.
	case <-engine.left():
	case <-time.After(10 * time.Second):
		t.Error("the engine goes on")
	}
	if engine.came.Load() == 0 {
		t.Error("the engine was not asked")
	}
}

// TestAnswersThatNobodyReads: also of refusals, the connections are closed. Of that the
// one who sends on may learn nothing, as its own window is shut.
func TestAnswersThatNobodyReads(t *testing.T) {
	b := newBesieged(t, sim.Options{})
	pipeline := []byte(strings.Repeat("GET /v1/nosuch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 100))
	b.siege(t, 10, 1<<20, func(c *net.TCPConn) error {
		c.SetReadBuffer(4 << 10)
		stuck := make(chan struct{})
		go func() {
			defer close(stuck)
			for {
				if _, err := c.Write(pipeline); err != nil {
					return
				}
			}
		}()
		select {
		case <-b.ended(c.LocalAddr()):
		case <-time.After(20 * time.Second):
			return errors.New("the connection was not closed")
		}
		c.Close()
		<-stuck
		return nil
	})
}

// talker is an engine that never ends what it says to requests that ask for that.
type talker struct {
	http.RoundTripper
	came atomic.Int32
	says sync.WaitGroup
}

// left is closed when all requests that came have been given up.
func (e *talker) left() <-chan struct{} {
	all := make(chan struct{})
	go func() {
		defer close(all)
		e.says.Wait()
	}()
	return all
}

func (e *talker) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(body), "for ever") {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(strings.NewReader(string(body)))
		return e.RoundTripper.RoundTrip(again)
	}
	out, in := io.Pipe()
	e.came.Add(1)
	e.says.Go(func() {
		event := []byte(`data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("a", 1000) + `"},"finish_reason":null}],"model":"x","object":"chat.completion.chunk"}` + "\n\n")
		for {
			if _, err := in.Write(event); err != nil {
				return
			}
		}
	})
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: out, ContentLength: -1}, nil
}

// TestMadeUpKeys are refused, ten thousand of them, and leave nothing.
func TestMadeUpKeys(t *testing.T) {
	const each = 100
	b := newBesieged(t, sim.Options{})
	before := heap()
	var nth atomic.Int64
	b.siege(t, 100, 60<<10, func(c *net.TCPConn) error {
		in := bufio.NewReader(c)
		for range each {
			n := nth.Add(1)
			how := fmt.Sprintf("Authorization: Bearer rk-%08d-%032d", n, n)
			if n%2 == 0 {
				how = fmt.Sprintf("x-api-key: rk-%08d-%s", n, strings.Repeat("k", 16<<10))
			}
			fmt.Fprintf(c, "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n", how)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != 401 || err != nil {
				return fmt.Errorf("%s, %v", resp.Status, err)
			}
		}
		return nil
	})
	if left := heap() - before; left > 4<<20 {
		t.Errorf("%d keys left %d bytes", nth.Load(), left)
	}
}

// TestRebinding: a page whose name was made to mean this machine gets nothing, by any
// way of saying which host it means.
func TestRebinding(t *testing.T) {
	b := newBesieged(t, sim.Options{})
	_, port, _ := net.SplitHostPort(b.address)
	for _, lines := range []string{
		"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: evil.example:" + port + "\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: localhost.evil.example\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: 0.0.0.0\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: [::]\r\n",
		"GET http://evil.example/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n",
		"GET /v1/models HTTP/1.1\r\n",
		"GET /v1/models HTTP/1.0\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\nContent-Length: 0\r\nOrigin: http://evil.example\r\n",
	} {
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(c, lines+"Authorization: Bearer "+testKey+"\r\n\r\n")
		if err := answered(c, 400, 403); err != nil {
			t.Errorf("%q: %v", lines, err)
		}
		c.Close()
	}
	if st := b.engine.State(); st.Requests != 0 {
		t.Errorf("%d requests came through", st.Requests)
	}
}

// TestAsManyRequestsAsMayBe: the next one is told to come again, and may when one has
// ended; what needs no key is answered all the same. So it is with those of other peers.
func TestAsManyRequestsAsMayBe(t *testing.T) {
	const most = 3
	for _, full := range []string{"entrance", "serving peer"} {
		entrance, all := newMesh(t, []sim.Options{{Slots: 16, Faults: []sim.Fault{{Kind: sim.FaultStall, After: 2}}}}, func(o *DoorOptions) { o.MaxRequests = most })
		serving := all[0]
		if full == "serving peer" {
			entrance.door.clients.max = 100
		}
		ctx, leave := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for range most {
			clients.Go(func() { sendCtx(ctx, t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true)) })
		}
		await(t, serving.engine, func(st sim.State) bool { return st.Active == most })
		got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true), "Prefer", "wait=0")
		if got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, `"busy"`) {
			t.Errorf("%s: %v", full, got)
		}
		if got := send(t, "GET", entrance.url+"/healthz", ""); got.status != 200 {
			t.Error(got)
		}
		leave()
		clients.Wait()
		serving.sched.settled()
		if err := serving.engine.SetFaults(); err != nil {
			t.Fatal(err)
		}
		got = send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
		if a := readAnswer(t, got.body); got.status != 200 || !a.done {
			t.Errorf("%s, when there is room again: %v", full, got)
		}
	}
}

// TestConnectionsAreBounded: of those that wait for a request the oldest goes; one that
// serves a request does not.
func TestConnectionsAreBounded(t *testing.T) {
	b := newBesieged(t, sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStall, After: 2}}})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	busy := make(chan received, 1)
	go func() { busy <- sendCtx(ctx, t, "POST", b.url+"/v1/chat/completions", chatBody(testModel, true)) }()
	await(t, b.engine, func(st sim.State) bool { return st.Active == 1 })
	var conns []net.Conn
	for range siegeWaiting + 50 {
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for _, c := range conns[:50] {
		c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // less than a header has time for
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("an old connection is still open")
		}
	}
	last := conns[len(conns)-1]
	fmt.Fprint(last, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	if err := answered(last, 200); err != nil {
		t.Error(err)
	}
	select {
	case got := <-busy:
		t.Errorf("the request that was being served has ended: %v", got)
	default:
	}
	leave()
	<-busy
}

// TestAnswersOfTheServer are those that net/http gives by itself, as docs/clients.md lists
// them: the connection is closed after each.
func TestAnswersOfTheServer(t *testing.T) {
	b := newBesieged(t, sim.Options{})
	for request, status := range map[string]int{
		"GET\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n":                                 400,
		"GET / HTTP/1.1\r\n\r\n":                                                        400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                  400,
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n":                                           400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n":                    400,
		"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 70<<10) + "\r\n\r\n": 431,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":                 501,
		"GET / HTTP/3.0\r\nHost: x\r\n\r\n":                                             505,
		"GET / HTTP/1.1\r\nHost: x\r\nExpect: zzz\r\n\r\n":                              417,
	} {
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		defer c.Close()
		fmt.Fprint(c, request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%.60q: %v", request, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body) // What was not read of the request may end it early.
		if resp.StatusCode != status || !resp.Close || (len(body) == 0) != (status == 417) || len(body) > 0 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%.60q: %s %v %q", request, resp.Status, resp.Header, body)
		}
	}
}
