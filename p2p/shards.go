package p2p

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

const (
	// maxShardCall bounds the first message on a shard stream, and maxShardName
	// each name in it, in bytes.
	maxShardCall = 1 << 10
	maxShardName = 64
	// shardCallPatience is how long that message may take to come, and
	// shardPatience how long it may take to decide about it.
	shardCallPatience = 5 * time.Second
	shardPatience     = 10 * time.Second
	// shardsPerPeer and shardsInAll bound the shard streams that stand at a time: an
	// engine keeps one connection to a worker and opens a second one for moments,
	// and a machine takes part in a few groups.
	shardsPerPeer = 32
	shardsInAll   = 128
	// undecidedPerPeer and undecidedInAll bound those beside them that are not decided
	// about yet: who says nothing takes no room from who has a part in a model.
	undecidedPerPeer = 4
	undecidedInAll   = 64
	// refusalPatience is how long the other side may take to take a refusal.
	refusalPatience = time.Second
)

// What a worker says of a shard stream, in one byte; its sentence follows where
// it does not let the stream stand.
const (
	shardOpen    byte = 1
	shardStale   byte = 2
	shardRefused byte = 3
)

// ShardCall says which placement a coordinator asks a worker under: the first
// message on a shard stream.
type ShardCall struct {
	// UID is the model's, 64 bytes at most.
	UID string `cbor:"1,keyasint"`
	// Group names the formation of peers that runs it, 64 bytes at most.
	Group string `cbor:"2,keyasint"`
	// Epoch and Rank are the fence that the placement was made under.
	Epoch uint64 `cbor:"3,keyasint"`
	Rank  uint64 `cbor:"4,keyasint,omitempty"`
}

func (c ShardCall) check() error {
	for _, name := range []string{c.UID, c.Group} {
		if name == "" || len(name) > maxShardName {
			return fmt.Errorf("a shard stream names its model and its group in 1 to %d bytes each", maxShardName)
		}
	}
	return nil
}

// readShardCall takes the first message on a shard stream.
func readShardCall(r io.Reader) (c ShardCall, err error) {
	data, err := readBytes(r, maxShardCall)
	if err != nil {
		return c, err
	}
	if err := record.Unmarshal(data, &c); err != nil {
		return c, err
	}
	return c, c.check()
}

// writeShardAnswer says no to a shard stream, and why.
func writeShardAnswer(w io.Writer, answer byte, why string) error {
	_, err := w.Write(append([]byte{answer}, why[:min(len(why), maxSentence)]...))
	return err
}

// readShardAnswer takes what a worker says of a shard stream. It reads no further
// than that where the stream stands.
func readShardAnswer(r io.Reader) error {
	var answer [1]byte
	if _, err := io.ReadFull(r, answer[:]); err != nil {
		return err
	}
	var no error
	switch answer[0] {
	case shardOpen:
		return nil
	case shardStale:
		no = ErrShardStale
	case shardRefused:
		no = ErrShardRefused
	default:
		return fmt.Errorf("%w: %d, of a shard stream", ErrBadAnswer, answer[0])
	}
	text, _ := io.ReadAll(io.LimitReader(r, maxSentence))
	if said := printable(strings.ToValidUTF8(string(text), "")); said != "" {
		return fmt.Errorf("%w: %s", no, said)
	}
	return no
}

// shardConn is what a shard stream goes by: a stream of a link, or a connection of
// its own.
type shardConn interface {
	net.Conn
	// CloseWrite says that nothing more is sent.
	CloseWrite() error
	// Reset ends both directions at once.
	Reset() error
}

// streamConn is a stream as a connection.
type streamConn struct{ network.Stream }

func (c streamConn) LocalAddr() net.Addr  { return streamAddr(c.Stream.Conn().LocalPeer()) }
func (c streamConn) RemoteAddr() net.Addr { return streamAddr(c.Stream.Conn().RemotePeer()) }

// streamAddr is a peer as an address.
type streamAddr peer.ID

func (streamAddr) Network() string  { return "libp2p" }
func (a streamAddr) String() string { return peer.ID(a).String() }
