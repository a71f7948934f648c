package scheduler

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// The record kinds of this package.
const (
	// KindModel: one per model, by any admin; the payload is a Model.
	KindModel = "model"
	// KindAdvert: one per peer, by itself; the payload is an Advert.
	KindAdvert = "advert"
	// KindHolding: one per (peer, content), by the peer; the payload is a Holding.
	KindHolding = "holding"
	// KindReplica: one per (peer, model), by the peer; the payload is a Replica.
	KindReplica = "replica"
	// KindPlacement: one per model, by its leader; the payload is a Placement.
	KindPlacement = "placement"
)

// Model is the payload of a model record: what its content is, and how to serve it.
type Model struct {
	Name string `cbor:"1,keyasint"`
	// CID is the root of the GGUF file, or of the set of files where it is split;
	// Bytes is the length of all of it.
	CID   string `cbor:"2,keyasint"`
	Bytes int64  `cbor:"3,keyasint"`
	// Kind is chat, embed or rerank.
	Kind string `cbor:"4,keyasint"`
	// Context is the tokens that one slot holds, Slots how many requests one
	// replica serves at a time.
	Context int `cbor:"5,keyasint"`
	Slots   int `cbor:"6,keyasint"`
	// Args are further engine arguments, each from the allow-list.
	Args []string `cbor:"7,keyasint,omitempty"`
	// Need is the memory that one replica takes on a CPU, in bytes: weights,
	// KV cache and buffers, for this context and these slots.
	Need uint64 `cbor:"8,keyasint"`
	// What the header says, for people.
	Arch         string `cbor:"9,keyasint,omitempty"`
	Parameters   uint64 `cbor:"10,keyasint,omitempty"`
	Layers       int    `cbor:"11,keyasint,omitempty"`
	TrainContext int    `cbor:"12,keyasint,omitempty"`
	// Created is in Unix seconds by the clock of the peer that added the model.
	Created int64 `cbor:"13,keyasint,omitempty"`
	// BroughtBy is the peer that brought the model along from another mesh; an
	// admin's machine registered it for that peer.
	BroughtBy string `cbor:"14,keyasint,omitempty"`
	// Projector is the content by which a chat model reads images; most have none.
	Projector Root `cbor:"15,keyasint,omitempty"`
	// Pinned: relay deletes no copy of it to make room.
	Pinned bool `cbor:"16,keyasint,omitempty"`
}

// Root is one content, by its CID and length.
type Root struct {
	CID   string `cbor:"1,keyasint,omitempty"`
	Bytes int64  `cbor:"2,keyasint,omitempty"`
}

// roots are all contents that a replica needs.
func (m Model) roots() []Root {
	list := []Root{{m.CID, m.Bytes}}
	if m.Projector.CID != "" {
		list = append(list, m.Projector)
	}
	return list
}

// size is the length of all contents, in bytes.
func (m Model) size() (n int64) {
	for _, r := range m.roots() {
		n += r.Bytes
	}
	return n
}

// has says whether a content is one of the model's.
func (m Model) has(cid string) bool { return cid != "" && (cid == m.CID || cid == m.Projector.CID) }

// servedAs says whether a replica of one is a replica of the other.
func (m Model) servedAs(o Model) bool {
	m.Pinned = o.Pinned
	return reflect.DeepEqual(m, o)
}

// Advert is the payload of what a peer lends.
type Advert struct {
	// Total and Free are this machine's memory in bytes, Lent what it offers to
	// models in all, and Room what is left of that for new ones.
	Total uint64 `cbor:"1,keyasint"`
	Free  uint64 `cbor:"2,keyasint"`
	Lent  uint64 `cbor:"3,keyasint"`
	Room  uint64 `cbor:"4,keyasint"`
	Cores int    `cbor:"5,keyasint"`
	// Devices are what the engine sees.
	Devices []Device `cbor:"6,keyasint,omitempty"`
	// Engine is the build here; NoEngine says in words why there is none.
	Engine   Build  `cbor:"7,keyasint,omitempty"`
	NoEngine string `cbor:"8,keyasint,omitempty"`
	// Settled: the peer has been up for half a minute.
	Settled bool `cbor:"9,keyasint,omitempty"`
	// Draining: it finishes what it has and takes nothing new.
	Draining bool `cbor:"10,keyasint,omitempty"`
	// DiskFree and DiskTotal are of the folder for models, in bytes.
	DiskFree  uint64 `cbor:"11,keyasint,omitempty"`
	DiskTotal uint64 `cbor:"12,keyasint,omitempty"`
}

// Device is memory that a model can be placed in.
type Device struct {
	ID    string `cbor:"1,keyasint" json:"id"`
	Name  string `cbor:"2,keyasint" json:"name"`
	Kind  string `cbor:"3,keyasint" json:"kind"`
	Total uint64 `cbor:"4,keyasint" json:"total"`
	Free  uint64 `cbor:"5,keyasint" json:"free"`
	// Known says that Total and Free could be learnt.
	Known bool `cbor:"6,keyasint" json:"known"`
	// Lent is what is offered of it in all, Room what is left of that for models, and
	// Evictable what unloading idle ones would add, in bytes.
	Lent      uint64 `cbor:"7,keyasint,omitempty" json:"lent"`
	Room      uint64 `cbor:"8,keyasint,omitempty" json:"room"`
	Evictable uint64 `cbor:"9,keyasint,omitempty" json:"evictable"`
	// Busy says why nothing new goes there for now; empty where it may.
	Busy string `cbor:"10,keyasint,omitempty" json:"busy,omitempty"`
	// Decode and Prefill are the bytes of weights that it works through in a second,
	// learnt from the engine's own timings; 0 until they are known.
	Decode  float64 `cbor:"11,keyasint,omitempty" json:"decode_bps,omitempty"`
	Prefill float64 `cbor:"12,keyasint,omitempty" json:"prefill_bps,omitempty"`
}

// Build is one build of the engine.
type Build struct {
	Version string `cbor:"1,keyasint,omitempty" json:"version,omitempty"`
	Commit  string `cbor:"2,keyasint,omitempty" json:"commit,omitempty"`
	RPC     string `cbor:"3,keyasint,omitempty" json:"rpc,omitempty"`
}

// Holding is the payload of what a peer holds of one content.
type Holding struct {
	Bytes int64 `cbor:"1,keyasint"`
	// Whole: every block is there; where it is neither whole nor gone, it is being
	// pulled, and what is there can be had. Pulled: it came from the mesh and may
	// be deleted by relay; otherwise it is its owner's own file.
	Whole  bool `cbor:"2,keyasint"`
	Pulled bool `cbor:"3,keyasint,omitempty"`
	// Gone says in words why a content that was whole no longer is.
	Gone string `cbor:"4,keyasint,omitempty"`
}

// The states of a replica.
const (
	StateLoading  = "loading"
	StateReady    = "ready"
	StateDraining = "draining"
	StateFailed   = "failed"
	StateRefused  = "refused"
)

// Replica is the payload of a worker's answer to a placement.
type Replica struct {
	State string `cbor:"1,keyasint"`
	// Reason and Message are of the states failed and refused.
	Reason  string `cbor:"2,keyasint,omitempty"`
	Message string `cbor:"3,keyasint,omitempty"`
	// Device is where the model computes.
	Device string `cbor:"4,keyasint,omitempty"`
	// Epoch and Rank are the fence that was obeyed.
	Epoch uint64 `cbor:"5,keyasint"`
	Rank  uint64 `cbor:"6,keyasint"`
	// LoadMS is how long it took from the start to the first token.
	LoadMS int64 `cbor:"7,keyasint,omitempty"`
}

// Placement is the payload of a leader's order, and its claim to lead.
type Placement struct {
	// Peers are to run one whole replica each.
	Peers []string `cbor:"1,keyasint,omitempty"`
	// Text says why, in one sentence.
	Text string `cbor:"2,keyasint"`
	// Reason is why there is no replica, where there is none.
	Reason string `cbor:"3,keyasint,omitempty"`
	// Was are the peers that it ran on last, where Peers is empty.
	Was []string `cbor:"4,keyasint,omitempty"`
}

const (
	maxModelName = 128
	maxSentence  = 2048
	maxListed    = 64
	// maxModelBytes bounds a content of a model, so that sums can be counted.
	maxModelBytes = 1 << 50
)

// Kinds are the record kinds of this package, for registration. checkArgs is
// the allow-list of engine arguments.
func Kinds(checkArgs func([]string) error) []record.Kind {
	return []record.Kind{
		{Name: KindModel, Rule: record.Shared, Check: checked(checkUID, func(m Model) error { return m.check(checkArgs) })},
		{Name: KindAdvert, Rule: record.Owned, Owner: record.OwnerIsID, Check: checked(anyID, Advert.check)},
		{Name: KindHolding, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checked(anyID, Holding.check)},
		{Name: KindReplica, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checked(checkPairUID, Replica.check)},
		{Name: KindPlacement, Rule: record.Placement, Check: checked(checkUID, Placement.check)},
	}
}

// checked makes the check of a kind from those of its ids and of its payloads.
func checked[T any](checkID func(string) error, check func(T) error) func(record.Record) error {
	return func(r record.Record) error {
		if err := checkID(r.ID); err != nil {
			return err
		}
		v, err := decode[T](r)
		if err != nil {
			return err
		}
		return check(v)
	}
}

func decode[T any](r record.Record) (T, error) {
	var v T
	err := record.Unmarshal(r.Payload, &v)
	return v, err
}

// pairID is the id of a record about this peer and one thing.
func pairID(owner, thing string) string { return owner + "/" + thing }

func splitPair(id string) (owner, thing string, ok bool) { return strings.Cut(id, "/") }

// anyID leaves ids to the rule for owners.
func anyID(string) error { return nil }

// uidLength is that of a model's uid, in characters.
const uidLength = 16

// checkUID wants a model's uid as newUID makes them. Uids name keys and folders
// on every machine, so they hold nothing that a path could be made of.
func checkUID(uid string) error {
	if len(uid) != uidLength || strings.ContainsFunc(uid, func(r rune) bool { return (r < 'a' || 'z' < r) && (r < '2' || '7' < r) }) {
		return fmt.Errorf("%w: the uid of a model is %d lower-case letters and digits", errForm, uidLength)
	}
	return nil
}

func checkPairUID(id string) error {
	_, uid, _ := splitPair(id)
	return checkUID(uid)
}

var errForm = errors.New("the record does not have the form of its kind")

func (m Model) check(checkArgs func([]string) error) error {
	if err := CheckModelName(m.Name); err != nil {
		return err
	}
	if _, err := cid.Decode(m.CID); err != nil {
		return fmt.Errorf("%w: a CID that is none", errForm)
	}
	if m.Projector != (Root{}) {
		if _, err := cid.Decode(m.Projector.CID); err != nil || m.Projector.Bytes <= 0 || m.Projector.Bytes > maxModelBytes {
			return fmt.Errorf("%w: a projector without CID, or of no possible size", errForm)
		}
	}
	if m.Bytes <= 0 || m.Bytes > maxModelBytes || m.Context < 1 || m.Slots < 1 || m.Slots > 1024 || len(m.Args) > maxListed || len(m.Arch) > maxModelName {
		return fmt.Errorf("%w: a field is out of range", errForm)
	}
	if m.Kind != "chat" && m.Kind != "embed" && m.Kind != "rerank" {
		return fmt.Errorf("%w: unknown kind of model", errForm)
	}
	if m.BroughtBy != "" {
		if _, err := peer.Decode(m.BroughtBy); err != nil {
			return fmt.Errorf("%w: a model brought along by what is no peer", errForm)
		}
	}
	return checkArgs(m.Args)
}

// CheckModelName says whether a model may be called that: 1 to 128 letters,
// digits and . _ : / -, beginning with a letter or a digit.
func CheckModelName(name string) error {
	ok := name != "" && len(name) <= maxModelName && !strings.ContainsFunc(name, func(r rune) bool {
		return !isAlphanumeric(r) && !strings.ContainsRune("._:/-", r)
	}) && isAlphanumeric(rune(name[0]))
	if !ok {
		return Errorf(InvalidRequest, "a model's name has 1 to %d letters, digits and . _ : / - and begins with a letter or a digit", maxModelName)
	}
	return nil
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func (a Advert) check() error {
	if len(a.Devices) > maxListed || len(a.NoEngine) > maxSentence {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	for _, d := range a.Devices {
		if len(d.ID) > membership.MaxNameLength || len(d.Name) > maxModelName {
			return fmt.Errorf("%w: a field is too long", errForm)
		}
	}
	return nil
}

func (h Holding) check() error {
	if h.Bytes < 0 || h.Bytes > maxModelBytes {
		return fmt.Errorf("%w: a size that is not possible", errForm)
	}
	if len(h.Gone) > maxSentence {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	return nil
}

func (r Replica) check() error {
	switch r.State {
	case StateLoading, StateReady, StateDraining, StateFailed, StateRefused:
	default:
		return fmt.Errorf("%w: unknown state of a replica", errForm)
	}
	if len(r.Message) > maxSentence || len(r.Reason) > maxModelName || len(r.Device) > maxModelName {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	return nil
}

func (p Placement) check() error {
	if len(p.Peers) > maxListed || len(p.Was) > maxListed || len(p.Text) > maxSentence || len(p.Reason) > maxModelName {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	for _, id := range slices.Concat(p.Peers, p.Was) {
		if _, err := peer.Decode(id); err != nil {
			return fmt.Errorf("%w: a placement on what is no peer", errForm)
		}
	}
	return nil
}
