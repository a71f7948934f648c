package p2p

import (
	"bufio"
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
	"relay/p2p/membership"
)

// What a message on a probe stream asks: one byte, then what follows.
const (
	// probeEcho: eight bytes to be given back, after the same byte.
	probeEcho = 1
	// probeAbout: one byte of length and a peer's id. The answer is the same
	// byte and four of milliseconds, big-endian: how long ago the one that is
	// asked last heard that peer itself, or unheard.
	probeAbout = 2
	// probeAges: as probeEcho, and the ages of members follow in the answer; see
	// ages.go. It is asked where not everybody is linked to everybody.
	probeAges = 3

	echoBytes = 8
	unheard   = 1<<32 - 1
	// probeIdle is how long a stream may be silent before the side that answers
	// gives it up.
	probeIdle = 10 * time.Second
	// probesKept bounds the probes whose answers may still come.
	probesKept = 64
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
		in := bufio.NewReader(s)
		var names []memberName
		for {
			var head [1 + echoBytes]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return
			}
			var ages []byte
			if head[0] == probeAges {
				var err error
				if names, ages, err = readAges(in, names); err != nil {
					return
				}
			}
			if at, ok := p.take(binary.BigEndian.Uint64(head[1:])); ok {
				took := time.Since(at)
				answered(took)
				l.hearAges(names, ages, took)
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

// send asks for one answer, with ages or without. A failure shows as no answer.
func (p *prober) send(what byte) {
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
	_, _ = p.stream.Write(binary.BigEndian.AppendUint64([]byte{what}, nonce))
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
	var asked sync.WaitGroup
	for _, id := range l.witnesses(about) {
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

// witnesses picks whom to ask about a member: only who keeps a link to it can
// have heard it. Where too few of those have a link to this peer as well, others
// are dialled for it, every time the same.
func (l *links) witnesses(about peer.ID) []peer.ID {
	alive := slices.DeleteFunc(l.alive(), func(id peer.ID) bool { return id == about })
	rand.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.layoutNow(); !now.whole {
		linked := alive
		alive = slices.DeleteFunc(slices.Clone(linked), func(id peer.ID) bool { return !now.graph.Linked(id, about) })
		for _, id := range now.graph.Of(about) {
			if k := l.members[id]; k != nil && !slices.Contains(linked, id) && k.state(l.now()) == liveness.Alive {
				alive = append(alive, id)
			}
		}
	}
	return alive[:min(len(alive), liveness.Witnesses)]
}

func (l *links) ask(ctx context.Context, witness, about peer.ID) (time.Duration, bool) {
	if l.reach(ctx, witness) != nil {
		return 0, false
	}
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
		var told *membership.Roster // Whose members were named last.
		id := s.Conn().RemotePeer()
		for l.answerProbe(s, &told) == nil {
			if !l.n.accounts.allowances(id).probe.Allow() {
				l.n.accounts.blame(id, ofJunk, errProbes)
				break
			}
		}
		_ = s.Reset()
	})
}

var (
	errProbe  = errors.New("not a probe")
	errProbes = errors.New("it probes more often than any peer needs")
)

func (l *links) answerProbe(s network.Stream, told **membership.Roster) error {
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
	case probeAges:
		if _, err := io.ReadFull(s, in[1:1+echoBytes]); err != nil {
			return err
		}
		var out []byte
		out, *told = l.appendAges(slices.Clone(in[:1+echoBytes]), *told)
		_, err := s.Write(out)
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
