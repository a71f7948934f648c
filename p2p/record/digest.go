package record

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// bucketCount is how many parts the keys are divided into, by the first byte of
// their sha256.
const bucketCount = 256

// Hash is a sha256.
type Hash = [sha256.Size]byte

// Item says which record a table has for one key.
type Item struct {
	Key     string
	Version Version
	Hash    Hash
}

// bucket holds the keys that fall into one part, and the digest over them.
type bucket struct {
	items  []bucketItem // sorted by key
	digest Hash         // zero where empty
	stale  bool         // digest does not fit items
}

type bucketItem struct {
	key string
	rec *Signed
}

func bucketOf(key string) int { return int(sha256.Sum256([]byte(key))[0]) }

func (b *bucket) put(key string, s *Signed) {
	at, found := slices.BinarySearchFunc(b.items, key, func(i bucketItem, key string) int { return strings.Compare(i.key, key) })
	if found {
		b.items[at].rec = s
	} else {
		b.items = slices.Insert(b.items, at, bucketItem{key, s})
	}
	b.stale = true
}

// sum returns the sha256 over the records' hashes in the order of their keys.
// A record's hash covers its key and version, so nothing else is needed. (A sum
// that ignores order, such as an exclusive or, would be quicker to keep, and
// could be forged by whoever may write a few hundred records.)
func (b *bucket) sum() Hash {
	if b.stale {
		b.stale = false
		h := sha256.New()
		for _, i := range b.items {
			h.Write(i.rec.Hash[:])
		}
		h.Sum(b.digest[:0])
	}
	return b.digest
}

// Root is equal for two tables exactly when their records are. Only buckets
// that changed since the last call are summed again.
func (t *Table) Root() Hash {
	root, _ := t.Digest()
	return root
}

// Buckets returns the digests of the 256 buckets; an empty one's is zero.
func (t *Table) Buckets() [bucketCount]Hash {
	_, buckets := t.Digest()
	return buckets
}

// Digest returns root and buckets as of one moment.
func (t *Table) Digest() (root Hash, buckets [bucketCount]Hash) {
	t.reading.Lock()
	for i := range t.buckets {
		buckets[i] = t.buckets[i].sum()
	}
	t.reading.Unlock()
	h := sha256.New()
	for i := range buckets {
		h.Write(buckets[i][:])
	}
	h.Sum(root[:0])
	return root, buckets
}

// Bucket returns what is in bucket i, 0 to 255, sorted by key.
func (t *Table) Bucket(i int) []Item {
	t.reading.RLock()
	defer t.reading.RUnlock()
	items := make([]Item, 0, len(t.buckets[i].items))
	for _, b := range t.buckets[i].items {
		items = append(items, Item{b.key, b.rec.Version, b.rec.Hash})
	}
	return items
}
