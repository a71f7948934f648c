package p2p

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/tunnel"
)

// roleVar has this test's program be one process of a measurement, of which
// there are as many as where an engine runs over two machines.
const (
	roleVar   = "RELAY_TEST_SHARD_ROLE"
	listenVar = "RELAY_TEST_SHARD_LISTEN" // The node's address.
)

func TestMain(m *testing.M) {
	flag.Parse()
	role, ok := roles[os.Getenv(roleVar)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(bufio.NewScanner(os.Stdin)); err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVar)+":", err)
		os.Exit(1)
	}
}

var roles = map[string]func(in *bufio.Scanner) error{"echo": runEcho, "coordinator": runCoordinator, "worker": runWorker, "streamer": runStreamer}

// runEcho is the engine's server: it sends back what it gets.
func runEcho(in *bufio.Scanner) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go serveEcho(listener)
	fmt.Println(listener.Addr())
	in.Scan()
	return listener.Close()
}

// serveEcho answers each connection as its first byte says: with as much as was
// asked (e), or with one byte for each MiB.
func serveEcho(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			mode := make([]byte, 1)
			if _, err := io.ReadFull(c, mode); err != nil {
				return
			}
			size := roundTrip
			if mode[0] != 'e' {
				size = 1 << 20
			}
			buffer := make([]byte, size)
			for {
				if _, err := io.ReadFull(c, buffer); err != nil {
					return
				}
				answer := buffer
				if mode[0] != 'e' {
					answer = mode
				}
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

const roundTrip = 16 << 10

var benchCall = ShardCall{UID: "u", Group: "g", Epoch: 1}

// benchNode is a node in a process of its own, until stdin ends.
func benchNode(mesh membership.MeshID, m *machine, name string, ready func(*Node) error, work func(context.Context, *Node) error) error {
	m.listen = addrs(os.Getenv(listenVar))
	n, err := New(m.options(nil, mesh, name))
	if err != nil {
		return err
	}
	if err := ready(n); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	err = work(ctx, n)
	cancel()
	return cmp.Or(err, <-done)
}

func runCoordinator(in *bufio.Scanner) error {
	key, err := membership.NewMeshKey()
	if err != nil {
		return err
	}
	m, err := bareMachine()
	if err != nil {
		return err
	}
	return benchNode(key.ID(), m, "attic", func(n *Node) error { return n.Found(key, "mesh") }, func(ctx context.Context, n *Node) error {
		inv, _, err := n.Invite(InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: 1, TTL: time.Hour})
		if err != nil {
			return err
		}
		fmt.Println(inv)
		in.Scan()
		to, err := peer.Decode(in.Text())
		if err != nil {
			return err
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for m.Node = n; !seesAlive(m, 2)(); {
			<-tick.C
		}
		ways := []func() (net.Conn, error){
			func() (net.Conn, error) { return n.OpenShard(ctx, to, benchCall) },
			func() (net.Conn, error) {
				return n.shards.openStream(ctx, fastest(n.host.Network().ConnsToPeer(to)), benchCall)
			},
		}
		for _, open := range ways {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer listener.Close()
			fmt.Println(listener.Addr())
			go serveTunnel(listener, open)
		}
		in.Scan()
		return nil
	})
}

// serveTunnel is what a coordinator does for its engine.
func serveTunnel(listener net.Listener, open func() (net.Conn, error)) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			s, err := open()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				_ = c.Close()
				return
			}
			_ = tunnel.Join(c, s, new(tunnel.Meter))
		}()
	}
}

func runWorker(in *bufio.Scanner) error {
	in.Scan()
	inv, err := membership.ParseInvite(in.Text())
	if err != nil {
		return err
	}
	in.Scan()
	echo := in.Text()
	m, err := bareMachine()
	if err != nil {
		return err
	}
	admission, err := Join(context.Background(), m.key, inv, "den", agent)
	if err != nil {
		return err
	}
	return benchNode(admission.Mesh, m, "den", func(n *Node) error {
		n.ServeShards(func(ctx context.Context, _ peer.ID, _ ShardCall) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", echo)
		})
		return n.Adopt(admission)
	}, func(_ context.Context, n *Node) error {
		fmt.Println(n.Self())
		in.Scan()
		return nil
	})
}

// process is one of a measurement.
type process struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func startProcess(b *testing.B, role, transport string) process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, listenVar+"="+transport)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("%s: %v", role, err)
		}
	})
	return process{in, bufio.NewScanner(out)}
}

func (p process) read(b *testing.B) string {
	b.Helper()
	if !p.out.Scan() {
		b.Fatal("a process ended")
	}
	return strings.TrimSpace(p.out.Text())
}

// BenchmarkShardStream sends 16 KiB there and back, and then many bytes one way,
// from one process to another: by plain TCP, and through the nodes of two more, on
// a connection of its own (by TCP only) and on a stream of their link.
func BenchmarkShardStream(b *testing.B) {
	for i, name := range []string{"tcp", "quic"} {
		b.Run(name, func(b *testing.B) {
			transport := bothTransports[i]
			echo, coordinator, worker := startProcess(b, "echo", ""), startProcess(b, "coordinator", transport), startProcess(b, "worker", transport)
			plain := echo.read(b)
			fmt.Fprintf(worker.in, "%s\n%s\n", coordinator.read(b), plain)
			fmt.Fprintln(coordinator.in, worker.read(b))
			single, stream := coordinator.read(b), coordinator.read(b)
			if name == "quic" {
				measureShards(b, []string{"plain", "stream"}, []string{plain, stream})
				return
			}
			measureShards(b, []string{"plain", "single", "stream"}, []string{plain, single, stream})
		})
	}
}

// measureShards measures several ways to the same process, in turn.
func measureShards(b *testing.B, names, ways []string) {
	took, rates := make([][]float64, len(ways)), make([][]float64, len(ways))
	for b.Loop() {
		for i, us := range roundTrips(b, ways) {
			took[i] = append(took[i], us)
		}
		for i, way := range ways {
			rates[i] = append(rates[i], bulkRate(b, way))
		}
	}
	for i, name := range names {
		slices.Sort(took[i])
		slices.Sort(rates[i])
		b.ReportMetric(took[i][len(took[i])/2], name+"-us")
		b.ReportMetric(rates[i][len(rates[i])/2], name+"-MB/s")
	}
}

// roundTrips is the median round trip of each way, in microseconds. They take
// turns of 100.
func roundTrips(b *testing.B, ways []string) (medians []float64) {
	b.Helper()
	var conns []net.Conn
	for _, to := range ways {
		c, err := net.Dial("tcp", to)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("e")); err != nil {
			b.Fatal(err)
		}
		conns = append(conns, c)
	}
	buffer, took := make([]byte, roundTrip), make([][]float64, len(ways))
	for turn := range 21 {
		for i, c := range conns {
			for range 100 {
				began := time.Now()
				if _, err := c.Write(buffer); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buffer); err != nil {
					b.Fatal(err)
				}
				if turn > 0 { // The first one opens what has to be opened.
					took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/1e3)
				}
			}
		}
	}
	for _, all := range took {
		slices.Sort(all)
		medians = append(medians, all[len(all)/2])
	}
	return medians
}

// bulkRate is how fast many bytes go one way, in MB/s.
func bulkRate(b *testing.B, to string) float64 {
	b.Helper()
	c, err := net.Dial("tcp", to)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("b")); err != nil {
		b.Fatal(err)
	}
	const pieces = 256
	buffer := make([]byte, 1<<20)
	began := time.Now()
	go func() {
		for range pieces {
			if _, err := c.Write(buffer); err != nil {
				return
			}
		}
	}()
	if _, err := io.ReadFull(c, make([]byte, pieces)); err != nil {
		b.Fatal(err)
	}
	return pieces * float64(len(buffer)) / 1e6 / time.Since(began).Seconds()
}
