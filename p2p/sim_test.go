package p2p

import (
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/x/simlibp2p"
	"github.com/marcopolo/simnet"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
)

// world is a mesh of whole nodes on a simulated network, in the fake time of
// testing/synctest: QUIC over packets that only this process sees.
type world struct {
	t        *testing.T
	machines []*machine

	mu      sync.Mutex
	rand    *rand.Rand
	at      map[string]int // Index of a machine by its IP address.
	way     func(from, to int) time.Duration
	bytes   int
	packets int
	mesh    membership.MeshID
	records []record.Signed
}

// lost is how long a packet takes that never arrives.
const lost = 1000 * time.Hour

// simulate runs a test in a world of n members that all know of one another.
func simulate(t *testing.T, n int, seed uint64, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 0)), at: map[string]int{}}
		w.way = func(int, int) time.Duration { return time.Millisecond + w.jitter(time.Millisecond) }
		network := &simnet.Simnet{LatencyFunc: w.latency}
		network.Start()
		defer network.Close()
		w.populate(n, network)
		defer w.stop()
		for i := range w.machines {
			w.start(i)
		}
		test(t, w)
	})
}

func (w *world) jitter(most time.Duration) time.Duration {
	return time.Duration(w.rand.Int64N(int64(most)))
}

func (w *world) latency(p *simnet.Packet) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.packets++
	w.bytes += reflect.ValueOf(p).Elem().FieldByName("buf").Len()
	from, to := p.From.(*net.UDPAddr).IP.String(), p.To.(*net.UDPAddr).IP.String()
	return w.way(w.at[from], w.at[to])
}

// sent is what has been sent so far.
func (w *world) sent() (bytes, packets int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes, w.packets
}

// set changes the ways of packets: how long one takes from a machine to another.
func (w *world) set(way func(from, to int) time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.way = way
}

// cut loses every packet between two machines for which apart holds.
func (w *world) cut(apart func(a, b int) bool) {
	w.set(func(from, to int) time.Duration {
		if apart(from, to) || apart(to, from) {
			return lost
		}
		return time.Millisecond + w.jitter(time.Millisecond)
	})
}

// populate makes the machines, and the records by which all know one another:
// each a member by the mesh key itself, at its address.
func (w *world) populate(n int, network *simnet.Simnet) {
	w.t.Helper()
	key, err := membership.NewMeshKey()
	if err != nil {
		w.t.Fatal(err)
	}
	link := simnet.LinkSettings{BitsPerSecond: 100 * simlibp2p.OneMbps}
	w.mesh = key.ID()
	var contacts []record.Signed
	for i := range n {
		m, ip := newMachine(w.t), net.IPv4(1, 0, byte(i/250), byte(1+i%250)).To4()
		w.at[ip.String()] = i
		m.listen = []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/%s/udp/8421/quic-v1", ip))}
		m.sim = []libp2p.Option{simlibp2p.QUICSimnet(network, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link})}
		w.machines = append(w.machines, m)
		id, err := peer.IDFromPrivateKey(m.key)
		if err != nil {
			w.t.Fatal(err)
		}
		grant := key.GrantAdmin(id, nameOf(i))
		grantID, err := membership.GrantID(id, grant)
		if err != nil {
			w.t.Fatal(err)
		}
		w.records = append(w.records, w.seal(m, membership.KindMember, grantID, grant))
		contacts = append(contacts, w.seal(m, KindContact, id.String(), Contact{Name: nameOf(i), Agent: agent, Addrs: [][]byte{m.listen[0].Bytes()}}))
	}
	w.records = append(w.records, contacts...)
}

func nameOf(i int) string { return fmt.Sprintf("m%d", i) }

func (w *world) seal(m *machine, kind, id string, payload any) record.Signed {
	w.t.Helper()
	raw, err := record.Marshal(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := record.Seal(record.Record{Kind: kind, ID: id, Version: record.Version{1, 1, 0}, Payload: raw}, m.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// start runs a machine's node until the world ends or the machine is stopped.
func (w *world) start(i int) {
	w.t.Helper()
	w.machines[i].open(w.t, w.mesh, nameOf(i), func(n *Node) error {
		for _, s := range w.records {
			if outcome, err := n.table.Offer(s); err != nil {
				return fmt.Errorf("%s: %v: %w", s.Key(), outcome, err)
			}
		}
		return nil
	})
}

func (w *world) stop() {
	var all sync.WaitGroup
	for _, m := range w.machines {
		if m.stop != nil {
			all.Go(m.stop)
		}
	}
	all.Wait()
}

// wait lets time pass until a condition holds, and says how much.
func (w *world) wait(within time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) >= within {
			w.t.Fatalf("not within %s: %s", within, what)
		}
		pass(10 * time.Millisecond)
	}
	return time.Since(began)
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

// settled says whether everybody sees everybody alive.
func (w *world) settled() bool { return agree(w.machines, liveness.Alive, w.machines...) }

// look is how one member looks to another; as Peers says it, but that many look
// often here.
func look(m, at *machine) liveness.State {
	m.links.mu.Lock()
	defer m.links.mu.Unlock()
	if k := m.links.members[at.Self()]; k != nil {
		return k.state(m.links.now())
	}
	return liveness.Gone
}

// agree says whether these look so to all of those, but for each to itself.
func agree(machines []*machine, what liveness.State, of ...*machine) bool {
	for _, m := range machines {
		for _, other := range of {
			if m != other && look(m, other) != what {
				return false
			}
		}
	}
	return true
}
