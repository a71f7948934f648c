package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/llama/tensorcache"
	"relay/p2p/membership"
	"relay/store/content"
)

// TensorAt is where a tensor lies in the files of a model: a worker of it fetches
// these bytes.
type TensorAt struct {
	CID    string `json:"cid"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

// layouts are where the tensors of models lie whose files are here, read once for
// each content.
type layouts struct {
	s *Scheduler

	mu   sync.Mutex
	read map[string][]placedTensor // By the CID of the model's content.
}

// placedTensor is a tensor with the file that it lies in.
type placedTensor struct {
	Tensor
	file cid.Cid
}

// maxLayouts bounds the models whose layout is remembered.
const maxLayouts = 32

func newLayouts(s *Scheduler) *layouts {
	return &layouts{s: s, read: map[string][]placedTensor{}}
}

// of is the layout of a model whose files are here whole.
func (l *layouts) of(m Model) ([]placedTensor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list, ok := l.read[m.CID]; ok {
		return list, nil
	}
	root, err := cid.Decode(m.CID)
	if err != nil {
		return nil, Errorf(NotFound, "its CID is none")
	}
	path, err := l.s.Content.Path(root)
	if err != nil {
		return nil, err
	}
	here, err := l.s.Content.Get(root)
	if err != nil {
		return nil, err
	}
	header, err := l.s.ReadHeader(path)
	if err != nil {
		return nil, err
	}
	tensors, err := header.Tensors()
	if err != nil {
		return nil, err
	}
	list := make([]placedTensor, 0, len(tensors))
	for _, t := range tensors {
		file := root
		if len(here.Roots) > 0 {
			if t.Part >= len(here.Roots) {
				return nil, Errorf(FileChanged, "its files are not those that were added")
			}
			file = here.Roots[t.Part]
		}
		list = append(list, placedTensor{t, file})
	}
	if len(l.read) >= maxLayouts {
		clear(l.read)
	}
	l.read[m.CID] = list
	return list, nil
}

// large are the tensors of some layers that an rpc-server loads by their hash; the
// others come over the link.
func large(list []placedTensor, from, to int) (tensors []placedTensor) {
	for _, t := range list {
		if t.Layer >= from && t.Layer < to && t.Bytes > tensorcache.Least {
			tensors = append(tensors, t)
		}
	}
	return tensors
}

// TensorsOf says where the tensors lie that a worker of a model is to fetch: those of
// its layers, under the placement that is in force.
func (s *Scheduler) TensorsOf(from peer.ID, uid string) ([]TensorAt, error) {
	v, _ := s.latest()
	m := v.model[uid]
	if m == nil {
		return nil, Errorf(ModelNotFound, "there is no such model here")
	}
	order, ok := v.shareOf(from.String(), uid)
	if !ok {
		return nil, Errorf(Superseded, "no layers of model %q are known to be given to that peer", m.shown)
	}
	list, err := s.layouts.of(m.Model)
	if err != nil {
		return nil, err
	}
	tensors := []TensorAt{}
	for _, t := range large(list, order.take.From, order.take.From+order.take.Layers()) {
		tensors = append(tensors, TensorAt{t.file.String(), t.Offset, t.Bytes})
	}
	return tensors, nil
}

// MayHave says whether a member may be sent the bytes [from, to) of a file by this
// peer; from == to asks for the file's tree alone.
func (s *Scheduler) MayHave(id peer.ID, trust membership.Trust, c cid.Cid, from, to int64) bool {
	switch trust {
	case membership.TrustReplicas:
		return true
	case membership.TrustShardOnly:
		return s.mayHaveShare(id, c, from, to)
	}
	return false
}

// leafBytes is the size of the pieces by which bytes are verified: who may have a
// byte is sent all of its piece.
const leafBytes = 1 << 20

// mayHaveShare says whether bytes of a file are of the layers that a member was given.
// The hashes of a model's pieces are told to whoever has a share of any.
func (s *Scheduler) mayHaveShare(id peer.ID, c cid.Cid, from, to int64) bool {
	v, _ := s.latest()
	any := false
	for uid, m := range v.model {
		order, ok := v.shareOf(id.String(), uid)
		if !ok {
			continue
		}
		any = true
		if from == to {
			continue
		}
		list, err := s.layouts.of(m.Model)
		if err != nil {
			continue
		}
		if covers(large(list, order.take.From, order.take.From+order.take.Layers()), c, from, to) {
			return true
		}
	}
	return any && from == to && c.Prefix().Codec == cid.DagProtobuf
}

// covers says whether the pieces that tensors lie in have all of some bytes of a file.
func covers(tensors []placedTensor, file cid.Cid, from, to int64) bool {
	var ranges []content.ByteRange
	for _, t := range tensors {
		if t.file.Equals(file) {
			end := t.Offset + t.Bytes
			ranges = append(ranges, content.ByteRange{From: t.Offset / leafBytes * leafBytes, To: (end + leafBytes - 1) / leafBytes * leafBytes})
		}
	}
	slices.SortFunc(ranges, func(a, b content.ByteRange) int { return int(min(max(a.From-b.From, -1), 1)) })
	for _, r := range ranges {
		if r.From <= from && from < r.To {
			if from = r.To; from >= to {
				return true
			}
		}
	}
	return false
}

const (
	// maxTensors bounds what a coordinator may say a worker is to fetch.
	maxTensors       = 64 << 10
	maxTensorsAnswer = 16 << 20
)

// askTensors asks the coordinator of a group for the tensors of this peer's layers.
func (s *Scheduler) askTensors(ctx context.Context, coordinator peer.ID, m Model, uid string) ([]tensorcache.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://peer/tensors?uid="+uid, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.Mesh.Control(coordinator).RoundTrip(r)
	if err != nil {
		return nil, Errorf(PeerGone, "%s does not say which tensors they have: %w", s.Mesh.NameOf(coordinator), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, Errorf(PeerGone, "%s does not say which tensors they have (it answered %d)", s.Mesh.NameOf(coordinator), response.StatusCode)
	}
	var list []TensorAt
	if err := json.NewDecoder(io.LimitReader(response.Body, maxTensorsAnswer)).Decode(&list); err != nil {
		return nil, Errorf(ProtocolMismatch, "%s says which tensors they have in a way that is not understood", s.Mesh.NameOf(coordinator))
	}
	return keysOf(list, m)
}

// keysOf checks what another peer says of tensors: no more bytes than the model has.
func keysOf(list []TensorAt, m Model) ([]tensorcache.Key, error) {
	wrong := func(text string) ([]tensorcache.Key, error) {
		return nil, Errorf(ProtocolMismatch, "the coordinator's list of tensors cannot be right: %s", text)
	}
	if len(list) > maxTensors {
		return wrong(fmt.Sprintf("there are more than %d", maxTensors))
	}
	keys := make([]tensorcache.Key, 0, len(list))
	left := m.Bytes
	for _, t := range list {
		if _, err := cid.Decode(t.CID); err != nil {
			return wrong("one is in no file")
		}
		if t.Offset < 0 || t.Bytes <= tensorcache.Least || t.Bytes > left || t.Offset > m.Bytes-t.Bytes {
			return wrong("they have more bytes than the model")
		}
		left -= t.Bytes
		keys = append(keys, tensorcache.Key{File: t.CID, Offset: t.Offset, Bytes: t.Bytes})
	}
	return keys, nil
}

// bringTensors fills the cache with some tensors that it lacks: from the model's
// files where they are here, else with just these bytes from the peers that have them.
func (s *Scheduler) bringTensors(ctx context.Context, m *modelView, keys []tensorcache.Key, progress func(done, total int64)) error {
	byFile := map[string][]tensorcache.Key{}
	var files []string
	done, total := int64(0), int64(0)
	for _, k := range keys {
		total += k.Bytes
		if byFile[k.File] == nil {
			files = append(files, k.File)
		}
		byFile[k.File] = append(byFile[k.File], k)
	}
	for _, file := range files {
		root, err := cid.Decode(file)
		if err != nil {
			return err
		}
		for tries := 1; ; tries++ {
			err := s.bringFrom(ctx, m, root, byFile[file], func(n int64) { progress(min(total, done+n), total) })
			if err == nil {
				break
			}
			// Whoever pulled the whole file meanwhile has moved it.
			if why := ReasonOf(err); tries == maxBrings || why != FileChanged && why != NotFound {
				return err
			}
		}
		for _, k := range byFile[file] {
			done += k.Bytes
		}
		s.dropRanges(root)
	}
	return nil
}

// maxBrings is how often the tensors of one file are tried to be brought.
const maxBrings = 3

// bringFrom brings tensors of one file here, and fills the cache with them.
func (s *Scheduler) bringFrom(ctx context.Context, m *modelView, root cid.Cid, keys []tensorcache.Key, progress func(done int64)) error {
	if err := s.pullTensors(ctx, m, root, keys, progress); err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.fill(ctx, root, k); err != nil {
			return err
		}
	}
	return nil
}

// dropRanges deletes what was pulled of a file for its tensors alone: the cache has
// them now. Of cid.Undef it deletes what was pulled so of any.
func (s *Scheduler) dropRanges(root cid.Cid) {
	partials, err := s.Content.Partials()
	for _, p := range partials {
		if p.Sparse && !p.Running && (p.CID.Equals(root) || !root.Defined() && !s.pulls.runs(p.CID.String())) {
			err = errors.Join(err, s.Content.RemovePartial(p.CID))
		}
	}
	if err != nil {
		s.log.Warn("what tensors were taken from is not deleted", "cid", root, "error", err)
	}
}

// pullTensors pulls the ranges that tensors lie in, where the file is not here.
func (s *Scheduler) pullTensors(ctx context.Context, m *modelView, root cid.Cid, keys []tensorcache.Key, progress func(int64)) error {
	if here, err := s.Content.Get(root); err == nil && here.Complete {
		return nil
	}
	size := int64(-1)
	if root.String() == m.CID {
		size = m.Bytes
	}
	var ranges []content.ByteRange
	for _, k := range keys {
		ranges = append(ranges, content.ByteRange{From: k.Offset, To: k.Offset + k.Bytes})
	}
	v, _ := s.latest()
	s.reachHolders(ctx, v, m)
	getter, leave := s.pulls.session(s.Mesh, root)
	defer leave()
	return s.Content.PullRanges(ctx, content.PullOptions{
		Root: root, Bytes: size, Name: m.Name, Swarm: &swarm{BlockGetter: getter, s: s, cid: m.CID},
		Progress: func(p content.Progress) {
			if p.Phase == content.PhaseFetch {
				progress(p.Done)
			}
		},
	}, ranges)
}

// fill puts one tensor, whose bytes are here, into the cache.
func (s *Scheduler) fill(ctx context.Context, root cid.Cid, k tensorcache.Key) error {
	in, n, err := s.Content.OpenRange(ctx, root, k.Offset, k.Offset+k.Bytes, false)
	if err != nil {
		return err
	}
	defer in.Close()
	if n != k.Bytes {
		return Errorf(FileChanged, "a tensor of its layers is not here whole")
	}
	return s.Tensors.Fill(ctx, k, in)
}
