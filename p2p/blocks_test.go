package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	cid "github.com/ipfs/go-cid"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multihash"

	"relay/p2p/membership"
)

var bothTransports = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}

// request is what Files is asked for.
type request struct {
	root     cid.Cid
	from, to int64
	check    bool
}

// filesOf answers as a test says.
type filesOf struct {
	have func(root cid.Cid) ([]byte, bool, error)
	open func(ctx context.Context, r request) (io.ReadCloser, int64, error)
}

func (f filesOf) Have(root cid.Cid) ([]byte, bool, error) { return f.have(root) }

func (f filesOf) OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (io.ReadCloser, int64, error) {
	return f.open(ctx, request{root, from, to, check})
}

func testRoot(name string) cid.Cid {
	hash, err := multihash.Sum([]byte(name), multihash.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return cid.NewCidV1(cid.DagProtobuf, hash)
}

// pairOn is a founder that serves files, and a member of trust replicas beside it.
func pairOn(t testing.TB, transport string, files Files) (holder, asker *machine) {
	t.Helper()
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	holder, asker = newMachine(t), newMachine(t)
	holder.listen, asker.listen = addrs(transport), []ma.Multiaddr{}
	holder.files = files
	holder.open(t, key.ID(), "attic", func(n *Node) error { return n.Found(key, "attic's mesh") })
	admission, err := Join(t.Context(), asker.key, invite(t, holder, 1), "den", agent)
	if err != nil {
		t.Fatal(err)
	}
	asker.open(t, admission.Mesh, "den", func(n *Node) error { return n.Adopt(admission) })
	eventually(t, 10*time.Second, "both alive", func() bool { return seesAlive(holder, 2)() && seesAlive(asker, 2)() })
	return holder, asker
}

var _ = []any{bytes.Equal, errors.Is, fmt.Sprint, rand.N[int], atomic.Bool{}}
