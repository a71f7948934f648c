// Package content keeps models as content: every file is known by the CID of
// its UnixFS DAG, a set of files that belong together by that of its directory,
// and the blocks are served out of the files where they lie. There is no second
// copy.
//
// It promises that a block handed out for a CID lies in a file whose size, time
// and inode are those that were hashed, or was hashed again just now; that a
// reference is written after its bytes, never before; that a pull which was
// killed goes on where it was; that two pulls of one content are one; and that
// what comes from outside (roots, inner nodes, sizes, blocks) is believed only
// as far as its hash and its place in the one possible layout bear it out.
//
// It never deletes a file that its owner registered in place, never fills the
// disk, never opens a network connection (blocks come from a BlockGetter), and
// does not know what a model is: names are only for file names.
package content
