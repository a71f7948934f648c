package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/api"
	"relay/api/metrics"
	"relay/llama"
	"relay/llama/demo"
	"relay/p2p"
	"relay/p2p/keys"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler"
	"relay/store"
	"relay/store/audit"
)

// peerParts are the parts of a running peer, in the order in which they are
// made; they stop in the reverse order.
type peerParts struct {
	node      *p2p.Node
	scheduler *scheduler.Scheduler
	door      *api.Door
	control   *api.Control
	ring      *keys.Ring
	meter     *keys.Meter
	audit     *audit.Log
}

// assemble wires a peer of the mesh that the machine is in.
func assemble(ctx context.Context, m *machine, id membership.MeshID, hooks hooks) (*peerParts, error) {
	var p peerParts
	var err error
	if p.node, err = m.listeningNode(id); err != nil {
		return nil, err
	}
	coming, err := m.coming()
	if err != nil {
		p.node.Close()
		return nil, err
	}
	engine, noEngine := m.findEngine(ctx)
	p.scheduler, err = scheduler.New(scheduler.Options{
		Mesh: p.node, Content: m.content, State: m.db.Space(schedulerSpace(id)),
		Engine: engine, NoEngine: noEngine,
		ReadHeader: scheduler.ReadGGUF, CheckArgs: llama.CheckArgs, CheckEnv: llama.CheckEnv, Memory: llama.HostMemory,
		Disk:         func() (uint64, uint64, error) { return store.DiskFree(m.modelsDir) },
		ModelsDir:    m.modelsDir,
		DefaultSlots: m.slots, Cores: runtime.GOMAXPROCS(0), CoresLent: m.threads(), Lend: m.lends(), ModelsMax: m.modelsMax, CacheMax: m.cacheMax, Tensors: m.tensors, Coming: coming,
		Log: m.log.With("part", "scheduler"),
	})
	if err != nil {
		p.node.Close()
		return nil, err
	}
	p.ring = keys.NewRing(p.node.Table(), m.apiKey)
	if text := p.ring.Warning(); text != "" {
		m.log.Warn(text)
	}
	p.meter = keys.NewMeter(keys.MeterOptions{Table: p.node.Table(), Alive: func() []peer.ID { return upOf(p.node.Peers()) }, Log: m.log.With("part", "keys")})
	if p.audit, err = audit.New(audit.Options{Space: m.db.Space(auditSpace(id)), Log: m.log.With("part", "audit")}); err != nil {
		p.node.Close()
		return nil, err
	}
	counts := metrics.New(metrics.Options{
		Version: version, Commit: commitID(), Lost: p.audit.Lost,
		Mesh: func() metrics.Mesh { return api.MeshFigures(p.scheduler.Peers(), p.scheduler.ModelStates()) },
	})
	p.door, err = api.NewDoor(api.DoorOptions{
		Audit: p.audit.Add, Metrics: counts,
		Scraped:   api.Scraped{Peers: p.scheduler.Peers, Control: p.node.Control},
		Scheduler: p.scheduler, Keys: p.ring, Heard: p.heard(time.Now()), Quota: p.meter, Self: p.node.Self().String(), Listen: m.listen,
		Deadlines: m.Deadlines.ofDoor(),
		HopPeer: func(ctx context.Context) string {
			from, ok := p2p.RemotePeer(ctx)
			if !ok {
				return ""
			}
			return from.String()
		},
		Log: m.log.With("part", "api"),
	})
	if err != nil {
		p.node.Close()
		return nil, err
	}
	p.control = &api.Control{
		Mesh: p.node, MeshID: id, Scheduler: p.scheduler, Version: versionLine(),
		Door: hooks.doorURL, Keys: controlKeys{p.ring, p.meter, m}, Lend: m.lends(),
		Audit: p.audit, KeyName: p.keyName, Metrics: counts,
		DemoPath: func() (string, error) { return demo.Write(m.modelsDir) },
		Members:  p.node, Leave: func(wipe bool) error { return m.leave(p.node, wipe, hooks.down) },
		Join: hooks.join, ForgetInvite: func() error { return m.forget(keyPending) }, Down: hooks.down,
		Log: m.log.With("part", "control"),
	}
	p.node.Serve(p.door.HopHandler(), p.control.PeerHandler())
	p.node.ServeShards(p.scheduler.AcceptShard)
	m.running.Store(p.scheduler)
	return &p, nil
}

// heardPatience bounds how long a peer that starts waits to hear of keys that it does not
// know.
const heardPatience = 5 * time.Second

// heard says whether a peer that was started then has heard from the others, or has waited
// for long enough.
func (p *peerParts) heard(started time.Time) func() bool {
	return func() bool { return p.node.Heard() || time.Since(started) > heardPatience }
}

// keyName is what people call a key, or empty where it is there no more.
func (p *peerParts) keyName(id string) string {
	if id == keys.LocalID {
		return keys.LocalName
	}
	r, ok := p.node.Table().Get(keys.Kind, id)
	var k keys.Key
	if !ok || record.Unmarshal(r.Payload, &k) != nil {
		return ""
	}
	return k.Name
}

// hooks are what the parts ask of the program around them.
type hooks struct {
	doorURL string
	join    func(context.Context, membership.Invite) (api.JoinAnswer, error)
	down    func()
}

// lends is what the owner of this machine lends.
func (m *machine) lends() scheduler.Lend {
	l := scheduler.Lend{None: m.Lend == "none", Bytes: uint64(m.LendMB) * mib, Reserve: uint64(m.ReserveMB) * mib,
		VRAMReserve: uint64(m.VRAMReserveMB) * mib, BusyIgnore: uint64(m.BusyIgnoreMB) * mib, AutoPause: m.AutoPause == toggleOn}
	if l.Reserve == 0 {
		l.Reserve = defaultReserve
		if total, _, err := llama.HostMemory(); err == nil {
			l.Reserve = max(l.Reserve, total/10)
		}
	}
	return l
}

// threads is how many cores models may keep busy: half of them unless the owner
// lends another number.
func (m *machine) threads() int {
	if m.LendCores > 0 {
		return min(m.LendCores, runtime.GOMAXPROCS(0))
	}
	return max(1, runtime.GOMAXPROCS(0)/2)
}

// findEngine looks for llama.cpp. Without one the peer is a peer all the same,
// and says why it lends nothing.
func (m *machine) findEngine(ctx context.Context) (scheduler.Engine, string) {
	found, err := llama.Find(ctx, llama.FindOptions{Bin: m.engineBin, StateDir: m.tree.Root, PathEnv: os.Getenv("PATH")})
	if err != nil {
		m.log.Warn("no engine", "error", err)
		return nil, sentence(err)
	}
	m.log.Info("engine", "build", found.String(), "from", string(found.Source))
	return &scheduler.LlamaEngine{
		Found: found, RunDir: m.enginesDir(), CacheDir: m.kernelsDir(), ShareCacheDir: m.shareKernelsDir(),
		Sandbox: llama.SandboxMode(m.Sandbox), Log: m.log.With("part", "engine"),
	}, ""
}

// listeningNode opens the mesh on the addresses asked for, or on the remembered
// port, or the next free one.
func (m *machine) listeningNode(id membership.MeshID) (*p2p.Node, error) {
	if len(m.p2pListen) > 0 {
		return m.newNode(id, m.p2pListen)
	}
	for _, port := range m.p2pPorts() {
		node, err := m.newNode(id, everywhere(port))
		if errors.Is(err, p2p.ErrPortInUse) {
			continue
		}
		if err == nil && m.P2PPort != port {
			m.P2PPort, m.kept.P2PPort = port, port
			err = m.save(keySettings, m.kept)
		}
		return node, err
	}
	return nil, m.noPort()
}

func everywhere(port int) []string {
	addrs := []string{fmt.Sprintf("/ip4/0.0.0.0/tcp/%d", port), fmt.Sprintf("/ip4/0.0.0.0/udp/%d/quic-v1", port)}
	if tryListen("tcp6", "[::]:0") == nil { // Not every machine has it.
		addrs = append(addrs, fmt.Sprintf("/ip6/::/tcp/%d", port), fmt.Sprintf("/ip6/::/udp/%d/quic-v1", port))
	}
	return addrs
}

func multiaddrs(texts []string) ([]ma.Multiaddr, error) {
	var list []ma.Multiaddr
	for _, text := range texts {
		a, err := ma.NewMultiaddr(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// run works until ctx ends, then takes the peer down in order: it says that it
// goes, lets requests finish, stops the engines, and leaves the mesh. closeDoor
// turns new requests away, and says when those that ran have ended: streams from
// other peers' replicas run through this one's node.
func (p *peerParts) run(ctx context.Context, started func(), closeDoor func() <-chan struct{}) error {
	nodeCtx, stopNode := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNode()
	schedulerCtx, stopScheduler := context.WithCancel(context.WithoutCancel(ctx))
	defer stopScheduler()

	stopMeter := p.tell(ctx)
	defer stopMeter()
	auditCtx, stopAudit := context.WithCancel(context.WithoutCancel(ctx))
	var auditing sync.WaitGroup
	auditing.Go(func() { p.audit.Run(auditCtx) })
	defer auditing.Wait()
	defer stopAudit()

	nodeDone, schedulerDone := make(chan error, 1), make(chan error, 1)
	go func() { nodeDone <- p.node.Run(nodeCtx) }()
	go func() { schedulerDone <- p.schedule(schedulerCtx) }()
	var nodeErr, schedulerErr error
	for ready := p.scheduler.Ready(); ; {
		select {
		case <-ready:
			started()
			ready = nil
			continue
		case <-ctx.Done():
			p.scheduler.Leave(farewell)
			answered, patience := closeDoor(), time.NewTimer(drainPatience)
			stopScheduler()
			schedulerErr = <-schedulerDone
			select {
			case <-answered:
			case <-patience.C:
			}
			patience.Stop()
			stopMeter() // While there is somebody to tell.
			stopNode()
			nodeErr = <-nodeDone
		case nodeErr = <-nodeDone:
			stopScheduler()
			schedulerErr = <-schedulerDone
		case schedulerErr = <-schedulerDone:
			stopNode()
			nodeErr = <-nodeDone
		}
		return errors.Join(nodeErr, schedulerErr)
	}
}

// tell has the others told what keys use here, until the func that it returns says
// that the rest is to be told; it may be called again.
func (p *peerParts) tell(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.meter.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// upOf are the members that are not gone.
func upOf(peers []p2p.Peer) (up []peer.ID) {
	for _, p := range peers {
		if p.State != liveness.Gone {
			up = append(up, p.ID)
		}
	}
	return up
}

// schedule runs the scheduler of a machine that is a member. One that was taken
// out may write nothing, and its node says so; what that is to the scheduler is
// no news.
func (p *peerParts) schedule(ctx context.Context) error {
	if p.node.AwaitStanding(ctx) != nil {
		return nil
	}
	err := p.scheduler.Run(ctx)
	if err == nil || p.node.AwaitStanding(ctx) != nil {
		return nil
	}
	return err
}

const (
	// farewell is how long a peer that goes waits for others to take over.
	farewell = 5 * time.Second
	// drainPatience is how long the requests of its door may take to end.
	drainPatience = 30 * time.Second
)

// notYet answers while a peer starts, or changes its mesh; leaving while it
// stops.
func notYet(w http.ResponseWriter, _ *http.Request) {
	turnAway(w, scheduler.ModelLoading, "this peer is starting; try again in a moment")
}

func leaving(w http.ResponseWriter, _ *http.Request) {
	turnAway(w, scheduler.Draining, "this peer is stopping; ask another one")
}

func turnAway(w http.ResponseWriter, why scheduler.Reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":"server_error","param":null,"code":%q,"reason":%[2]q}}`+"\n", message, why)
}
