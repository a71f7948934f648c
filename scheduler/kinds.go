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
	"relay/scheduler/setback"
	"relay/scheduler/ways"
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
	// KindMeasured: one per (peer, model), by the peer; the payload is a Measured.
	KindMeasured = "measured"
	// KindShare: one per (peer, model), by the peer; the payload is a Share.
	KindShare = "share"
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
	// Pinned: relay deletes no copy of it to make room, and keeps one replica loaded.
	Pinned bool `cbor:"16,keyasint,omitempty"`
	// Shape is what a replica takes, piece by piece; Need is its sum on a CPU. Models
	// that were added by older peers have none, and run on CPUs only.
	Shape *ways.Shape `cbor:"17,keyasint,omitempty"`
	// Min and Max are the replicas that were asked for, 0 where nothing was said.
	Min int `cbor:"18,keyasint,omitempty"`
	Max int `cbor:"19,keyasint,omitempty"`
	// Only is the id of the one peer that it may run on, or empty.
	Only string `cbor:"20,keyasint,omitempty"`
	// IdleUnload is after how many seconds without a request a replica is unloaded; 0
	// is never.
	IdleUnload int64 `cbor:"21,keyasint,omitempty"`
	// Env is for the engine's environment, NAME=VALUE, each from the allow-list.
	Env []string `cbor:"22,keyasint,omitempty"`
	// Aliases are further names of it. One that is a name too, or an alias of another
	// model as well, may mean that one: see view.nameAliases.
	Aliases []string `cbor:"23,keyasint,omitempty"`
	// Fallback is the uid of the model that may answer in its stead, or empty.
	Fallback string `cbor:"24,keyasint,omitempty"`
	// Can is what the headers of its files let it do; nil where nobody has looked, as
	// with models that were added by older peers.
	Can *Can `cbor:"25,keyasint,omitempty"`
}

// Can is what a model can, by the headers of its files.
type Can struct {
	// Tools: its chat template has a place for tools. The engine leaves them out of the
	// prompt of a model whose template has none.
	Tools bool `cbor:"1,keyasint,omitempty" json:"tools"`
	// Images and Audio are what its projector reads.
	Images bool `cbor:"2,keyasint,omitempty" json:"images"`
	Audio  bool `cbor:"3,keyasint,omitempty" json:"audio"`
}

// shape is what a replica takes.
func (m Model) shape() ways.Shape {
	if m.Shape == nil {
		return ways.Shape{Host: m.Need}
	}
	return *m.Shape
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

// servedAs says whether a replica of one is a replica of the other: where and how
// many there are to be, and what it is called, make no difference to it.
func (m Model) servedAs(o Model) bool {
	m.Pinned, m.Min, m.Max, m.Only, m.IdleUnload = o.Pinned, o.Min, o.Max, o.Only, o.IdleUnload
	m.Aliases, m.Fallback, m.Can = o.Aliases, o.Fallback, o.Can
	return reflect.DeepEqual(m, o)
}

// kept says that its replicas are not unloaded, neither for others nor because
// nobody asks.
func (m Model) kept() bool { return m.Pinned || m.Min > 0 }

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
	// CoresLent are the cores that models may keep busy.
	CoresLent int `cbor:"13,keyasint,omitempty"`
	// FetchRate is what the last pull got, in bytes a second; 0 before the first.
	FetchRate float64 `cbor:"14,keyasint,omitempty"`
	// Paused says why its owner has it lend nothing for now.
	Paused string `cbor:"15,keyasint,omitempty"`
	// RTT is how long it takes to others and back, in microseconds by peer id; who is
	// not in it is nearer than that matters, or was not measured.
	RTT map[string]uint64 `cbor:"16,keyasint,omitempty"`
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
	// Unified: it has no memory of its own and computes in the host's. Unusable says
	// why nothing can be placed on a GPU that is there.
	Unified  bool   `cbor:"13,keyasint,omitempty" json:"unified,omitempty"`
	Unusable string `cbor:"14,keyasint,omitempty" json:"unusable,omitempty"`
	// Foreign is what programs that are not relay's hold of a GPU's memory; unless
	// ForeignKnown it is what they held before one of relay's was being started there,
	// or 0. It stays on its machine: others are told Busy.
	Foreign      uint64 `cbor:"-" json:"foreign"`
	ForeignKnown bool   `cbor:"-" json:"foreign_known"`
	// UUID is the maker's own id of a GPU, which stays on its machine too.
	UUID string `cbor:"-" json:"uuid,omitempty"`

	own uint64 // What this peer's engines had reserved of it when Free was looked at.
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
	// Reason is of the states failed and refused, Message says in words why it is in
	// its state where that does not go without saying.
	Reason  string `cbor:"2,keyasint,omitempty"`
	Message string `cbor:"3,keyasint,omitempty"`
	// Device is where the model computes.
	Device string `cbor:"4,keyasint,omitempty"`
	// Epoch and Rank are the fence that was obeyed.
	Epoch uint64 `cbor:"5,keyasint"`
	Rank  uint64 `cbor:"6,keyasint"`
	// LoadMS is how long it took from the start to the first token.
	LoadMS int64 `cbor:"7,keyasint,omitempty"`
	// Way is how it runs, and Parts what is reserved for it.
	Way   string      `cbor:"8,keyasint,omitempty"`
	Parts []ways.Part `cbor:"9,keyasint,omitempty"`
	// Stage is what it is at while it loads, with Done of Total bytes of a fetch.
	Stage string `cbor:"10,keyasint,omitempty"`
	Done  int64  `cbor:"11,keyasint,omitempty"`
	Total int64  `cbor:"12,keyasint,omitempty"`
	// Load is pressed where requests have waited for a minute, quiet where there was
	// none for ten.
	Load string `cbor:"13,keyasint,omitempty"`
	// Restart is the number of the last restart that it has been through.
	Restart uint64 `cbor:"14,keyasint,omitempty"`
	// Tried is another way that was ordered and did not work out: it goes on as it is.
	Tried *Tried `cbor:"15,keyasint,omitempty"`
	// CPUExperts is as in a way.
	CPUExperts int `cbor:"16,keyasint,omitempty"`
	// Group is the formation of which this replica is the coordinator; empty where it
	// runs whole on its peer.
	Group string `cbor:"17,keyasint,omitempty"`
	// Lost is the id of the worker whose fault it was that it failed; empty where it was
	// nobody's.
	Lost string `cbor:"18,keyasint,omitempty"`
	// Served says of one that failed that it had served requests since it failed last.
	Served bool `cbor:"19,keyasint,omitempty"`
	// Engine tells the engines apart that the peer has started in this life, one for each;
	// it is 0 where none serves, and on peers of older releases.
	Engine uint64 `cbor:"20,keyasint,omitempty"`
}

// Share is the payload of a worker's answer to a placement that has it take layers of
// a model that another peer coordinates.
type Share struct {
	// State is loading, ready, draining, failed or refused.
	State string `cbor:"1,keyasint"`
	// Reason and Message are as in a Replica.
	Reason  string `cbor:"2,keyasint,omitempty"`
	Message string `cbor:"3,keyasint,omitempty"`
	// Group is the formation that it belongs to.
	Group string `cbor:"4,keyasint"`
	// Epoch and Rank are the fence that was obeyed.
	Epoch uint64 `cbor:"5,keyasint"`
	Rank  uint64 `cbor:"6,keyasint"`
	// From is its first layer, Parts what is reserved for it.
	From  int         `cbor:"7,keyasint,omitempty"`
	Parts []ways.Part `cbor:"8,keyasint,omitempty"`
	// Stage is what it is at while it loads, with Done of Total bytes of a fetch.
	Stage string `cbor:"9,keyasint,omitempty"`
	Done  int64  `cbor:"10,keyasint,omitempty"`
	Total int64  `cbor:"11,keyasint,omitempty"`
}

// Tried is a way that a replica which serves was to change to, and could not.
type Tried struct {
	Way string `cbor:"1,keyasint"`
	// Order is the version of the order.
	Order  string `cbor:"2,keyasint"`
	Reason string `cbor:"3,keyasint"`
	Text   string `cbor:"4,keyasint"`
}

// The stages of a replica that loads, and the loads of one that is ready.
const (
	StageFetching = "fetching"
	StageStarting = "starting"
	// StageGathering: a coordinator waits for its workers.
	StageGathering = "gathering"
	LoadPressed    = "pressed"
	LoadQuiet      = "quiet"
)

// Measured is the payload of what the engine on one peer took and did when it last
// served a model, each way once. It outlives the replica.
type Measured struct {
	// Served is of what was served: figures of another definition say nothing.
	Served string      `cbor:"1,keyasint"`
	Seen   []ways.Seen `cbor:"2,keyasint,omitempty"`
}

// Placement is the payload of a leader's order, and its claim to lead.
type Placement struct {
	// Peers are to run one replica each, whole or as the coordinator of a group.
	Peers []string `cbor:"1,keyasint,omitempty"`
	// Text says why, in one sentence.
	Text string `cbor:"2,keyasint"`
	// Reason is why there is no replica, where there is none.
	Reason string `cbor:"3,keyasint,omitempty"`
	// Was are the peers that it ran on last, where Peers is empty.
	Was []string `cbor:"4,keyasint,omitempty"`
	// Ways are how it runs on each of Peers; older peers write and read none, and run
	// it on the CPU.
	Ways []ways.Way `cbor:"5,keyasint,omitempty"`
	// Evict: idle models may be unloaded for it.
	Evict bool `cbor:"6,keyasint,omitempty"`
	// Asleep: it is unloaded until somebody asks for it.
	Asleep bool `cbor:"7,keyasint,omitempty"`
	// Final: nothing but a person changes that it runs nowhere.
	Final bool `cbor:"8,keyasint,omitempty"`
	// Later: it is placed once what runs now has ended, or a device is not busy any
	// more.
	Later bool `cbor:"14,keyasint,omitempty"`
	// Extra are the replicas that load has brought about.
	Extra int `cbor:"9,keyasint,omitempty"`
	// Parked are the peers on which it is not tried any more.
	Parked []setback.Parked `cbor:"10,keyasint,omitempty"`
	// Restart is the number of the last restart that was asked for, Turn the peer that
	// is to do it now.
	Restart uint64 `cbor:"11,keyasint,omitempty"`
	Turn    string `cbor:"12,keyasint,omitempty"`
	// Served is of what is to be served: what failed under another definition is tried
	// again.
	Served string `cbor:"13,keyasint,omitempty"`
	// Spread: somebody wants it to run over several peers, even where one holds it.
	Spread bool `cbor:"15,keyasint,omitempty"`
}

// wayFrom is how a peer is to run it that runs it one way: older leaders say nothing
// of ways, and mean no change.
func (p Placement) wayFrom(now ways.Way, peer string, m Model) ways.Way {
	if len(p.Ways) == 0 {
		return now
	}
	return p.way(peer, m)
}

// way is how a peer is to run it.
func (p Placement) way(peer string, m Model) ways.Way {
	if i := slices.Index(p.Peers, peer); i >= 0 && i < len(p.Ways) {
		return p.Ways[i]
	}
	return ways.Way{Kind: ways.CPU, Parts: []ways.Part{{Device: ways.HostID, Bytes: m.shape().CPU()}}}
}

const (
	maxModelName = 128
	maxAliases   = 16
	maxSentence  = 2048
	maxListed    = 64
	maxWays      = 8
	// maxIdleUnload is a year, in seconds.
	maxIdleUnload = 365 * 24 * 60 * 60
	// maxModelBytes bounds a content of a model, so that sums can be counted.
	maxModelBytes = 1 << 50
	// maxTurns is more round trips to a worker than any token takes.
	maxTurns = 64
	// maxRTT is an hour, in microseconds.
	maxRTT = 3600 * 1000 * 1000
)

// Kinds are the record kinds of this package, for registration. checkArgs and
// checkEnv are the allow-lists of the engine's arguments and environment.
func Kinds(checkArgs, checkEnv func([]string) error) []record.Kind {
	return []record.Kind{
		{Name: KindModel, Rule: record.Shared, Final: true, Check: checked(checkUID, func(m Model) error { return m.check(checkArgs, checkEnv) })},
		{Name: KindAdvert, Rule: record.Owned, Owner: record.OwnerIsID, Check: checked(anyID, Advert.check)},
		{Name: KindHolding, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checked(anyID, Holding.check)},
		{Name: KindReplica, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checked(checkPairUID, Replica.check)},
		{Name: KindPlacement, Rule: record.Placement, Check: checked(checkUID, Placement.check)},
		{Name: KindMeasured, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checked(checkPairUID, Measured.check)},
		{Name: KindShare, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checked(checkPairUID, Share.check)},
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

func (m Model) check(checkArgs, checkEnv func([]string) error) error {
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
	if m.Shape != nil {
		if err := m.Shape.Check(); err != nil {
			return fmt.Errorf("%w: %w", errForm, err)
		}
	}
	if m.Min < 0 || m.Max < 0 || m.Min > maxListed || m.Max > maxListed || m.IdleUnload < 0 || m.IdleUnload > maxIdleUnload || len(m.Env) > maxListed {
		return fmt.Errorf("%w: a field is out of range", errForm)
	}
	if m.Only != "" {
		if _, err := peer.Decode(m.Only); err != nil {
			return fmt.Errorf("%w: a model that is to run on what is no peer", errForm)
		}
	}
	if err := checkAliases(m.Aliases); err != nil {
		return err
	}
	if m.Fallback != "" {
		if err := checkUID(m.Fallback); err != nil {
			return err
		}
	}
	return errors.Join(checkArgs(m.Args), checkEnv(m.Env))
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
	if len(a.Devices) > maxListed || len(a.NoEngine) > maxSentence || len(a.Paused) > maxSentence {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	if !possibleRate(a.FetchRate) {
		return fmt.Errorf("%w: a rate that is not possible", errForm)
	}
	if len(a.RTT) > maxListed {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	for id, micros := range a.RTT {
		if len(id) > maxModelName || micros > maxRTT {
			return fmt.Errorf("%w: a way to another peer that is not possible", errForm)
		}
	}
	ids := map[string]bool{}
	for _, d := range a.Devices {
		if ids[d.ID] {
			return fmt.Errorf("%w: a device that is there twice", errForm)
		}
		ids[d.ID] = true
		if len(d.ID) > membership.MaxNameLength || len(d.Name) > maxModelName || len(d.Busy) > maxSentence || len(d.Unusable) > maxSentence {
			return fmt.Errorf("%w: a field is too long", errForm)
		}
		if !possibleRate(d.Decode) || !possibleRate(d.Prefill) {
			return fmt.Errorf("%w: a rate that is not possible", errForm)
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
	if len(r.Message) > maxSentence || len(r.Reason) > maxModelName || len(r.Device) > maxModelName ||
		len(r.Way) > maxModelName || len(r.Stage) > maxModelName || len(r.Load) > maxModelName || len(r.Group) > maxModelName || len(r.Lost) > maxModelName || r.CPUExperts < 0 {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	if r.Done < 0 || r.Total < 0 || r.Done > maxModelBytes || r.Total > maxModelBytes {
		return fmt.Errorf("%w: a fetch of no possible size", errForm)
	}
	if t := r.Tried; t != nil && (len(t.Way) > maxModelName || len(t.Order) > maxModelName || len(t.Reason) > maxModelName || len(t.Text) > maxSentence) {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	return checkParts(r.Parts)
}

func (s Share) check() error {
	switch s.State {
	case StateLoading, StateReady, StateDraining, StateFailed, StateRefused:
	default:
		return fmt.Errorf("%w: unknown state of a share", errForm)
	}
	if len(s.Message) > maxSentence || len(s.Reason) > maxModelName || len(s.Stage) > maxModelName || len(s.Group) > maxModelName {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	if s.Done < 0 || s.Total < 0 || s.Done > maxModelBytes || s.Total > maxModelBytes || s.From < 0 {
		return fmt.Errorf("%w: a field is out of range", errForm)
	}
	return checkParts(s.Parts)
}

// possibleRate says whether a number can be a speed: it comes from another machine.
func possibleRate(x float64) bool { return x >= 0 && x < 1e18 }

func checkParts(parts []ways.Part) error {
	if len(parts) > maxListed {
		return fmt.Errorf("%w: more devices than a machine has", errForm)
	}
	for _, p := range parts {
		if len(p.Device) > membership.MaxNameLength || p.Layers < 0 || p.Bytes > maxModelBytes {
			return fmt.Errorf("%w: a part that is not possible", errForm)
		}
	}
	return nil
}

func checkWay(w ways.Way) error {
	if len(w.Kind) > maxModelName || w.CPUExperts < 0 || !possibleRate(w.Decode) || !possibleRate(w.Prefill) {
		return fmt.Errorf("%w: a way that is not possible", errForm)
	}
	if err := checkGroup(w.Group); err != nil {
		return err
	}
	return checkParts(w.Parts)
}

func checkGroup(g *ways.Group) error {
	if g == nil {
		return nil
	}
	if g.ID == "" || len(g.ID) > maxModelName || len(g.Shares) == 0 || len(g.Shares) > maxListed {
		return fmt.Errorf("%w: a group that is none", errForm)
	}
	seen := map[string]bool{}
	for _, s := range g.Shares {
		if _, err := peer.Decode(s.Peer); err != nil || seen[s.Peer] || s.From < 0 {
			return fmt.Errorf("%w: a share of what is no peer, or twice of one", errForm)
		}
		seen[s.Peer] = true
		if err := checkParts(s.Parts); err != nil {
			return err
		}
	}
	return nil
}

func (m Measured) check() error {
	if len(m.Served) > maxModelName || len(m.Seen) > maxWays {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	for _, s := range m.Seen {
		if err := checkWay(ways.Way{Kind: s.Kind, Parts: s.Parts, CPUExperts: s.CPUExperts, Decode: s.Decode, Prefill: s.Prefill, Group: s.Group}); err != nil {
			return err
		}
		if s.Turns < 0 || s.Turns > maxTurns {
			return fmt.Errorf("%w: a rate that is not possible", errForm)
		}
	}
	return nil
}

func (p Placement) check() error {
	if len(p.Peers) > maxListed || len(p.Was) > maxListed || len(p.Text) > maxSentence || len(p.Reason) > maxModelName {
		return fmt.Errorf("%w: a field is too long", errForm)
	}
	if len(p.Ways) > len(p.Peers) || len(p.Parked) > maxListed || p.Extra < 0 || p.Extra > maxListed || len(p.Turn) > maxModelName || len(p.Served) > maxModelName {
		return fmt.Errorf("%w: a field is out of range", errForm)
	}
	for _, id := range slices.Concat(p.Peers, p.Was) {
		if _, err := peer.Decode(id); err != nil {
			return fmt.Errorf("%w: a placement on what is no peer", errForm)
		}
	}
	for i, w := range p.Ways {
		if err := checkWay(w); err != nil {
			return err
		}
		if (w.Group != nil) != (w.Kind == ways.Shards) {
			return fmt.Errorf("%w: a way over several peers without them, or another one with", errForm)
		}
		if _, works := w.Group.Share(p.Peers[i]); works || slices.Contains(p.Peers[:i], p.Peers[i]) {
			return fmt.Errorf("%w: a peer that is placed on twice", errForm)
		}
	}
	for _, k := range p.Parked {
		if _, err := peer.Decode(k.Peer); err != nil || len(k.Text) > maxSentence || len(k.Reason) > maxModelName || len(k.Build) > maxModelName {
			return fmt.Errorf("%w: a peer that is parked and none, or a field that is too long", errForm)
		}
	}
	return nil
}
