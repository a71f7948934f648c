package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Have asks a member which leaves of a file it has; see Files. Errors wrap
// ErrNotHere, ErrRefused, ErrBusy, ErrBadAnswer, ErrProtocol when the member does
// not know the protocol, ErrPeerGone, or are ctx's own.
func (n *Node) Have(ctx context.Context, id peer.ID, root cid.Cid) (have []byte, whole bool, err error) {
	if _, may := n.holder(id); !may {
		return nil, false, errNoHolder
	}
	return askHave(ctx, n.web.to(id, ProtocolBlocks), root)
}

// Range asks a member for the bytes [from, to) of a file, MaxRange at most. The
// reader ends early where the member has no more of them. With check the member
// hashes every leaf before it sends it. Ending ctx, or closing the reader, ends
// the range at both sides at once; how long a range that has begun may stand
// still is the caller's to judge. Errors are those of Have, and ErrDamaged; those
// of the reader wrap ErrPeerGone, or are ctx's own.
func (n *Node) Range(ctx context.Context, id peer.ID, root cid.Cid, from, to int64, check bool) (io.ReadCloser, error) {
	if from < 0 || to <= from || to-from > MaxRange {
		return nil, fmt.Errorf("bytes %d to %d are no range of at most %d", from, to, MaxRange)
	}
	if _, may := n.holder(id); !may {
		return nil, errNoHolder
	}
	return askRange(ctx, n.web.to(id, ProtocolBlocks), root, from, to, check)
}

var errNoHolder = fmt.Errorf("%w: its trust does not let it hold files for others", ErrNotHere)

// newBlockTransport bounds an answer's head, and the wait for it.
func newBlockTransport(dial dialStream) *http.Transport {
	t := newTransport(dial, maxBlockStreams)
	t.ResponseHeaderTimeout = stallPatience
	t.MaxResponseHeaderBytes = 16 << 10
	return t
}

func askHave(ctx context.Context, to http.RoundTripper, root cid.Cid) (have []byte, whole bool, err error) {
	inTime, cancel := context.WithTimeout(ctx, stallPatience)
	defer cancel()
	answer, err := ask(inTime, to, "/have/"+root.String(), nil)
	if err != nil {
		return nil, false, broken(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, false, declined(answer)
	}
	have, err = io.ReadAll(io.LimitReader(answer.Body, maxHave+1))
	whole = answer.Header.Get(headerWhole) == "1"
	switch {
	case err != nil:
		return nil, false, broken(ctx, err)
	case len(have) > maxHave:
		return nil, false, fmt.Errorf("%w: more than %d parts of a file", ErrBadAnswer, 8*maxHave)
	case whole && len(have) > 0:
		return nil, false, fmt.Errorf("%w: all of a file, and parts of it", ErrBadAnswer)
	}
	return have, whole, nil
}

func askRange(ctx context.Context, to http.RoundTripper, root cid.Cid, from, until int64, check bool) (io.ReadCloser, error) {
	header := http.Header{"Range": {formatRange(from, until)}}
	if check {
		header.Set(headerCheck, "1")
	}
	answer, err := ask(ctx, to, "/bytes/"+root.String(), header)
	if err != nil {
		return nil, broken(ctx, err)
	}
	if answer.StatusCode != http.StatusPartialContent {
		defer func() { _ = answer.Body.Close() }()
		return nil, declined(answer)
	}
	first, end, ok := parseSent(answer.Header.Values("Content-Range"))
	if !ok || first != from || end > until || answer.ContentLength != end-first {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%w: other bytes than %d to %d", ErrBadAnswer, from, until)
	}
	return &sentRange{ctx, answer.Body}, nil
}

func ask(ctx context.Context, to http.RoundTripper, path string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://holder"+path, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	return to.RoundTrip(r)
}

// sentRange is a range as it comes.
type sentRange struct {
	ctx  context.Context
	body io.ReadCloser
}

func (s *sentRange) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err != nil && err != io.EOF {
		err = broken(s.ctx, err)
	}
	return n, err
}

func (s *sentRange) Close() error { return s.body.Close() }

// declined is what a status without bytes means, and the holder's sentence.
func declined(answer *http.Response) error {
	var err error
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusRequestedRangeNotSatisfiable:
		err = ErrNotHere
	case http.StatusForbidden:
		err = ErrRefused
	case http.StatusServiceUnavailable:
		err = ErrBusy
	case http.StatusConflict:
		err = ErrDamaged
	default:
		return fmt.Errorf("%w: status %d", ErrBadAnswer, answer.StatusCode)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxSentence))
	if said := printable(string(text)); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// printable leaves of a foreign text what a log or a terminal may show.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, text))
}

// broken is why no answer came, or broke off.
func broken(ctx context.Context, err error) error {
	var stream *network.StreamError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &stream) && stream.ErrorCode == network.StreamGated:
		return fmt.Errorf("%w: this machine's trust does not reach that far", ErrRefused)
	case errors.Is(err, ErrProtocol), errors.Is(err, ErrPeerGone):
		return err
	}
	return fmt.Errorf("%w: %.*v", ErrPeerGone, maxSentence, err) // It may quote what came.
}
