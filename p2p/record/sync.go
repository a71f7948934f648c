package record

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultSyncBytes is how much one exchange may receive unless told
	// otherwise: more than a full table of DefaultMaxBytes takes, its list of
	// items included.
	DefaultSyncBytes = 64 << 20

	// What may wait for rights during one exchange.
	maxWaiting      = 16384
	maxWaitingBytes = 16 << 20

	// maxListed is how many items the other side may list.
	maxListed = 2 * DefaultMaxRecords

	tagSize = 8
)

// SyncOptions bound one exchange.
type SyncOptions struct {
	// MaxBytes bounds what is received; 0 means DefaultSyncBytes. More ends the
	// exchange with ErrSyncLimit; what was merged until then stays.
	MaxBytes int64
	// Fresh is called with each record that was kept, for passing it on. May be
	// nil.
	Fresh func(Signed)
	// Refused is called with each record that was refused, and why; with ErrShare
	// also for one that was kept in the place of others of its author. May be nil.
	Refused func(Signed, error)
}

// Stats says what one exchange did, as far as it came.
type Stats struct {
	// Equal: the roots were the same and nothing else was said.
	Equal bool
	// Sent and Received count records.
	Sent, Received int
	// Kept counts the received records that were new, Held those that wait for
	// their authors' rights, Refused those that were refused or left out.
	Kept, Held, Refused int
	// Low counts the received records below what was listed for their keys. They
	// are dropped: no honest peer sends them.
	Low int
	// BytesOut and BytesIn count everything that crossed the stream.
	BytesOut, BytesIn int64
}

// Sync compares a table with that of the peer at the other end of rw, and
// exchanges what either lacks. One side is the initiator. When it returns nil
// on the initiator's side both tables have merged what the other sent.
//
// Equal tables cost one small frame each way. Otherwise the initiator names
// what it has in those of the 256 buckets that differ, and only records that
// are missing or beaten cross the stream. Records whose authors may not write
// them, as far as is known, are tried again at the end: the grant may have come
// later in the exchange.
//
// A peer that breaks the protocol, or sends bad records or some that were not
// asked for, ends the exchange with ErrProtocol, ErrSyncLimit or ErrInvalid, which count against it; errors of
// the stream itself do not. Sync does not end by itself while the other side is
// silent: ctx must have a deadline, and rw a method SetDeadline, as streams and
// connections do; it is called when ctx ends. Sync does not close rw.
func Sync(ctx context.Context, rw io.ReadWriter, t *Table, initiator bool, o SyncOptions) (Stats, error) {
	w := &wire{ctx: ctx, rw: rw, maxBytes: cmp.Or(o.MaxBytes, DefaultSyncBytes)}
	if d, ok := rw.(interface{ SetDeadline(time.Time) error }); ok {
		cut := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(cut)
			_ = d.SetDeadline(time.Unix(1, 0)) // it fails on a closed stream, where nothing waits
		})
		defer func() {
			if !stop() {
				<-cut
			}
		}()
	}
	x := &exchange{table: t, wire: w, fresh: o.Fresh, refused: o.Refused}
	err := x.run(initiator)
	x.settle() // also what came before a failure
	x.stats.BytesIn, x.stats.BytesOut = w.in, w.out
	if err != nil {
		return x.stats, fmt.Errorf("comparing records: %w", err)
	}
	return x.stats, nil
}

// exchange is one side of one Sync.
type exchange struct {
	table   *Table
	wire    *wire
	fresh   func(Signed)
	refused func(Signed, error)
	due     *due
	salt    Hash
	stats   Stats

	waiting      []*Signed // for their authors' rights
	waitingBytes int
}

func (x *exchange) run(initiator bool) error {
	if initiator {
		return x.initiate()
	}
	return x.respond()
}

func (x *exchange) initiate() error {
	root, buckets := x.table.Digest()
	if err := x.wire.write(&frame{Turn: turnHello, Root: root[:]}); err != nil {
		return err
	}
	hello, err := x.wire.read(turnHello)
	if err != nil {
		return err
	}
	if hello.Root == nil || hello.More {
		return fmt.Errorf("a greeting without a root: %w", ErrProtocol)
	}
	if Hash(hello.Root) == root {
		x.stats.Equal = true
		return nil
	}
	if hello.Buckets == nil {
		return fmt.Errorf("a greeting without buckets: %w", ErrProtocol)
	}
	x.salt = salt(root, Hash(hello.Root))
	var differ bitmap
	for i := range buckets {
		if tag := x.tag(buckets[i]); string(tag) != string(hello.Buckets[i*tagSize:][:tagSize]) {
			differ.set(i)
		}
	}
	keys, err := x.sendItems(&differ)
	if err != nil {
		return err
	}
	wanted, err := x.takeAnswer(len(keys))
	if err != nil {
		return err
	}
	send := make([]outgoing, len(wanted))
	for i, at := range wanted {
		send[i] = outgoing{keys[at], x.due.listed[keys[at]]}
	}
	if err := x.sendRecords(turnRecords, nil, send); err != nil {
		return err
	}
	x.settle()
	_, err = x.wire.read(turnDone)
	return err
}

func (x *exchange) respond() error {
	hello, err := x.wire.read(turnHello)
	if err != nil {
		return err
	}
	if hello.Root == nil || hello.More {
		return fmt.Errorf("a greeting without a root: %w", ErrProtocol)
	}
	root, buckets := x.table.Digest()
	answer := &frame{Turn: turnHello, Root: root[:]}
	if Hash(hello.Root) == root {
		x.stats.Equal = true
		return x.wire.write(answer)
	}
	x.salt = salt(Hash(hello.Root), root)
	for i := range buckets {
		answer.Buckets = append(answer.Buckets, x.tag(buckets[i])...)
	}
	if err := x.wire.write(answer); err != nil {
		return err
	}
	want, send, err := x.takeItems()
	if err != nil {
		return err
	}
	if err := x.sendRecords(turnAnswer, want, send); err != nil {
		return err
	}
	if err := x.takeRecords(); err != nil {
		return err
	}
	x.settle()
	return x.wire.write(&frame{Turn: turnDone})
}

// salt goes into the short tags that stand for hashes in one exchange. Nobody
// can make two records ahead of time whose tags are the same in an exchange
// whose roots he does not know.
func salt(initiator, responder Hash) Hash {
	h := sha256.New()
	h.Write([]byte("relay-sync/1"))
	h.Write(initiator[:])
	h.Write(responder[:])
	return Hash(h.Sum(nil))
}

func (x *exchange) tag(hash Hash) []byte {
	sum := sha256.Sum256(append(slices.Clone(x.salt[:]), hash[:]...))
	return sum[:tagSize]
}

// sendItems lists what is in the differing buckets and returns the keys in the
// order in which they were sent.
func (x *exchange) sendItems(differ *bitmap) ([]string, error) {
	var keys []string
	listed := make(map[string]Version)
	x.due = newDue(listed, differ)
	f := &frame{Turn: turnItems, Differ: differ[:]}
	size := 0
	for i := range bucketCount {
		if !differ.has(i) {
			continue
		}
		for _, it := range x.table.Bucket(i) {
			if size >= fullFrame || len(f.Items) == maxFrameItems {
				f.More = true
				if err := x.wire.write(f); err != nil {
					return nil, err
				}
				f, size = &frame{Turn: turnItems}, 0
			}
			v := it.Version
			f.Items = append(f.Items, frameItem{Key: it.Key, V0: v[0], V1: v[1], V2: v[2], Tag: x.tag(it.Hash)})
			size += len(it.Key) + 48
			keys = append(keys, it.Key)
			listed[it.Key] = v
		}
	}
	return keys, x.wire.write(f)
}

// takeItems reads the initiator's list, and says which positions of it are
// wanted and what the initiator is to get.
func (x *exchange) takeItems() (want []uint32, send []outgoing, err error) {
	var differ bitmap
	listed := make(map[string]struct{})
	wanted := make(map[string]Version)
	x.due = newDue(wanted, nil)
	at := uint32(0)
	for first, more := true, true; more; first = false {
		f, err := x.wire.read(turnItems)
		if err != nil {
			return nil, nil, err
		}
		if first != (f.Differ != nil) || f.More && len(f.Items) == 0 {
			return nil, nil, fmt.Errorf("a list of items of the wrong form: %w", ErrProtocol)
		}
		if first {
			copy(differ[:], f.Differ)
		}
		for i := range f.Items {
			it := &f.Items[i]
			if _, twice := listed[it.Key]; twice {
				return nil, nil, fmt.Errorf("an item listed twice: %w", ErrProtocol)
			}
			if len(listed) == maxListed {
				return nil, nil, fmt.Errorf("more than %d items: %w", maxListed, ErrSyncLimit)
			}
			listed[it.Key] = struct{}{}
			lacked, beaten := x.compare(it)
			version := Version{it.V0, it.V1, it.V2}
			if lacked {
				want = append(want, at)
				wanted[it.Key] = version
			}
			if beaten {
				send = append(send, outgoing{it.Key, version})
			}
			at++
		}
		more = f.More
	}
	for i := range bucketCount {
		if !differ.has(i) {
			continue
		}
		for _, it := range x.table.Bucket(i) {
			if _, ok := listed[it.Key]; !ok {
				send = append(send, outgoing{key: it.Key})
			}
		}
	}
	return want, send, nil
}

// compare says what is to be done about one key. At equal versions with
// different content both sides get the other's, and decide alike.
func (x *exchange) compare(it *frameItem) (want, send bool) {
	t := x.table
	t.reading.RLock()
	defer t.reading.RUnlock()
	mine := t.records[it.Key]
	if mine == nil {
		return true, false
	}
	switch mine.Version.Compare(Version{it.V0, it.V1, it.V2}) {
	case -1:
		return true, false
	case +1:
		return false, true
	}
	differ := string(x.tag(mine.Hash)) != string(it.Tag)
	return differ, differ
}

// takeAnswer reads what the responder wants and merges what it sends.
func (x *exchange) takeAnswer(listed int) (wanted []uint32, err error) {
	next := uint32(0) // wishes come in rising order, so each comes once
	for more := true; more; {
		f, err := x.wire.read(turnAnswer)
		if err != nil {
			return nil, err
		}
		for _, at := range f.Want {
			if at < next || int64(at) >= int64(listed) {
				return nil, fmt.Errorf("a wish for what was not listed: %w", ErrProtocol)
			}
			next = at + 1
			wanted = append(wanted, at)
		}
		if f.More && len(f.Want)+len(f.Records) == 0 {
			return nil, fmt.Errorf("an empty frame: %w", ErrProtocol)
		}
		if err := x.merge(f.Records); err != nil {
			return nil, err
		}
		more = f.More
	}
	return wanted, nil
}

// takeRecords merges what was asked for.
func (x *exchange) takeRecords() error {
	for more := true; more; {
		f, err := x.wire.read(turnRecords)
		if err != nil {
			return err
		}
		if f.More && len(f.Records) == 0 {
			return fmt.Errorf("an empty frame: %w", ErrProtocol)
		}
		if err := x.merge(f.Records); err != nil {
			return err
		}
		more = f.More
	}
	return nil
}

// outgoing is a key whose record the other side is to get, if it is not lower
// than least by then: the version that either side listed, zero where none did.
type outgoing struct {
	key   string
	least Version
}

// sendRecords sends wishes and records, as one turn. Kinds go in the order of
// their registration, so that grants come before what they allow.
func (x *exchange) sendRecords(turn turn, want []uint32, send []outgoing) error {
	rank := func(o outgoing) int {
		kind, _, _ := strings.Cut(o.key, "/")
		return x.table.rank(kind)
	}
	slices.SortStableFunc(send, func(a, b outgoing) int { return cmp.Compare(rank(a), rank(b)) })

	f := &frame{Turn: turn}
	for len(want) > maxFrameItems {
		f.Want, want = want[:maxFrameItems], want[maxFrameItems:]
		f.More = true
		if err := x.wire.write(f); err != nil {
			return err
		}
		f = &frame{Turn: turn}
	}
	f.Want = want
	size := 0
	for _, o := range send {
		s := x.table.kept(o.key)
		if s == nil || s.Version.Less(o.least) {
			continue // what was listed was taken away since, and perhaps a lower one came
		}
		raw := s.Raw
		if size > 0 && size+len(raw) > fullFrame || len(f.Records) == maxFrameItems {
			f.More = true
			if err := x.wire.write(f); err != nil {
				return err
			}
			f, size = &frame{Turn: turn}, 0
		}
		f.Records = append(f.Records, raw)
		size += len(raw)
		x.stats.Sent++
	}
	return x.wire.write(f)
}

// merge offers the records of one frame, with one write to storage. A record
// that is not valid or not due ends the exchange, after those before it were
// merged.
func (x *exchange) merge(raws [][]byte) error {
	batch := make([]*Signed, 0, len(raws))
	var bad error
	for _, raw := range raws {
		s, err := Open(raw)
		if err != nil {
			bad = err
			break
		}
		low, err := x.due.check(&s)
		if err != nil {
			bad = err
			break
		}
		x.stats.Received++
		if low {
			x.stats.Low++
			continue
		}
		batch = append(batch, &s)
	}
	for i, r := range x.table.offerAll(batch) {
		x.note(batch[i], r, true)
	}
	return bad
}

// note counts what became of a record. On the first try those that lack rights
// wait for the end.
func (x *exchange) note(s *Signed, r result, first bool) (kept bool) {
	switch {
	case r.out == Fresh:
		x.stats.Kept++
		if r.crowds && x.refused != nil {
			x.refused(*s, ErrShare)
		}
		if x.fresh != nil {
			x.fresh(*s)
		}
		return true
	case r.waits():
		if !first {
			return false
		}
		if len(x.waiting) == maxWaiting || x.waitingBytes+len(s.Raw) > maxWaitingBytes {
			x.stats.Refused++
			return false
		}
		x.waiting = append(x.waiting, s)
		x.waitingBytes += len(s.Raw)
	case r.err != nil:
		x.refuse(s, r.err)
	}
	return false
}

func (x *exchange) refuse(s *Signed, err error) {
	x.stats.Refused++
	if x.refused != nil {
		x.refused(*s, err)
	}
}

// settle tries the waiting records again until nothing changes. What is left
// without known rights is held by the table.
func (x *exchange) settle() {
	for range maxPasses {
		if len(x.waiting) == 0 {
			return
		}
		progress := false
		still := x.waiting[:0]
		for i, r := range x.table.offerAll(x.waiting) {
			s := x.waiting[i]
			if x.note(s, r, false) {
				progress = true
			} else if r.waits() {
				still = append(still, s)
			}
		}
		x.waiting = still
		if !progress {
			break
		}
	}
	for _, s := range x.waiting {
		switch out, err := x.table.Offer(*s); {
		case out == Held:
			x.stats.Held++
		case out == Fresh:
			x.note(s, result{out: Fresh}, false)
		case err != nil:
			x.refuse(s, err)
		}
	}
	x.waiting, x.waitingBytes = nil, 0
}

// bitmap is a set of buckets.
type bitmap [bucketCount / 8]byte

func (b *bitmap) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b *bitmap) has(i int) bool { return b[i/8]&(1<<(i%8)) != 0 }
