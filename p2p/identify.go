package p2p

import (
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	identifypb "github.com/libp2p/go-libp2p/p2p/protocol/identify/pb"
	"github.com/libp2p/go-msgio/pbio"
	"google.golang.org/protobuf/proto"
)

// answerIdentify tells a stranger no more than it knows already: that relay's
// join protocol is spoken here. Addresses, agent and protocols stay inside.
func answerIdentify() network.StreamHandler {
	return func(s network.Stream) {
		_ = s.SetDeadline(time.Now().Add(strangerPatience))
		err := pbio.NewDelimitedWriter(s).WriteMsg(&identifypb.Identify{
			ProtocolVersion: proto.String("relay/1"),
			Protocols:       []string{string(ProtocolJoin)},
			ObservedAddr:    s.Conn().RemoteMultiaddr().Bytes(),
		})
		if err != nil {
			_ = s.Reset()
			return
		}
		_ = s.Close()
	}
}
