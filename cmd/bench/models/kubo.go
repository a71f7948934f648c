//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"relay/cmd/bench/figure"
)

const kuboVersion = "v0.43.1"

// kuboModule is a module of its own: what kubo needs is none of relay's business,
// and its go.mod names a webtransport-go that does not fit its quic-go.
const kuboModule = `module kubo

go 1.26

require github.com/ipfs/kubo ` + kuboVersion + `

replace github.com/quic-go/webtransport-go => github.com/quic-go/webtransport-go v0.11.1

replace github.com/quic-go/quic-go => github.com/quic-go/quic-go v0.60.0
`

// versusKubo: a pull against `ipfs get` between two daemons that are connected
// before. Blocks are as large as relay's and the holder's refer to the file
// where it lies, as relay's do.
func versusKubo(ctx context.Context) error {
	ipfs, err := buildKubo(ctx)
	if err != nil {
		return err
	}
	// The file, relay's or kubo's blocks, and what `ipfs get` writes.
	return inMemory(3*fileBytes, func(dir string) error {
		holder, stop, err := startKubo(ctx, ipfs, filepath.Join(dir, "kubo-holder"))
		if err != nil {
			return err
		}
		defer stop()
		puller, stop, err := startKubo(ctx, ipfs, filepath.Join(dir, "kubo-puller"))
		if err != nil {
			return err
		}
		defer stop()
		address, err := holder.say(ctx, "id", "-f", "<addrs>")
		if err != nil {
			return err
		}
		address, _, _ = strings.Cut(address, "\n")
		if _, err := puller.say(ctx, "swarm", "connect", address); err != nil {
			return err
		}
		return onPair(ctx, dir, func(p *pair) error {
			return race(ctx, dir, way{do: p.pulling}, way{"pull_vs_kubo", func(ctx context.Context, path string) (float64, error) {
				return getFromKubo(ctx, holder, puller, path, filepath.Join(dir, "got"))
			}})
		})
	})
}

// getFromKubo adds a file on the holder and times how the puller gets it. Both
// forget it afterwards.
func getFromKubo(ctx context.Context, holder, puller kubo, path, to string) (float64, error) {
	root, err := holder.say(ctx, "add", "-Q", "--pin=false", "--nocopy", "--cid-version=1", "--raw-leaves", "--chunker=size-1048576", path)
	if err != nil {
		return 0, err
	}
	took, err := timed(ctx, func(ctx context.Context) *exec.Cmd { return puller.command(ctx, "get", "-o", to, root) })
	if err != nil {
		return 0, err
	}
	if err := errors.Join(same(path, to), os.Remove(to)); err != nil {
		return 0, err
	}
	for _, k := range []kubo{holder, puller} {
		if _, err := k.say(ctx, "repo", "gc", "-q"); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// buildKubo builds kubo once, into a cache outside the tree.
func buildKubo(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "relay", "bench", "kubo-"+kuboVersion)
	path := filepath.Join(dir, "ipfs")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	figure.Say("kubo %s is built into %s: minutes, once", kuboVersion, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return path, inFolder(dir, func(module string) error {
		if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(kuboModule), 0o644); err != nil {
			return err
		}
		// Go's checksum database vouches for what is not in a go.sum here.
		cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-trimpath", "-ldflags", "-s -w", "-o", "ipfs", "github.com/ipfs/kubo/cmd/ipfs")
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubo cannot be built: %w: %s", err, out)
		}
		return os.Rename(filepath.Join(module, "ipfs"), path)
	})
}

// kubo is one node, by its folder.
type kubo struct{ program, repo string }

// startKubo makes a node that reaches nobody but whom it is told to connect to on
// loopback, and runs its daemon.
func startKubo(ctx context.Context, program, repo string) (k kubo, stop func(), err error) {
	k = kubo{program, repo}
	if _, err := k.say(ctx, "init", "--profile=test"); err != nil {
		return k, nil, err
	}
	for _, s := range kuboSettings {
		if _, err := k.say(ctx, "config", "--json", s.name, s.value); err != nil {
			return k, nil, err
		}
	}
	_, stop, err = beside(ctx, k.command(ctx, "daemon"), "Daemon is ready")
	return k, stop, err
}

var kuboSettings = []struct{ name, value string }{
	{"Addresses.Swarm", `["/ip4/127.0.0.1/tcp/0"]`},
	{"Routing.Type", `"none"`},
	{"Provide.Enabled", `false`},
	{"AutoNAT.ServiceMode", `"disabled"`},
	{"Swarm.RelayClient.Enabled", `false`},
	{"Swarm.RelayService.Enabled", `false`},
	{"Swarm.EnableHolePunching", `false`},
	{"HTTPRetrieval.Enabled", `false`},
	{"Plugins.Plugins", `{"telemetry":{"Disabled":true}}`},
	{"Experimental.FilestoreEnabled", `true`},
	// By default one block of this size at a time is on its way to a peer.
	{"Internal.Bitswap", `{"MaxOutstandingBytesPerPeer":16777216,"TaskWorkerCount":32,"EngineTaskWorkerCount":32}`},
}

func (k kubo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.program, args...)
	cmd.Env = append(os.Environ(), "IPFS_PATH="+k.repo, "IPFS_TELEMETRY=off", "DO_NOT_TRACK=1")
	return cmd
}

// say runs a command on a node, and returns what it printed.
func (k kubo) say(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := k.command(ctx, args...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ipfs %s: %w: %s", strings.Join(args, " "), err, failed.String())
	}
	return strings.TrimSpace(string(out)), nil
}
