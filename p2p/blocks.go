package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
)

// Files is what this machine has of files, for other members.
type Files interface {
	// Have says which leaves of a file are here: all when whole, else those whose
	// bit is set, the lowest bit of the first byte being the first leaf. An error
	// means that nothing of it can be had.
	Have(root cid.Cid) (have []byte, whole bool, err error)
	// OpenRange opens the bytes [from, to) of a file as far as they are here
	// without a gap; n is how many the reader gives. With check every leaf is
	// hashed before it is read.
	OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (r io.ReadCloser, n int64, err error)
}

const (
	// MaxRange is the most that is asked for at a time, in bytes.
	MaxRange = 64 << 20
	// maxHave bounds the answer to what is here of a file, in bytes: 4 Mi leaves.
	maxHave = 512 << 10
	// maxSentence bounds why a holder sends nothing, in bytes.
	maxSentence = 512

	// rangesPerPeer and rangesInAll bound the ranges that are sent at a time: a few
	// keep a link full, and each costs a buffer and a place on the disk where it
	// reads. questionsPerPeer and questionsInAll bound the other requests, which
	// are to find a place while all ranges are taken.
	rangesPerPeer    = 8
	rangesInAll      = 64
	questionsPerPeer = 4
	questionsInAll   = 32

	// stallPatience is how long one side waits for the other: a holder until a
	// piece of a range is taken, an asker until an answer begins.
	stallPatience = 30 * time.Second

	// headerCheck asks a holder to hash what it sends, headerWhole says that it has
	// all of a file.
	headerCheck = "Relay-Check"
	headerWhole = "Relay-Whole"
)

// holder looks up a member that may get ranges of files, and send them.
func (n *Node) holder(id peer.ID) (m membership.Member, may bool) {
	rule, _ := accessTo(n.Mesh, ProtocolBlocks)
	m, in := n.Member(id)
	return m, in && rule.admits(m.Trust)
}

var errRange = errors.New("not one range of bytes=FIRST-LAST")

// formatRange names the bytes [from, to) in a request.
func formatRange(from, to int64) string { return fmt.Sprintf("bytes=%d-%d", from, to-1) }

// parseRange reads what formatRange wrote: the only form that is understood.
func parseRange(headers []string) (from, to int64, err error) {
	if len(headers) != 1 {
		return 0, 0, errRange
	}
	text, ok := strings.CutPrefix(headers[0], "bytes=")
	if from, to, ok = parseSpan(text, ok); !ok {
		return 0, 0, errRange
	}
	if to-from > MaxRange {
		return 0, 0, fmt.Errorf("a range of %d bytes is above the limit of %d", to-from, MaxRange)
	}
	return from, to, nil
}

// formatSent names the bytes [from, to) in an answer: of how many is not said.
func formatSent(from, to int64) string { return fmt.Sprintf("bytes %d-%d/*", from, to-1) }

// parseSent reads what formatSent wrote.
func parseSent(headers []string) (from, to int64, ok bool) {
	if len(headers) != 1 {
		return 0, 0, false
	}
	text, ok := strings.CutPrefix(headers[0], "bytes ")
	text, ends := strings.CutSuffix(text, "/*")
	return parseSpan(text, ok && ends)
}

// parseSpan reads FIRST-LAST, both counted, as [from, to).
func parseSpan(text string, ok bool) (from, to int64, _ bool) {
	first, last, dash := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(first, 10, 62)
	b, err2 := strconv.ParseUint(last, 10, 62)
	if !ok || !dash || err1 != nil || err2 != nil || a > b {
		return 0, 0, false
	}
	return int64(a), int64(b) + 1, true
}
