//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

const (
	// sendArg makes this program the sending end of a stream.
	sendArg = "send"
	raw     = "/relay/bench/raw"
	// pieces are what is read and written at a time, in bytes.
	pieces = 1 << 20
)

// versusStream: a pull against one stream of the same bytes between two libp2p
// hosts in two processes, on the transport that relay uses (TCP, TLS 1.3,
// yamux), read from the file and written to another, with nothing checked. The
// hosts are connected before, as peers are.
func versusStream(ctx context.Context) error {
	return inMemory(2*fileBytes, func(dir string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		sender := exec.CommandContext(ctx, self, sendArg, dir)
		hold, err := sender.StdinPipe() // Its end, if this process dies.
		if err != nil {
			return err
		}
		defer hold.Close()
		address, stop, err := beside(ctx, sender, `^sends from (\S+)$`)
		if err != nil {
			return err
		}
		defer stop()
		h, err := newHost()
		if err != nil {
			return err
		}
		defer h.Close()
		to, err := peer.AddrInfoFromString(address)
		if err != nil {
			return err
		}
		if err := h.Connect(ctx, *to); err != nil {
			return err
		}
		return onPair(ctx, dir, func(p *pair) error {
			return race(ctx, dir, way{do: p.pulling}, way{"pull_vs_stream", func(ctx context.Context, path string) (float64, error) {
				got := filepath.Join(dir, "received")
				took, err := receive(ctx, h, to.ID, filepath.Base(path), got)
				if err != nil {
					return 0, err
				}
				return took, errors.Join(same(path, got), os.Remove(got))
			}})
		})
	})
}

func newHost() (host.Host, error) {
	return libp2p.New(
		libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.DisableRelay(),
		libp2p.Ping(false),
	)
}

// send is the other process: it sends the files of a folder to whoever asks,
// until its standard input ends.
func send(folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	h, err := newHost()
	if err != nil {
		return err
	}
	defer h.Close()
	h.SetStreamHandler(raw, func(s network.Stream) {
		if err := sendOne(root, s); err != nil {
			_ = s.Reset()
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	})
	fmt.Printf("sends from %s/p2p/%s\n", h.Addrs()[0], h.ID())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func sendOne(root *os.Root, s network.Stream) error {
	name, err := bufio.NewReader(s).ReadString('\n')
	if err != nil {
		return err
	}
	f, err := root.Open(strings.TrimSpace(name))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := copyPieces(s, f); err != nil {
		return err
	}
	return s.Close()
}

// receive brings a file through one stream.
func receive(ctx context.Context, h host.Host, from peer.ID, name, to string) (seconds float64, err error) {
	began := time.Now()
	s, err := h.NewStream(ctx, from, raw)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if err := s.SetDeadline(began.Add(patience)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(s, name+"\n"); err != nil {
		return 0, err
	}
	f, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	_, err = copyPieces(f, s)
	err = errors.Join(err, f.Close())
	return time.Since(began).Seconds(), err
}

// copyPieces copies with a buffer of its own, whatever both ends can do.
func copyPieces(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, pieces))
}
