package p2p

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/libp2p/go-libp2p/core/protocol"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// TestWhatEachTrustMaySee has a test for each cell of the table of trusts that is
// this package's: model files, records, leading, and blocks for others. (Doors,
// prompts and where models run are the scheduler's; ranges of layers and relays
// come with what needs them.)
func TestWhatEachTrustMaySee(t *testing.T) {
	placement := record.Kind{Name: "placement", Rule: record.Placement}
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	root, data := testRoot("model"), []byte("the bytes of a model")
	files := fileOf(root, data, len(data))
	attic := newMachine(t)
	attic.files = files
	attic.kinds = []record.Kind{placement}
	attic.open(t, key.ID(), "attic", func(n *Node) error { return n.Found(key, "attic's mesh") })
	for _, c := range []struct {
		trust                        membership.Trust
		files, records, leads, seeds bool
	}{
		{membership.TrustReplicas, true, true, true, true},
		{membership.TrustShardOnly, false, true, false, true},
		{membership.TrustClient, false, true, false, false},
	} {
		t.Run(string(c.trust), func(t *testing.T) {
			inv, _, err := attic.Invite(InviteOptions{Role: membership.RoleMember, Trust: c.trust, Uses: 1, TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			den := newMachine(t)
			den.files = files
			admission, err := Join(t.Context(), den.key, inv, "den", agent)
			if err != nil {
				t.Fatal(err)
			}
			den.open(t, admission.Mesh, "den", func(n *Node) error { return n.Adopt(admission) })
			eventually(t, 10*time.Second, "den is in", func() bool { return stateOf(attic, den) == "alive" && stateOf(den, attic) == "alive" })
			fetches := func(from, to *machine, text string) bool {
				t.Helper()
				block := blocks.NewBlock([]byte(text + string(c.trust)))
				if err := from.blocks.Put(t.Context(), block); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := to.Fetch(ctx).GetBlock(ctx, block.Cid())
				return err == nil
			}
			ranges := func(from, to *machine) bool {
				t.Helper()
				_, whole, errHave := to.Have(t.Context(), from.Self(), root)
				r, err := to.Range(t.Context(), from.Self(), root, 0, int64(len(data)), false)
				if err != nil {
					return whole || errHave == nil
				}
				defer r.Close()
				got, err := io.ReadAll(r)
				return err == nil && bytes.Equal(got, data) && whole && errHave == nil
			}
			t.Run("whole model files", func(t *testing.T) {
				if got := fetches(attic, den, "of attic's for "); got != c.files {
					t.Errorf("got a block: %v", got)
				}
				if got := ranges(attic, den); got != c.files {
					t.Errorf("got a range: %v", got)
				}
			})
			t.Run("records", func(t *testing.T) {
				eventually(t, 10*time.Second, "it has every record", func() bool { return sameState(attic, den)() == c.records })
			})
			t.Run("leads", func(t *testing.T) {
				s, err := record.Seal(record.Record{Kind: placement.Name, ID: "model-of-" + string(c.trust), Version: record.Version{1, 1, 1}}, den.key)
				if err != nil {
					t.Fatal(err)
				}
				if outcome, _ := attic.Table().Offer(s); (outcome == record.Fresh) != c.leads {
					t.Errorf("its placement is %s", outcome)
				}
			})
			t.Run("seeds", func(t *testing.T) {
				if got := fetches(den, attic, "of den's, "); got != c.seeds {
					t.Errorf("gave a block: %v", got)
				}
				if got := ranges(den, attic); got != c.seeds {
					t.Errorf("gave a range: %v", got)
				}
			})
			den.stop()
		})
	}
}

// TestWhoMayOpenWhat is the whole table of protocols, written a second time.
func TestWhoMayOpenWhat(t *testing.T) {
	const mesh = membership.MeshID("abcdefghijklmnop")
	const strangers = "strangers"
	all := []string{string(membership.TrustReplicas), string(membership.TrustShardOnly), string(membership.TrustClient)}
	for id, want := range map[protocol.ID][]string{
		"/relay/join/1":                     append([]string{strangers}, all...),
		"/ipfs/id/1.0.0":                    append([]string{strangers}, all...),
		"/ipfs/id/push/1.0.0":               all,
		"/relay/sync/1":                     all,
		"/relay/probe/1":                    all,
		"/relay/http/1":                     all,
		"/relay/http/2":                     all,
		"/relay/ctl/1":                      all,
		"/relay/blocks/1":                   all[:2],
		"/relay/shard/1":                    all[:1],
		"/meshsub/1.2.0":                    all,
		"/relay/abcdefghijklmnop/kad/1.0.0": all,
		"/relay/abcdefghijklmnop/ipfs/bitswap/1.2.0":  all[:2],
		"/relay/ponmlkjihgfedcba/ipfs/bitswap/1.2.0":  nil,
		"/relay/ponmlkjihgfedcba/kad/1.0.0":           nil,
		"/ipfs/bitswap/1.2.0":                         nil,
		"/ipfs/kad/1.0.0":                             nil,
		"/ipfs/ping/1.0.0":                            nil,
		"/libp2p/circuit/relay/0.2.0/hop":             nil,
		"/relay/abcdefghijklmnop/something/new/1.0.0": nil,
	} {
		rule, listed := accessTo(mesh, id)
		var got []string
		if listed && rule.strangers {
			got = append(got, strangers)
		}
		for _, trust := range all {
			if listed && rule.admits(membership.Trust(trust)) {
				got = append(got, trust)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}
