package p2p

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"relay/p2p/record"
)

// What a peer may send in a burst and per second afterwards. What is over is
// ignored; whether it counts against the sender is said with each. Records that
// are ignored are found by the comparison.
const (
	// What one peer may pass on by gossip, in parts of gossipUnit bytes: it is
	// what checking signatures costs. Honest peers send a record to each neighbour
	// once, and pace themselves by the allowances below.
	gossipBurst = 2048
	gossipRate  = 512
	gossipUnit  = 4 << 10
	// What it sends over that is dropped unseen, and more than this of it counted.
	excessBurst = 8 * gossipBurst
	excessRate  = 4 * gossipRate

	// New records of one author: a thousand models added at once, and that their
	// files are held.
	authorBurst = 2048
	authorRate  = 64
	// New records that come from their author itself: far over what it sends when
	// it paces itself, and counted against it.
	floodBurst = 3072
	floodRate  = 128
	// New membership records of one author, each of which makes every peer work
	// out anew who is a member.
	rosterBurst = 256
	rosterRate  = 1
	// Records by authors that are not known, held until they are: never counted,
	// whoever sends them.
	strangeBurst = 512
	strangeRate  = 32
	// Old records, as gossip brings them when newer ones overtake them. More is
	// counted.
	oldBurst = 1024
	oldRate  = 32
	// What this peer gossips of the records that a comparison brought: the others
	// have most of them, or compare as well.
	foundBurst = 512
	foundRate  = 16

	// Comparisons that a peer begins: an honest one keeps to half of that, however
	// often it is asked whether another one is in step, until it is started anew.
	// More is refused, and counted only where nobody can start as often.
	beginBurst = 32
	beginRate  = 2
	hastyBurst = 512
	hastyRate  = 64
	// comparisonsWaiting is how many comparisons of one peer are under way here:
	// one, and the next, which begins when that is over.
	comparisonsWaiting = 2
	// Probes that it has answered: two a second, and questions about others.
	probeBurst = 256
	probeRate  = 64

	// Comparisons that this peer begins because another one listens anew.
	answerBurst = 8
	answerRate  = 0.2
	// Bytes that a peer's comparisons move: a full table at once, for one that has
	// lost its own.
	volumeBurst = 2 * record.DefaultSyncBytes
	volumeRate  = 1 << 20
)

// allowances are those of one peer.
type allowances struct {
	gossip  *rate.Limiter // As a sender.
	excess  *rate.Limiter
	strange *rate.Limiter
	old     *rate.Limiter
	author  *rate.Limiter // As an author, whoever sends it.
	roster  *rate.Limiter
	flood   *rate.Limiter // As an author that sends its own.

	probe     *rate.Limiter
	begin     *rate.Limiter
	hasty     *rate.Limiter
	answer    *rate.Limiter
	volume    *rate.Limiter
	comparing int           // Comparisons that it began, running and waiting.
	turn      chan struct{} // Held by the one that runs.
}

func newAllowances() allowances {
	return allowances{
		gossip:  rate.NewLimiter(gossipRate, gossipBurst),
		excess:  rate.NewLimiter(excessRate, excessBurst),
		strange: rate.NewLimiter(strangeRate, strangeBurst),
		old:     rate.NewLimiter(oldRate, oldBurst),
		author:  rate.NewLimiter(authorRate, authorBurst),
		roster:  rate.NewLimiter(rosterRate, rosterBurst),
		flood:   rate.NewLimiter(floodRate, floodBurst),
		probe:   rate.NewLimiter(probeRate, probeBurst),
		begin:   rate.NewLimiter(beginRate, beginBurst),
		hasty:   rate.NewLimiter(hastyRate, hastyBurst),
		answer:  rate.NewLimiter(answerRate, answerBurst),
		volume:  rate.NewLimiter(volumeRate, volumeBurst),
		turn:    make(chan struct{}, 1),
	}
}

var (
	errOften  = errors.New("it begins comparisons more often than any peer needs")
	errVolume = errors.New("its comparisons have moved more than they may for now")
	errBusy   = errors.New("one comparison with it is under way, and another one waits")
)

// beginComparison waits until no other comparison that the peer began is under
// way, and says no where it has begun too many. end must be called, with the
// bytes that it moved.
func (a *accounts) beginComparison(ctx context.Context, id peer.ID) (end func(moved int64), err error) {
	k := a.allowances(id)
	if !k.begin.Allow() {
		if !k.hasty.Allow() {
			a.blame(id, ofJunk, errOften)
		}
		return nil, errOften
	}
	if k.volume.Tokens() < 0 { // Two whose tables are full may differ for ever.
		return nil, errVolume
	}
	if !a.wait(k, 1) {
		return nil, errBusy
	}
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		a.wait(k, -1)
		return nil, context.Cause(ctx)
	}
	return func(moved int64) {
		k.volume.ReserveN(time.Now(), int(min(moved, volumeBurst)))
		<-k.turn
		a.wait(k, -1)
	}, nil
}

// wait counts a comparison, or no longer, if there is room for it.
func (a *accounts) wait(k *allowances, more int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k.comparing+more > comparisonsWaiting {
		return false
	}
	k.comparing += more
	return true
}
