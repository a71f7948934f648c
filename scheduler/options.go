package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/ipfs/boxo/exchange"
	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/llama/tensorcache"
	"relay/p2p"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler/ways"
	"relay/store"
	"relay/store/content"
)

// Mesh is what the scheduler needs of the mesh; *p2p.Node is one.
type Mesh interface {
	Self() peer.ID
	Roster() *membership.Roster
	Peers() []p2p.Peer
	NameOf(peer.ID) string
	StatesChanged() <-chan struct{}
	// Surveyed says that every member was reached and compared with, or could
	// not be reached, since the start.
	Surveyed() bool
	Table() *record.Table
	PutOwned(kind, id string, payload any) error
	PutShared(kind, id string, payload any) error
	PutPlacement(id string, version record.Version, payload any) error
	HTTP(peer.ID) http.RoundTripper
	Control(peer.ID) http.RoundTripper
	Fetch(ctx context.Context) exchange.Fetcher
	// Have and Range ask a member for what it has of a file.
	Have(ctx context.Context, id peer.ID, root cid.Cid) (have []byte, whole bool, err error)
	Range(ctx context.Context, id peer.ID, root cid.Cid, from, to int64, check bool) (io.ReadCloser, error)
	// Reach connects to a member to which there is no link.
	Reach(ctx context.Context, id peer.ID) error
	// OpenShard opens a connection to a worker's rpc-server, under a placement.
	OpenShard(ctx context.Context, to peer.ID, call p2p.ShardCall) (net.Conn, error)
}

// Content is what the scheduler needs of the files on this machine.
type Content interface {
	// Hash reads files and changes nothing; AddHashed registers them.
	Hash(ctx context.Context, paths []string, progress func(content.Progress)) (content.Hashes, error)
	AddHashed(content.Hashes) (content.Content, error)
	Pull(ctx context.Context, o content.PullOptions) (content.Content, error)
	// PullRanges brings some bytes of a file here, which stay an unfinished pull, and
	// OpenRange reads what is here of one.
	PullRanges(ctx context.Context, o content.PullOptions, ranges []content.ByteRange) error
	OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (io.ReadCloser, int64, error)
	List() []content.Content
	Get(c cid.Cid) (content.Content, error)
	Path(c cid.Cid) (string, error)
	Remove(c cid.Cid, deleteFiles bool) (content.Removed, error)
	// RemovePulled removes only what was pulled, and leaves its owner's copies.
	RemovePulled(c cid.Cid) (content.Removed, error)
	// Touch notes that a content is used now.
	Touch(c cid.Cid) error
	// Partials are the unfinished pulls.
	Partials() ([]content.Partial, error)
	RemovePartial(c cid.Cid) error
}

// Engine starts processes of the one build of the engine on this machine.
type Engine interface {
	Build() Build
	// Devices looks at what the engine can compute in, host memory last. own is what
	// this peer's engines take of it; with list the engine itself is asked again, which
	// costs more. It is not called twice at a time.
	Devices(ctx context.Context, own Own, list bool) ([]Device, error)
	// Start returns once the engine has given one real token; ctx bounds that.
	Start(ctx context.Context, l Launch) (Process, error)
	// StartShare starts an rpc-server, which computes layers for another peer's engine,
	// and returns once it answers; ctx bounds that.
	StartShare(ctx context.Context, l ShareLaunch) (ShareProcess, error)
}

// ShareLaunch says which rpc-server to start.
type ShareLaunch struct {
	UID string
	// Parts are where it is to compute, and Threads with how many threads on the CPU.
	Parts   []ways.Part
	Threads int
	// Tensors is the folder of the tensors that it may read by their hash; "" for none.
	Tensors string
	// Env is the model's.
	Env     []string
	Started func(pid int)
}

// ShareProcess is an rpc-server.
type ShareProcess interface {
	// Dial connects to it. It serves one connection after another.
	Dial(ctx context.Context) (net.Conn, error)
	PID() int
	Usage() (Usage, error)
	// Worked is how much of the processors it has taken.
	Worked() (time.Duration, error)
	Done() <-chan struct{}
	// Err says why the process ended; nil while it runs.
	Err() error
	// Stop ends the process and returns when it is gone.
	Stop(ctx context.Context) error
}

// Own is what this peer's own engines take: their processes, bytes by device, and
// how many of them use a device.
type Own struct {
	PIDs    []int
	Bytes   map[string]uint64
	Engines map[string]int
}

// Launch says which process to start.
type Launch struct {
	UID string
	// Nth tells two processes of one model apart, while one takes the place of the
	// other: 0 or 1.
	Nth   int
	Model Model
	// Way is where it is to compute, and Threads with how many threads on the CPU.
	Way     ways.Way
	Threads int
	// Started is told its process as soon as there is one, long before it serves.
	Started func(pid int)
	// Path is the model's file; of a split one, the first part, and Files are the
	// others.
	Path  string
	Files []string
	// Projector is the file by which it reads images; "" where it has none.
	Projector string
	// Connected is given each connection that the engine opens to the worker of a share
	// of the way's group, by the share's place, and owns it. ctx is cancelled when the
	// engine is gone, which then waits for the call to return.
	Connected func(ctx context.Context, share int, c net.Conn)
}

// instance names a process of this peer.
func (l Launch) instance() string {
	if l.Nth == 0 {
		return l.UID
	}
	return l.UID + "-" + strconv.Itoa(l.Nth)
}

// Usage is the host memory of a process in bytes: what is resident, mapped files
// included, and the part that nobody else could have while it lives.
type Usage struct{ RSS, Private uint64 }

// Timings are an engine's counters since its start: prompt tokens that were read,
// tokens that were written, and the time for each.
type Timings struct {
	Prompt, Tokens        uint64
	PromptTime, TokenTime time.Duration
}

// Process is one engine that serves one model.
type Process interface {
	// Client reaches the engine's socket.
	Client() http.RoundTripper
	// Device is where the engine says that it computes.
	Device() string
	// PID is its process, 0 where there is none.
	PID() int
	// Used is the memory that it says it has reserved, in bytes by device; empty
	// where it does not say.
	Used() map[string]uint64
	Usage() (Usage, error)
	// Check has it produce one token; the error says that none came in time.
	Check(ctx context.Context) error
	// Alive asks whether the process answers anything; it does at once, also while it
	// computes. Worked is how much of the processors it has taken.
	Alive(ctx context.Context) error
	Worked() (time.Duration, error)
	// Timings fails where the engine does not tell them.
	Timings(ctx context.Context) (Timings, error)
	Done() <-chan struct{}
	// Err says why the process ended; nil while it runs.
	Err() error
	// Stop ends the process and returns when it is gone.
	Stop(ctx context.Context) error
}

// Header is what the header of a GGUF file says, with what a replica needs.
type Header struct {
	Name, Arch   string
	Kind         string
	Parameters   uint64
	Layers       int
	TrainContext int
	// Parts are the paths of all parts of a split model, in order; nil where it is
	// one file. Projector: it is one, and no model.
	Parts     []string
	Projector bool
	// Can is what the file lets a model do.
	Can Can
	// Pools: it says how one vector is made of a text's.
	Pools bool
	// Shape is what a replica takes that serves so, by kind, context, slots and
	// arguments of the engine.
	Shape func(m Model) (ways.Shape, error)
	// Tensors are all tensors of its files.
	Tensors func() ([]Tensor, error)
}

// Tensor is where one tensor of a model lies.
type Tensor struct {
	// Layer is counted from 0; -1 is before the layers, their number behind them.
	Layer int
	// Part is the file of a split model, by its place.
	Part int
	// Offset and Bytes are where it lies in that file.
	Offset, Bytes int64
}

// Tensors keeps tensors of models for rpc-servers; *tensorcache.Cache is one.
type Tensors interface {
	Dir() string
	// Bytes is what it takes of the disk.
	Bytes() int64
	Fill(ctx context.Context, k tensorcache.Key, r io.Reader) error
	// Lease keeps tensors from being deleted, those that are missing as soon as they are
	// filled.
	Lease(keys []tensorcache.Key) (release func(), missing []tensorcache.Key)
	// Idle is what no lease holds, in bytes.
	Idle() int64
	// Sweep deletes what no lease holds until at most so many bytes are left.
	Sweep(most int64) (freed int64, err error)
}

// State keeps what a worker must not forget; *store.Space is one.
type State interface {
	Get(key []byte) ([]byte, bool, error)
	Apply(writes []store.Write) error
}

// Lend is what this machine's owner chose to lend.
type Lend struct {
	// None lends nothing; otherwise what is free less Reserve is lent, and of
	// host memory, and of each GPU, no more than Bytes where that is not 0.
	None    bool
	Bytes   uint64
	Reserve uint64
	// VRAMReserve is left free on each GPU, in bytes.
	VRAMReserve uint64
	// BusyIgnore is how much of a GPU's memory other programs may hold, in bytes,
	// before it is left to them; with AutoPause what runs there ends then, and comes
	// back later.
	BusyIgnore uint64
	AutoPause  bool
}

// Options are what a Scheduler is made of. All but Engine and Log are needed.
type Options struct {
	Mesh    Mesh
	Content Content
	State   State
	// Engine is nil where there is none; NoEngine then says why in a sentence.
	Engine   Engine
	NoEngine string
	// ReadHeader reads a GGUF file's header, guarded.
	ReadHeader func(path string) (Header, error)
	// CheckArgs and CheckEnv are the allow-lists of the engine's arguments and of its
	// environment.
	CheckArgs, CheckEnv func([]string) error
	// Memory is this machine's memory in bytes.
	Memory func() (total, available uint64, err error)
	// Disk is the room on the disk for models, in bytes.
	Disk func() (free, total uint64, err error)
	// ModelsDir is the folder on that disk that pulled models lie in, as an absolute
	// path: what was pulled to elsewhere is not deleted to make room there. "" is
	// any folder.
	ModelsDir string
	// DefaultSlots is how many requests a replica serves at a time unless the
	// model says so; 0 means 2.
	DefaultSlots int
	Cores        int
	// CoresLent is how many of them models may keep busy; 0 means half.
	CoresLent int
	Lend      Lend
	// ModelsMax and CacheMax are how much its owner wants models to take on this
	// machine's disk, in bytes; see DiskUse. 0 means as much as there is.
	ModelsMax, CacheMax uint64
	// Tensors keeps what rpc-servers of this machine read by its hash; nil keeps nothing,
	// and weights cross the links.
	Tensors Tensors
	// Coming are the models that this machine brings along into the mesh and that
	// may not be registered there yet.
	Coming []Carried
	Log    *slog.Logger
}

// Validate names the option at fault.
func (o Options) Validate() error {
	for _, missing := range []struct {
		name string
		is   bool
	}{
		{"Mesh", o.Mesh == nil}, {"Content", o.Content == nil}, {"State", o.State == nil}, {"ReadHeader", o.ReadHeader == nil},
		{"CheckArgs", o.CheckArgs == nil}, {"CheckEnv", o.CheckEnv == nil}, {"Memory", o.Memory == nil}, {"Disk", o.Disk == nil},
		{"NoEngine", o.Engine == nil && o.NoEngine == ""},
	} {
		if missing.is {
			return errors.New("scheduler: " + missing.name + " is missing")
		}
	}
	if o.DefaultSlots < 0 || o.DefaultSlots > 64 {
		return errors.New("scheduler: DefaultSlots is not between 0 and 64")
	}
	return nil
}

const (
	// settledAfter is how long a peer is up before it may be elected where
	// others have been up that long.
	settledAfter = 30 * time.Second
	// planEvery is how often everything is looked at although nothing changed.
	planEvery = time.Second
	// drainTime is how long a replica that is to stop may finish requests.
	drainTime = 30 * time.Second
	// stopTime bounds the end of an engine, cutTime that of one which must not
	// serve any more.
	stopTime = 10 * time.Second
	cutTime  = 500 * time.Millisecond
	// moveTime is how long a peer that is drained serves on, longer while another
	// one loads in its stead, while no other is
	// ready in its stead. What it runs then finishes its requests (drainTime).
	moveTime = 2 * time.Minute
)
