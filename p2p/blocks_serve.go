package p2p

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	cid "github.com/ipfs/go-cid"
)

// pieceSize is how much of a range is read and written at a time, in bytes:
// larger ones are no faster, and a slow link takes longer over each.
const pieceSize = 64 << 10

// blockServer tells members what is here of a file, and sends them ranges of it.
type blockServer struct {
	n         *Node
	ranges    *turns
	questions *turns
	patience  time.Duration // Until a piece is taken.
	pieces    sync.Pool     // Of *[]byte, pieceSize long.
}

func newBlockServer(n *Node) *blockServer {
	return &blockServer{
		n:      n,
		ranges: newTurns(rangesPerPeer, rangesInAll), questions: newTurns(questionsPerPeer, questionsInAll),
		patience: stallPatience,
		pieces:   sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }},
	}
}

func (b *blockServer) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /have/{cid}", b.have)
	mux.HandleFunc("GET /bytes/{cid}", b.bytes)
	return mux
}

// enter refuses what the member may not have, or not now; leave must follow if
// it did not.
func (b *blockServer) enter(w http.ResponseWriter, r *http.Request, t *turns, from, to int64) (root cid.Cid, leave func(), ok bool) {
	root, err := cid.Decode(r.PathValue("cid"))
	if err != nil {
		refuse(w, http.StatusNotFound, "not a CID")
		return cid.Undef, nil, false
	}
	id, _ := RemotePeer(r.Context())
	if m, may := b.n.holder(id); !may || !b.n.MayHave(id, m.Trust, root, from, to) {
		refuse(w, http.StatusForbidden, "not for this member")
		return cid.Undef, nil, false
	}
	if _, may := b.n.holder(b.n.self); !may {
		refuse(w, http.StatusForbidden, "not from this member")
		return cid.Undef, nil, false
	}
	if !t.take(id) {
		refuse(w, http.StatusServiceUnavailable, "try again when one has ended")
		return cid.Undef, nil, false
	}
	if !b.n.work.begin() {
		t.give(id)
		refuse(w, http.StatusServiceUnavailable, "this peer stops")
		return cid.Undef, nil, false
	}
	return root, func() { b.n.work.end(); t.give(id) }, true
}

// have answers which leaves are here. Whoever may have the root's block, which
// lists the leaves, may know it.
func (b *blockServer) have(w http.ResponseWriter, r *http.Request) {
	root, leave, ok := b.enter(w, r, b.questions, 0, 0)
	if !ok {
		return
	}
	defer leave()
	have, whole, err := b.n.Files.Have(root)
	if err == nil && len(have) > maxHave {
		err = fmt.Errorf("the file has more than %d parts", 8*maxHave)
	}
	if err != nil {
		refuse(w, http.StatusNotFound, sentences[http.StatusNotFound])
		return
	}
	if whole {
		have = nil
		w.Header().Set(headerWhole, "1")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(have)))
	if b.write(w, have) != nil {
		hangUp(w)
	}
}

// bytes sends one range as far as it is here.
func (b *blockServer) bytes(w http.ResponseWriter, r *http.Request) {
	from, to, err := parseRange(r.Header.Values("Range"))
	if err != nil {
		refuse(w, http.StatusRequestedRangeNotSatisfiable, err.Error())
		return
	}
	root, leave, ok := b.enter(w, r, b.ranges, from, to)
	if !ok {
		return
	}
	defer leave()
	file, left, err := b.n.Files.OpenRange(r.Context(), root, from, to, r.Header.Get(headerCheck) == "1")
	if err != nil {
		b.n.log.Debug("range not sent", "cid", root, "error", err)
		refuse(w, statusOf(err), sentences[statusOf(err)])
		return
	}
	defer func() { _ = file.Close() }()
	left = min(left, to-from)
	if left <= 0 {
		refuse(w, http.StatusRequestedRangeNotSatisfiable, "the first byte is not here")
		return
	}

	piece := b.pieces.Get().(*[]byte)
	defer b.pieces.Put(piece)
	read := func() ([]byte, error) {
		n, err := io.ReadFull(file, (*piece)[:min(left, pieceSize)])
		left -= int64(n)
		return (*piece)[:n], err
	}
	next, err := read()
	if len(next) == 0 { // Nothing is promised yet.
		refuse(w, http.StatusConflict, sentences[http.StatusConflict])
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(left+int64(len(next)), 10))
	w.Header().Set("Content-Range", formatSent(from, from+left+int64(len(next))))
	w.WriteHeader(http.StatusPartialContent)
	end := time.Now().Add(b.patience + time.Duration(float64(left)/leastRate*float64(time.Second)))
	for {
		if time.Now().After(end) || b.write(w, next) != nil {
			hangUp(w)
			return
		}
		if err != nil {
			if r.Context().Err() == nil {
				b.n.log.Warn("range broken off", "cid", root, "error", err)
			}
			hangUp(w)
			return
		}
		if left == 0 {
			return
		}
		next, err = read()
	}
}

// leastRate is how fast a whole range has to be taken, in bytes a second, so that
// nobody holds a place for hours.
const leastRate = 16 << 10

// write sends a piece, which the other side has to take in time.
func (b *blockServer) write(w http.ResponseWriter, piece []byte) error {
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(b.patience)); err != nil {
		return err
	}
	_, err := w.Write(piece)
	return err
}

// sentences are why nothing is sent. The errors of Files name paths, which are
// nobody else's business.
var sentences = map[int]string{
	http.StatusNotFound: "it is not here",
	http.StatusConflict: "the file is not as it was added any more",
}

// statusOf is how an error of Files is answered.
func statusOf(err error) int {
	var r interface{ Reason() string }
	if errors.As(err, &r) && (r.Reason() == "file_changed" || r.Reason() == "file_invalid") {
		return http.StatusConflict
	}
	return http.StatusNotFound
}

// refuse answers with one sentence.
func refuse(w http.ResponseWriter, status int, sentence string) {
	http.Error(w, sentence[:min(len(sentence), maxSentence)], status)
}

// hangUp ends an answer that cannot be ended as it was promised. The stream is
// reset: closed, it would wait for the other side to take what is under way.
func hangUp(w http.ResponseWriter) {
	if stream, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = reset(stream)
	}
}
