package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// digest is the sha256 of a block. Every block here is named by one.
type digest = [sha256.Size]byte

// link is one child of an inner node.
type link struct {
	digest digest
	leaf   bool  // a raw block, not another inner node
	size   int64 // bytes of the file under it
	total  int64 // bytes of all blocks under it, itself included
}

func (l link) cid() cid.Cid { return makeCID(l.digest, l.leaf) }

func makeCID(d digest, leaf bool) cid.Cid {
	hash, err := multihash.Encode(d[:], multihash.SHA2_256)
	if err != nil {
		panic(err) // a sha256 of 32 bytes always encodes
	}
	if leaf {
		return cid.NewCidV1(cid.Raw, hash)
	}
	return cid.NewCidV1(cid.DagProtobuf, hash)
}

// digestOf takes a CID's sha256, whatever its codec. ok is false for CIDs of
// other hashes: nothing here has one.
func digestOf(c cid.Cid) (d digest, ok bool) {
	if !c.Defined() {
		return d, false
	}
	hash, err := multihash.Decode(c.Hash())
	if err != nil || hash.Code != multihash.SHA2_256 || len(hash.Digest) != len(d) {
		return d, false
	}
	return digest(hash.Digest), true
}

// emptyDigest is the name of the one leaf of an empty file.
func emptyDigest() digest { return sha256.Sum256(nil) }

// rootOf checks that a CID can be the root of content here: CIDv1, sha2-256,
// raw or dag-pb.
func rootOf(c cid.Cid) (link, error) {
	d, ok := digestOf(c)
	if !ok || c.Version() != 1 || (c.Type() != cid.Raw && c.Type() != cid.DagProtobuf) {
		return link{}, fmt.Errorf("%w: %s is no CID of a file (CIDv1, sha2-256)", ErrContentInvalid, c)
	}
	return link{digest: d, leaf: c.Type() == cid.Raw}, nil
}

// The bytes of a CIDv1 with a sha2-256 are these four and the hash.
const (
	cidVersion = 0x01
	codecRaw   = 0x55
	codecPB    = 0x70
	hashSHA256 = 0x12
	cidBytes   = 4 + sha256.Size
)

// encodeNode writes an inner node as dag-pb over UnixFS, in the one canonical
// order: links first, each with an empty name, then the sizes.
func encodeNode(links []link) []byte {
	out := make([]byte, 0, len(links)*56+16)
	var one []byte
	var size int64
	for _, l := range links {
		codec := byte(codecPB)
		if l.leaf {
			codec = codecRaw
		}
		one = append(one[:0], 0x0a, cidBytes, cidVersion, codec, hashSHA256, sha256.Size)
		one = append(one, l.digest[:]...)
		one = append(one, 0x12, 0, 0x18)
		one = binary.AppendUvarint(one, uint64(l.total))
		out = append(out, 0x12)
		out = binary.AppendUvarint(out, uint64(len(one)))
		out = append(out, one...)
		size += l.size
	}
	data := []byte{0x08, 0x02, 0x18} // type file; the file's size
	data = binary.AppendUvarint(data, uint64(size))
	for _, l := range links {
		data = append(data, 0x20)
		data = binary.AppendUvarint(data, uint64(l.size))
	}
	out = append(out, 0x0a)
	out = binary.AppendUvarint(out, uint64(len(data)))
	return append(out, data...)
}

var errNode = errors.New("not an inner node of a file")

// decodeNode reads an inner node with at most maxLinks links. It takes exactly
// what encodeNode writes: other spellings of the same node are refused, so that
// there is one CID for one file.
func decodeNode(block []byte, maxLinks int) ([]link, error) {
	if len(block) > maxNode {
		return nil, fmt.Errorf("%w: %d bytes, the most is %d", errNode, len(block), maxNode)
	}
	r := reader{rest: block}
	var links []link
	for r.peek() == 0x12 {
		r.byte()
		one := reader{rest: r.sized()}
		var l link
		head := one.take(6)
		hash := one.take(sha256.Size)
		name := one.take(3)
		total := one.uvarint()
		if r.bad || one.bad || len(one.rest) != 0 || total > MaxBytes*2 ||
			!bytes.Equal(name, []byte{0x12, 0, 0x18}) || !bytes.Equal(head[:3], []byte{0x0a, cidBytes, cidVersion}) ||
			!bytes.Equal(head[4:], []byte{hashSHA256, sha256.Size}) || (head[3] != codecRaw && head[3] != codecPB) {
			return nil, errNode
		}
		l.digest, l.leaf, l.total = digest(hash), head[3] == codecRaw, int64(total)
		links = append(links, l)
		if len(links) > maxLinks {
			return nil, fmt.Errorf("%w: more than %d links", errNode, maxLinks)
		}
	}
	if r.byte() != 0x0a {
		return nil, errNode
	}
	data := reader{rest: r.sized()}
	if r.bad || len(r.rest) != 0 || !bytes.Equal(data.take(3), []byte{0x08, 0x02, 0x18}) {
		return nil, errNode
	}
	size := data.uvarint()
	var sum uint64
	for i := range links {
		if data.byte() != 0x20 {
			return nil, errNode
		}
		s := data.uvarint()
		if s > MaxBytes {
			return nil, errNode
		}
		links[i].size = int64(s)
		sum += s
	}
	if data.bad || len(data.rest) != 0 || len(links) == 0 || sum != size || sum > MaxBytes {
		return nil, errNode
	}
	if !bytes.Equal(encodeNode(links), block) {
		return nil, errNode
	}
	return links, nil
}

// reader takes bytes from the front; once it runs short it stays bad.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) peek() byte {
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

func (r *reader) byte() byte { return r.take(1)[0] }

// take returns n bytes; zeros when there are fewer.
func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.bad, r.rest = true, nil
		return make([]byte, n)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// sized returns the bytes that a length in front announces.
func (r *reader) sized() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	return r.take(int(n))
}
