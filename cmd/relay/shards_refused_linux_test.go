package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/api"
	theatre "relay/cmd/stage"
	"relay/llama"
	"relay/p2p"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler"
)

// TestNobodyElseReachesAServer has a model run on several peers, and everybody who may
// not try to reach the rpc-server of one of them: somebody of no mesh, a member that
// coordinates nothing, users of its machine, and the coordinator of before.
func TestNobodyElseReachesAServer(t *testing.T) {
	if _, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")}); err != nil {
		t.Skipf("no engine: run `make engine` first (%v)", err)
	}
	if g := llama.ProbeGuard(t.Context(), nil); !g.OK {
		t.Skipf("ports are not guarded on this machine: %s", g.Text)
	}
	t.Parallel()
	s := newShardStage(t)
	before := s.placed("")
	t.Logf("%s coordinates, %s works", before.coordinator.Name, before.worker.Name)

	stranger, err := libp2p.New(libp2p.NoListenAddrs)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	s.refused("a stranger", func(ctx context.Context) error {
		return callRaw(ctx, stranger, s.address(before), before)
	})

	eve := s.member("eve")
	s.refused("a member that coordinates nothing", func(ctx context.Context) error {
		return call(ctx, eve, before.workerID, before.call, p2p.ErrShardRefused)
	})

	s.noPorts(before)

	// Its time is over: it comes back, and goes on as if nobody had taken its place.
	if err := s.Kill(before.coordinator); err != nil {
		t.Fatal(err)
	}
	now := s.placed(before.coordinator.Name)
	t.Logf("%s coordinates, %s works", now.coordinator.Name, now.worker.Name)
	former := s.node(before.coordinator.State())
	for name, c := range map[string]p2p.ShardCall{
		"its own group and fence":    before.call,
		"the group of now":           {UID: now.call.UID, Group: now.call.Group, Epoch: before.call.Epoch, Rank: before.call.Rank},
		"the group and fence of now": now.call,
	} {
		s.refused("the coordinator of before, with "+name, func(ctx context.Context) error {
			return call(ctx, former, now.workerID, c, p2p.ErrShardRefused, p2p.ErrShardStale)
		})
	}
}

// shardStage is three peers, two of which have the demo model, which runs on two of them.
type shardStage struct {
	*testing.T
	*theatre.Stage
	peers  map[string]*theatre.Peer
	look   *p2p.Node // A member, by which placements are read.
	server rpcServer // That nobody is to reach.
}

func newShardStage(t *testing.T) *shardStage {
	path, err := exec.LookPath("relay")
	if err != nil {
		t.Fatal(err)
	}
	on, err := theatre.New(theatre.Options{Binary: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := on.End(); err != nil {
			t.Error(err)
		}
	})
	s := &shardStage{T: t, Stage: on, peers: map[string]*theatre.Peer{}}
	up := func(name string, args ...string) *theatre.Peer {
		p, err := s.Up(t.Context(), name, args...)
		if err != nil {
			t.Fatal(err)
		}
		s.peers[name] = p
		return p
	}
	relay := func(p *theatre.Peer, args ...string) {
		if _, err := s.Relay(t.Context(), p, args...); err != nil {
			t.Fatal(err)
		}
	}
	attic := up("attic")
	invite, err := s.Invite(t.Context(), attic, "--uses", "2", "--admin")
	if err != nil {
		t.Fatal(err)
	}
	den := up("den", "--join", invite)
	up("cellar", "--join", invite)
	relay(attic, "model", "add", "demo")
	s.until("den knows the model", func() bool { _, err := s.Quietly(t.Context(), den, "model", "show", "demo"); return err == nil })
	relay(den, "model", "pull", "demo")
	s.until("all are there", func() bool { return s.AllSee(t.Context(), 3) && s.Holders(t.Context(), attic, "demo") == 2 })
	relay(attic, "model", "load", "demo", "--force")
	s.look = s.member("look")
	return s
}

func (s *shardStage) until(what string, f func() bool) {
	s.Helper()
	if err := theatre.Until(s.Context(), what, f); err != nil {
		for name, p := range s.peers {
			s.Logf("--- %s\n%s", name, tailOf(p.Printed(), 2000))
		}
		s.Fatal(err)
	}
}

func tailOf(text string, n int) string { return text[max(0, len(text)-n):] }

// member joins a machine to the mesh on which only its node runs.
func (s *shardStage) member(name string) *p2p.Node {
	s.Helper()
	var inviter *theatre.Peer
	for _, p := range s.peers {
		inviter = p
	}
	text, err := s.Invite(s.Context(), inviter)
	if err != nil {
		s.Fatal(err)
	}
	invite, err := membership.ParseInvite(text)
	if err != nil {
		s.Fatal(err)
	}
	state := settings{stateDir: filepath.Join(s.TempDir(), name)}
	state.Name = name
	m := openTestMachine(s.T, state)
	_, err = m.admit(s.Context(), invite, nil)
	m.close()
	if err != nil {
		s.Fatal(err)
	}
	return s.node(state.stateDir)
}

// node runs the node alone of the machine that has that state folder.
func (s *shardStage) node(stateDir string) *p2p.Node {
	s.Helper()
	m := openTestMachine(s.T, settings{stateDir: stateDir})
	id, err := m.mesh()
	if err != nil {
		s.Fatal(err)
	}
	node, err := m.newNode(id, []string{"/ip4/127.0.0.1/tcp/0"})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
		m.close()
	})
	return node
}

// address is where the worker of a group listens, as its coordinator knows it.
func (s *shardStage) address(g together) string {
	s.Helper()
	var shown api.PeerShown
	if err := g.coordinator.Ask(s.Context(), "/v0/peer?name="+g.worker.Name, nil, &shown); err != nil {
		s.Fatal(err)
	}
	if len(shown.Addresses) == 0 {
		s.Fatalf("%s listens nowhere", g.worker.Name)
	}
	return shown.Addresses[0]
}

// together is a group that runs.
type together struct {
	coordinator, worker *theatre.Peer
	workerID            peer.ID
	call                p2p.ShardCall // As its coordinator makes it.
}

// placed waits for a group of others than one peer, and finds the server of its worker.
func (s *shardStage) placed(gone string) (g together) {
	s.Helper()
	s.until("a group runs", func() bool {
		for name, p := range s.peers {
			if name != gone && s.readGroup(p, gone, &g) {
				return true
			}
		}
		return false
	})
	servers := processesOf(s.T, g.worker.State(), "ggml-rpc-server")
	if len(servers) != 1 {
		s.Fatalf("%d rpc-servers of %s", len(servers), g.worker.Name)
	}
	s.server = rpcServer(servers[0])
	if len(s.server.connections(s.T)) == 0 {
		s.Fatal("the server of a group that runs has no connection: what is looked at shows nothing")
	}
	return g
}

// readGroup reads the group that is ready, in the eyes of a peer.
func (s *shardStage) readGroup(p *theatre.Peer, gone string, g *together) bool {
	var status api.Status
	if p.Ask(s.Context(), "/v0/status", nil, &status) != nil || len(status.Models) != 1 || len(status.Models[0].Replicas) != 1 {
		return false
	}
	names := peerNames(status.Peers)
	r := status.Models[0].Replicas[0]
	if r.State != scheduler.StateReady || len(r.Shares) != 1 || names[r.Peer] == gone || names[r.Shares[0].Peer] == gone {
		return false
	}
	signed, ok := s.look.Table().Get(scheduler.KindPlacement, status.Models[0].UID)
	var placement scheduler.Placement
	if !ok || record.Unmarshal(signed.Payload, &placement) != nil || len(placement.Ways) != 1 || placement.Ways[0].Group == nil || placement.Peers[0] != r.Peer {
		return false
	}
	worker, err := peer.Decode(r.Shares[0].Peer)
	if err != nil {
		s.Fatal(err)
	}
	*g = together{
		coordinator: s.peers[names[r.Peer]], worker: s.peers[names[r.Shares[0].Peer]], workerID: worker,
		call: p2p.ShardCall{UID: status.Models[0].UID, Group: placement.Ways[0].Group.ID, Epoch: signed.Version[0], Rank: signed.Version[1]},
	}
	return true
}

// refused wants somebody to be refused, and the server to have had no connection.
func (s *shardStage) refused(who string, try func(context.Context) error) {
	s.Helper()
	had := s.server.connections(s.T)
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	if err := try(ctx); err != nil {
		s.Errorf("%s: %v", who, err)
	}
	for c := range s.server.connections(s.T) {
		if !had[c] {
			s.Errorf("%s: the server had a connection from %s", who, c)
		}
	}
}

// call opens a shard stream as a member, and wants one of the errors.
func call(ctx context.Context, node *p2p.Node, to peer.ID, c p2p.ShardCall, want ...error) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for { // Until they have found one another.
		stream, err := node.OpenShard(ctx, to, c)
		switch {
		case err == nil:
			_ = stream.Close()
			return errors.New("the stream stands")
		case slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }):
			return nil
		case !errors.Is(err, p2p.ErrPeerGone) || ctx.Err() != nil:
			return err
		}
		<-again.C
	}
}

// callRaw opens a shard stream as somebody of no mesh, and wants it to be of no use.
func callRaw(ctx context.Context, stranger host.Host, to string, g together) error {
	addr, err := ma.NewMultiaddr(to)
	if err != nil {
		return err
	}
	if err := stranger.Connect(ctx, peer.AddrInfo{ID: g.workerID, Addrs: []ma.Multiaddr{addr}}); err != nil {
		return fmt.Errorf("it cannot even knock, so that nothing is seen: %w", err)
	}
	stream, err := stranger.NewStream(ctx, g.workerID, p2p.ProtocolShard)
	if err != nil {
		return nil
	}
	defer stream.Reset()
	if err := stream.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	said, err := record.Marshal(g.call)
	if err != nil {
		return err
	}
	if _, err := stream.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(said))), said...)); err != nil {
		return nil
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(stream, answer); err == nil && answer[0] == 1 {
		return errors.New("the stream stands")
	}
	return nil
}

// rpcServer is the id of its process.
type rpcServer int

// connections are those of the server's own network, by their ends; also such as have
// just been closed, or that it has not taken yet. Its log shows no more of them once it
// has begun to compute.
func (r rpcServer) connections(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range socketsOf(t, int(r)) {
		if line.state != listening {
			all[line.local+" "+line.remote] = true
		}
	}
	return all
}

// noPorts wants no process of the peers' engines to listen on the network of the
// machine, and what they listen on in their own to be no way in from there, for this user
// and for another one.
func (s *shardStage) noPorts(g together) {
	s.Helper()
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		s.Fatal(err)
	}
	ports := map[string]bool{}
	for _, p := range s.peers {
		for _, program := range []string{"llama-server", "ggml-rpc-server"} {
			for _, pid := range processesOf(s.T, p.State(), program) {
				its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
				if err != nil {
					s.Fatal(err)
				}
				for _, line := range socketsOf(s.T, pid) {
					if line.state != listening {
						continue
					}
					if its == ours && line.inode != "0" && has(s.T, pid, line.inode) {
						s.Errorf("%s of %s listens at %s", program, p.Name, line.local)
					} else if its != ours {
						_, port, _ := strings.Cut(line.local, ":")
						n, err := strconv.ParseUint(port, 16, 16)
						if err != nil {
							s.Fatal(err)
						}
						ports[strconv.FormatUint(n, 10)] = true
					}
				}
			}
		}
	}
	if len(ports) == 0 {
		s.Fatal("no engine listens anywhere: what is looked at shows nothing")
	}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		for name, credential := range users() {
			s.refused(name+" at port "+port, func(ctx context.Context) error {
				return tries(ctx, credential, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port)
			})
		}
	}
	if nobody := users()["another user"]; nobody != nil {
		s.refused("another user, in its network", func(ctx context.Context) error {
			return tries(ctx, nobody, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", s.server), "true")
		})
	}
}

// users are who tries: whoever runs this and, where that may be, another one.
func users() map[string]*syscall.Credential {
	list := map[string]*syscall.Credential{"this user": nil}
	if os.Geteuid() == 0 {
		list["another user"] = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	return list
}

// tries wants a program that somebody runs to fail.
func tries(ctx context.Context, as *syscall.Credential, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil
	}
	return fmt.Errorf("%s ended with %v: %s", program, err, out)
}

// listening is the state of a socket that listens, as /proc says it.
const listening = "0A"

type socketLine struct{ local, remote, state, inode string }

// socketsOf are the TCP sockets in the network that a process is in.
func socketsOf(t *testing.T, pid int) (list []socketLine) {
	t.Helper()
	for _, family := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		if errors.Is(err, os.ErrNotExist) {
			continue // This system has no IPv6.
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 9 && f[0] != "sl" {
				list = append(list, socketLine{f[1], f[2], f[3], f[9]})
			}
		}
	}
	return list
}

// has says whether a process has a socket.
func has(t *testing.T, pid int, inode string) bool {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(fds, func(fd string) bool {
		to, err := os.Readlink(fd)
		return err == nil && to == "socket:["+inode+"]"
	})
}

// processesOf are the processes of a program whose working folder is in a state folder.
func processesOf(t *testing.T, state, program string) (pids []int) {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		dir, err := os.Readlink(entry)
		line, err2 := os.ReadFile(filepath.Join(filepath.Dir(entry), "cmdline"))
		if err != nil || err2 != nil || !strings.HasPrefix(dir, state+string(filepath.Separator)) {
			continue
		}
		if filepath.Base(string(bytes.SplitN(line, []byte{0}, 2)[0])) != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
