package p2p

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// How much a thing counts that no honest peer sends. A peer is cut off at
// cutOffAt, the eighth bad record in a few seconds, and each second takes
// forgiven off its account: what chance brings once in a while never adds up.
const (
	cutOffAt = 60
	forgiven = 1 // per second

	// ofBadRecord: signature, size or form is wrong. Gossip is passed on by those
	// only who found it right, so it is the sender's own doing.
	ofBadRecord = 8
	// ofBadExchange: a comparison that does not keep to the protocol. It ends
	// with that, so that there is one of them where there are many bad records.
	ofBadExchange = 32
	// ofJunk: one of many that take work to refuse: records over the sender's own
	// share or rate, below what was listed, comparisons begun too often.
	ofJunk = 1
	// ofReplay: an old record in gossip, over what reordering explains.
	ofReplay = 0.25
)

// How long a peer that was cut off is kept out: long enough that cutting it off
// costs it more than us, short enough for one that was mended. Each time doubles
// it, and each cutForgivenIn in peace halves it again.
const (
	firstKeptOut  = 30 * time.Second
	longestOut    = 10 * time.Minute
	cutForgivenIn = 10 * time.Minute
)

// accountKept is how long the account of a peer stands that is not heard of.
const accountKept = 10 * time.Minute

// accounts are kept of what each peer sent that no honest peer sends, whatever
// protocol it came by.
type accounts struct {
	log *slog.Logger
	cut func(peer.ID) // Closes its connections; called without a lock.
	now func() time.Time

	mu    sync.Mutex
	peers map[peer.ID]*account
}

type account struct {
	dropped int // Things that counted.
	weight  float64
	cuts    int       // Times it was cut off and is not forgiven.
	until   time.Time // It is kept out; zero before it ever was.
	looked  time.Time // When weight and cuts were brought up to date.
	used    time.Time // When it was last asked for.

	allowances
}

func newAccounts(log *slog.Logger, cut func(peer.ID)) *accounts {
	return &accounts{log: log, cut: cut, now: time.Now, peers: map[peer.ID]*account{}}
}

// of finds or opens a peer's account; mu is held.
func (a *accounts) of(id peer.ID, now time.Time) *account {
	k := a.peers[id]
	if k == nil {
		k = &account{looked: now, allowances: newAllowances()}
		a.peers[id] = k
	}
	k.forgive(now)
	k.used = now
	return k
}

// forgive takes off what has become old.
func (k *account) forgive(now time.Time) {
	if now.Before(k.until) {
		return
	}
	if k.looked.Before(k.until) {
		k.looked = k.until
	}
	k.weight = max(0, k.weight-forgiven*now.Sub(k.looked).Seconds())
	k.looked = now
	for k.cuts > 0 && now.Sub(k.until) >= cutForgivenIn {
		k.cuts--
		k.until = k.until.Add(cutForgivenIn)
	}
}

// blame counts something against its sender, and cuts it off when it is enough.
func (a *accounts) blame(id peer.ID, weight float64, why error) {
	if a.count(id, weight) {
		a.log.Warn("a peer sends what no honest peer sends: it is cut off and kept out for a while", "peer", short(id), "error", why)
		a.cut(id)
	}
}

// count says whether the sender is to be cut off now.
func (a *accounts) count(id peer.ID, weight float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	k := a.of(id, now)
	k.dropped++
	if now.Before(k.until) { // It was on its way when the connection was cut.
		return false
	}
	if k.weight += weight; k.weight < cutOffAt {
		return false
	}
	k.weight = 0
	k.until = now.Add(min(firstKeptOut<<min(k.cuts, 10), longestOut))
	k.cuts++
	return true
}

// keptOut says whether a peer is refused for now.
func (a *accounts) keptOut(id peer.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.peers[id]
	return k != nil && a.now().Before(k.until)
}

// allowances are what a peer may still send.
func (a *accounts) allowances(id peer.ID) *allowances {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &a.of(id, a.now()).allowances
}

// sweep closes the accounts of those who were not heard of for long.
func (a *accounts) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for id, k := range a.peers {
		if k.forgive(now); now.Sub(k.used) >= accountKept && k.cuts == 0 && k.comparing == 0 {
			delete(a.peers, id)
		}
	}
}

// cutOff closes a peer's connections.
func (n *Node) cutOff(id peer.ID) {
	n.work.run(func() { _ = n.host.Network().ClosePeer(id) })
}

// Blame is what one peer has on its account here.
type Blame struct {
	Peer peer.ID
	// Dropped counts what it sent of that.
	Dropped int
	// Until is how long it is still kept out, 0 if it is not.
	Until time.Duration
}

// Blamed lists the peers that sent what no honest peer sends, by id. Who was not
// heard of for ten minutes, and has been forgiven, is forgotten.
func (n *Node) Blamed() []Blame {
	a := n.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var list []Blame
	for id, k := range a.peers {
		if k.dropped > 0 {
			list = append(list, Blame{id, k.dropped, max(0, k.until.Sub(now))})
		}
	}
	slices.SortFunc(list, func(a, b Blame) int { return cmp.Compare(a.Peer, b.Peer) })
	return list
}
