package scheduler

import (
	"context"
	"io"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/store/content"
)

// swarm is where a pull gets a content from: the members that hold it, wholly or
// in part, and are up.
type swarm struct {
	content.BlockGetter
	s   *Scheduler
	cid string
}

// Holders lists them as the records say now.
func (w *swarm) Holders() []content.Holder {
	v, _ := w.s.latest()
	var list []content.Holder
	for _, h := range v.holdings[w.cid] {
		p := v.peer[h.peer]
		if h.Gone == "" && !p.Self && p.alive() {
			list = append(list, holder{w.s.Mesh, p.ID, p.Name})
		}
	}
	return list
}

// holder is one member that has files.
type holder struct {
	mesh Mesh
	id   peer.ID
	name string
}

func (h holder) ID() string   { return h.id.String() }
func (h holder) Name() string { return h.name }

func (h holder) Have(ctx context.Context, root cid.Cid) (have []byte, whole bool, err error) {
	return h.mesh.Have(ctx, h.id, root)
}

func (h holder) Range(ctx context.Context, root cid.Cid, from, to int64, check bool) (io.ReadCloser, error) {
	return h.mesh.Range(ctx, h.id, root, from, to, check)
}
