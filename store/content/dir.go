package content

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ipfs/go-cid"
)

// A set is the UnixFS directory of its files, a basic one, as other tools of the
// field make it.
const (
	// minSet and maxSet are how many files a set has.
	minSet, maxSet = 2, 1000
	// maxName is the longest name of a file in a set, in bytes.
	maxName = 255
	// maxDir is the largest block of a directory, in bytes. Above it other tools
	// make several blocks out of it (IPIP-499).
	maxDir = 256 << 10
)

// dirEntry is one file of a set.
type dirEntry struct {
	Name string
	// Root is the file's root; its size is not known to a directory, unless it is
	// a leaf.
	Root cid.Cid
	// Total is the bytes of all blocks of the file's DAG.
	Total int64
}

func compareEntries(a, b dirEntry) int { return cmp.Compare(a.Name, b.Name) }

// checkNames says whether files of these names, sorted, can lie in one folder on
// any system.
func checkNames(names []string) error {
	if n := len(names); n < minSet || n > maxSet {
		return fmt.Errorf("a set has %d to %d files, not %d", minSet, maxSet, n)
	}
	folded := make(map[string]string, len(names))
	for i, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if i > 0 && names[i-1] >= name {
			return fmt.Errorf("two files are named %q, or the names are not in order", name)
		}
		key := strings.ToLower(name)
		if other, taken := folded[key]; taken {
			return fmt.Errorf("the names %q and %q are one on some systems", other, name)
		}
		folded[key] = name
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("a name in a set has 1 to %d bytes, %q has %d", maxName, name, len(name))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q is not plain text", name)
	case strings.ContainsAny(name, `/\:`) || strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") || !filepath.IsLocal(name):
		return fmt.Errorf("%q is not the name of a file on every system", name)
	}
	return nil
}

// encodeDir writes the block of a directory, its entries sorted by name.
func encodeDir(entries []dirEntry) []byte {
	var out, one []byte
	for _, e := range entries {
		one = append(one[:0], 0x0a, cidBytes)
		one = append(one, e.Root.Bytes()...)
		one = append(one, 0x12)
		one = binary.AppendUvarint(one, uint64(len(e.Name)))
		one = append(one, e.Name...)
		one = append(one, 0x18)
		one = binary.AppendUvarint(one, uint64(e.Total))
		out = append(out, 0x12)
		out = binary.AppendUvarint(out, uint64(len(one)))
		out = append(out, one...)
	}
	return append(out, 0x0a, 2, 0x08, 0x01) // type directory, and nothing else
}

var errDir = errors.New("not a directory of files")

// decodeDir reads the block of a directory. It takes exactly what encodeDir
// writes, with names that any system can have, so that there is one CID for one
// set. That the roots are those of files is not known before their DAGs are.
func decodeDir(block []byte) ([]dirEntry, error) {
	if len(block) > maxDir {
		return nil, fmt.Errorf("%w: %d bytes, the most is %d", errDir, len(block), maxDir)
	}
	r := reader{rest: block}
	var entries []dirEntry
	var names []string
	for r.peek() == 0x12 {
		r.byte()
		one := reader{rest: r.sized()}
		head := one.take(2)
		root, err := cid.Cast(one.take(cidBytes))
		nameTag := one.byte()
		name := string(one.sized())
		totalTag := one.byte()
		total := one.uvarint()
		if r.bad || one.bad || len(one.rest) != 0 || err != nil || nameTag != 0x12 || totalTag != 0x18 ||
			!bytes.Equal(head, []byte{0x0a, cidBytes}) || total > MaxBytes*2 {
			return nil, errDir
		}
		l, err := rootOf(root)
		if err != nil || (l.leaf && total > chunkSize) {
			return nil, errDir
		}
		if len(entries) == maxSet {
			return nil, fmt.Errorf("%w: more than %d", errDir, maxSet)
		}
		entries = append(entries, dirEntry{Name: name, Root: root, Total: int64(total)})
		names = append(names, name)
	}
	if r.bad || !bytes.Equal(encodeDir(entries), block) {
		return nil, errDir
	}
	if err := checkNames(names); err != nil {
		return nil, fmt.Errorf("%w: %w", errDir, err)
	}
	return entries, nil
}

// entryNamed finds an entry by its name.
func entryNamed(entries []dirEntry, name string) (dirEntry, bool) {
	i, ok := slices.BinarySearchFunc(entries, dirEntry{Name: name}, compareEntries)
	if !ok {
		return dirEntry{}, false
	}
	return entries[i], true
}
