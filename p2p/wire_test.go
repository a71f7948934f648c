package p2p

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// script is a stream that says what it was given, and swallows what it is told.
type script struct {
	network.Stream
	in io.Reader
}

func (s script) Read(p []byte) (int, error)      { return s.in.Read(p) }
func (s script) Write(p []byte) (int, error)     { return len(p), nil }
func (s script) SetReadDeadline(time.Time) error { return nil }

func token(text string) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(text)+1)), text+"\n"...)
}

func TestPeekingReadsNothingAway(t *testing.T) {
	said := bytes.Join([][]byte{token("/multistream/1.0.0"), token("/relay/join/1"), []byte("and more")}, nil)
	proposal, replay, err := peekProtocol(script{in: bytes.NewReader(said)})
	if err != nil || proposal != ProtocolJoin {
		t.Fatalf("%q, %v", proposal, err)
	}
	if again, err := io.ReadAll(replay); err != nil || !bytes.Equal(again, said) {
		t.Errorf("read again: %q, %v", again, err)
	}
}

func FuzzPeekProtocol(f *testing.F) {
	f.Add(bytes.Join([][]byte{token("/multistream/1.0.0"), token("/relay/join/1")}, nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, said []byte) {
		proposal, replay, err := peekProtocol(script{in: bytes.NewReader(said)})
		if err != nil {
			return
		}
		if len(proposal) > maxToken {
			t.Errorf("a proposal of %d bytes", len(proposal))
		}
		if again, err := io.ReadAll(replay); err != nil || !bytes.Equal(again, said) {
			t.Errorf("read again: %q, %v", again, err)
		}
	})
}

func FuzzJoinFrame(f *testing.F) {
	for _, v := range []any{greeting{Version: 1, Mesh: "b3k7", Links: 1}, answer{Version: 1, Reason: "invite_spent"}} {
		var b bytes.Buffer
		if err := writeFrame(&b, v); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, data []byte) {
		r := bytes.NewReader(data)
		var g greeting
		if readFrame(r, &g) == nil {
			_, _ = readChain(r, g.Links)
		}
		var a answer
		if readFrame(bytes.NewReader(data), &a) == nil {
			_ = a.refusal()
		}
	})
}
