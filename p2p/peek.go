package p2p

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// ioStream is what the multiplexer of protocols reads from and writes to.
type ioStream = io.ReadWriteCloser

const (
	// maxToken bounds one line of the negotiation.
	maxToken = 1024
	// peekPatience is how long a peer may take to say which protocol it wants.
	peekPatience = 2 * time.Second
)

var errNegotiation = errors.New("not a negotiation of protocols")

// peekProtocol reads which protocol a peer proposes first, and gives back a
// stream from which the same bytes can be read again. Peers send the header and
// the first proposal together, before they read anything.
func peekProtocol(s network.Stream) (protocol.ID, network.Stream, error) {
	if err := s.SetReadDeadline(time.Now().Add(peekPatience)); err != nil {
		return "", nil, err
	}
	var read bytes.Buffer
	r := &oneByteReader{r: io.TeeReader(s, &read)}
	header, err := readToken(r)
	if err != nil {
		return "", nil, err
	}
	if header != "/multistream/1.0.0" {
		return "", nil, errNegotiation
	}
	proposal, err := readToken(r)
	if err != nil {
		return "", nil, err
	}
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		return "", nil, err
	}
	return protocol.ID(proposal), &replayed{Stream: s, head: &read}, nil
}

// readToken reads one line of the negotiation: its length as a varint, and text
// that ends in a newline.
func readToken(r *oneByteReader) (string, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return "", err
	}
	if n == 0 || n > maxToken {
		return "", errNegotiation
	}
	line := make([]byte, n)
	if _, err := io.ReadFull(r.r, line); err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(string(line), "\n")
	if !ok {
		return "", errNegotiation
	}
	return text, nil
}

// oneByteReader reads no byte more than it is asked for.
type oneByteReader struct{ r io.Reader }

func (o *oneByteReader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(o.r, b[:])
	return b[0], err
}

// replayed is a stream whose first bytes were read already.
type replayed struct {
	network.Stream
	head *bytes.Buffer
}

func (r *replayed) Read(p []byte) (int, error) {
	if r.head.Len() > 0 {
		return r.head.Read(p)
	}
	return r.Stream.Read(p)
}
