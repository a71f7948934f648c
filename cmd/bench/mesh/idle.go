//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"relay/cmd/bench/figure"
	"relay/cmd/lab"
	"relay/cmd/stage"
)

const (
	settling = 30 * time.Second
	counting = time.Minute
)

// idling: what peers of a mesh in which nothing happens send, all of it: the
// bytes that the loopback interface of one namespace carries, acknowledgements
// included, per peer and second. And the resident memory of their processes, in
// the mean.
func idling(ctx context.Context) error {
	return onNetwork(func(l *lab.Lab, s *stage.Stage) error {
		if err := l.Add("all"); err != nil {
			return err
		}
		s.On = func(string) []string { return l.On("all") }
		var peers []*stage.Peer
		var invite string
		for _, n := range []int{10, 25, 50} {
			for i := len(peers); i < n; i++ {
				port := 9000 + i
				args := []string{"--listen", "127.0.0.1:0", "--p2p-listen", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", port),
					"--p2p-listen", fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", port)}
				if i > 0 {
					args = append(args, "--join", invite)
				}
				p, err := s.Up(ctx, fmt.Sprint("peer", i), args...)
				if err != nil {
					return err
				}
				peers = append(peers, p)
				if i == 0 {
					if invite, err = s.Invite(ctx, p, "--uses", "50"); err != nil {
						return err
					}
				}
			}
			if err := allAlive(ctx, peers); err != nil {
				return err
			}
			figure.Say("%d peers are connected; they settle for %s and are counted for %s", n, settling, counting)
			if err := pass(ctx, settling); err != nil {
				return err
			}
			before, err := sent(l)
			if err != nil {
				return err
			}
			began := time.Now()
			if err := pass(ctx, counting); err != nil {
				return err
			}
			after, err := sent(l)
			if err != nil {
				return err
			}
			figure.Value(fmt.Sprintf("idle_bytes_s_%d", n), float64(after-before)/seconds(began)/float64(n), "B/s")
			memory, err := resident(peers)
			if err != nil {
				return err
			}
			figure.Value(fmt.Sprintf("memory_mib_%d", n), memory/(1<<20), "MiB")
		}
		return nil
	})
}

// sent is how many bytes the loopback interface has carried.
func sent(l *lab.Lab) (uint64, error) {
	line := append(l.On("all"), "cat", "/proc/net/dev")
	out, err := exec.Command(line[0], line[1:]...).Output()
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "lo:"); ok {
			return strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("there is no loopback interface: %s", out)
}

var rss = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// resident is the mean of the peers' resident memory, in bytes.
func resident(peers []*stage.Peer) (float64, error) {
	sum := 0.0
	for _, p := range peers {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
		if err != nil {
			return 0, err
		}
		found := rss.FindSubmatch(status)
		if found == nil {
			return 0, fmt.Errorf("%s has no memory: %s", p.Name, status)
		}
		kib, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += kib * 1024
	}
	return sum / float64(len(peers)), nil
}
