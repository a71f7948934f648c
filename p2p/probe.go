package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
)

// What a message on a probe stream asks: one byte, then what follows.
const (
	// probeEcho: eight bytes to be given back, after the same byte.
	probeEcho = 1
	// probeAbout: one byte of length and a peer's id. The answer is the same
	// byte and four of milliseconds, big-endian: how long ago the one that is
	// asked last heard that peer itself, or unheard.
	probeAbout = 2

	echoBytes = 8
	unheard   = 1<<32 - 1
	// probeIdle is how long a stream may be silent before the side that answers
	// gives it up.
	probeIdle = 10 * time.Second
	// probesKept bounds the probes whose answers may still come.
	probesKept = 16
)

// prober asks one member to answer on one kept stream. Answers are taken as
// they come, also late ones. A nil prober is a broken one.
type prober struct {
	stream network.Stream
	done   chan struct{} // Closed when nothing is read any more.

	mu   sync.Mutex
	sent map[uint64]time.Time
}

// newProber opens a stream; nil where none can be had now.
func (l *links) newProber(ctx context.Context, id peer.ID, answered func(rtt time.Duration)) *prober {
	s := l.openProbe(ctx, id)
	if s == nil {
		return nil
	}
	p := &prober{stream: s, done: make(chan struct{}), sent: map[uint64]time.Time{}}
	go func() {
		defer close(p.done)
		var in [1 + echoBytes]byte
		for {
			if _, err := io.ReadFull(s, in[:]); err != nil {
				return
			}
			if at, ok := p.take(binary.BigEndian.Uint64(in[1:])); ok {
				answered(time.Since(at))
			}
		}
	}()
	return p
}

// openProbe opens a stream on the connection that stands.
func (l *links) openProbe(ctx context.Context, id peer.ID) network.Stream {
	ctx, cancel := context.WithTimeout(network.WithNoDial(ctx, "probe"), 2*liveness.AnswerWithin)
	defer cancel()
	s, err := l.n.host.NewStream(ctx, id, ProtocolProbe)
	if err != nil {
		return nil
	}
	return s
}

func (p *prober) broken() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *prober) stop() {
	if p == nil {
		return
	}
	_ = p.stream.Reset()
	<-p.done
}

// send asks for one answer. A failure shows as no answer.
func (p *prober) send() {
	if p == nil {
		return
	}
	nonce := rand.Uint64()
	p.mu.Lock()
	if len(p.sent) >= probesKept {
		clear(p.sent) // Seconds of silence: their answers tell nothing of the way any more.
	}
	p.sent[nonce] = time.Now()
	p.mu.Unlock()
	_ = p.stream.SetWriteDeadline(time.Now().Add(liveness.AnswerWithin))
	_, _ = p.stream.Write(binary.BigEndian.AppendUint64([]byte{probeEcho}, nonce))
}

// take finds when a probe was sent, once.
func (p *prober) take(nonce uint64) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.sent[nonce]
	delete(p.sent, nonce)
	return at, ok
}

// askWitnesses asks a few others whether they hear a member that is silent here.
func (l *links) askWitnesses(ctx context.Context, about peer.ID, k *link) {
	witnesses := slices.DeleteFunc(l.alive(), func(id peer.ID) bool { return id == about })
	rand.Shuffle(len(witnesses), func(i, j int) { witnesses[i], witnesses[j] = witnesses[j], witnesses[i] })
	var asked sync.WaitGroup
	for _, id := range witnesses[:min(len(witnesses), liveness.Witnesses)] {
		asked.Go(func() {
			silence, ok := l.ask(ctx, id, about)
			if !ok {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			k.seen.Vouch(l.now(), silence)
		})
	}
	asked.Wait()
}

func (l *links) ask(ctx context.Context, witness, about peer.ID) (time.Duration, bool) {
	s := l.openProbe(ctx, witness)
	if s == nil {
		return 0, false
	}
	defer s.Reset()
	_ = s.SetDeadline(time.Now().Add(2 * liveness.AnswerWithin))
	if _, err := s.Write(append([]byte{probeAbout, byte(len(about))}, about...)); err != nil {
		return 0, false
	}
	var in [5]byte
	if _, err := io.ReadFull(s, in[:]); err != nil || in[0] != probeAbout {
		return 0, false
	}
	ms := binary.BigEndian.Uint32(in[1:])
	return time.Duration(ms) * time.Millisecond, ms != unheard
}

// handleProbe answers until the stream ends or is silent for too long.
func (l *links) handleProbe(s network.Stream) {
	l.n.work.run(func() {
		for l.answerProbe(s) == nil {
		}
		_ = s.Reset()
	})
}

var errProbe = errors.New("not a probe")

func (l *links) answerProbe(s network.Stream) error {
	_ = s.SetDeadline(time.Now().Add(probeIdle))
	var in [256]byte
	if _, err := io.ReadFull(s, in[:1]); err != nil {
		return err
	}
	switch in[0] {
	case probeEcho:
		if _, err := io.ReadFull(s, in[1:1+echoBytes]); err != nil {
			return err
		}
		_, err := s.Write(in[:1+echoBytes])
		return err
	case probeAbout:
		if _, err := io.ReadFull(s, in[:1]); err != nil {
			return err
		}
		id := in[1 : 1+min(int(in[0]), len(in)-1)]
		if _, err := io.ReadFull(s, id); err != nil {
			return err
		}
		_, err := s.Write(binary.BigEndian.AppendUint32([]byte{probeAbout}, l.heard(peer.ID(id))))
		return err
	}
	return errProbe
}

// heard is how many milliseconds ago a member answered this peer itself.
func (l *links) heard(id peer.ID) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.members[id]
	if k == nil {
		return unheard
	}
	silence, ever := k.seen.Silence(l.now())
	if !ever || silence.Milliseconds() >= unheard {
		return unheard
	}
	return uint32(silence.Milliseconds())
}
