// Package eviction decides what is deleted where a disk is to have more room.
//
// It promises: the same items and the same need give the same choice, whatever
// order the items come in; what is pinned, runs, or may be the mesh's last whole
// copy is never chosen; unfinished pulls go before whole copies, and of each what
// was not used for longest; no more goes than is needed; and there is one reason
// for each item that stays.
//
// It is pure: no clock, no network, no disk, no memory between calls. Whoever
// deletes asks once more, item by item, whether it may.
package eviction
