package p2p

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/neighbours"
)

// layout is what follows from who the members are, and from nothing else.
type layout struct {
	roster *membership.Roster
	graph  *neighbours.Graph
	// whole says that everybody keeps a link to everybody.
	whole bool
	// ids are the members of whom ages are told, in order, and names are their
	// names on the wire.
	ids   []peer.ID
	names map[memberName]peer.ID
}

// memberName is a member's name where many are listed: the first bytes of the
// sha256 of its id, too many to find two ids with the same ones.
type memberName [8]byte

func nameOnWire(id peer.ID) memberName {
	sum := sha256.Sum256([]byte(id))
	return memberName(sum[:8])
}

const (
	// maxTold bounds the members that one answer tells of.
	maxTold = 1024
	// untold is the age of a member that was not heard for longer, or ever.
	untold = 255
)

// layoutNow is the layout of the roster in force. The lock must be held.
func (l *links) layoutNow() *layout {
	roster := l.n.Roster()
	if l.layout != nil && l.layout.roster == roster {
		return l.layout
	}
	now := &layout{roster: roster, names: map[memberName]peer.ID{}}
	var ids []peer.ID
	for _, m := range roster.Members() {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	now.graph, now.whole = neighbours.New(ids), len(ids) <= neighbours.All
	now.ids = ids[:min(len(ids), maxTold)]
	for _, id := range now.ids {
		now.names[nameOnWire(id)] = id
	}
	l.layout = now
	return now
}

// appendAges writes how long ago each member was heard, a byte for each. Before
// them go the members' names, or none where those told last still hold.
//
// Of a member that this peer has to hear itself it tells what it heard itself:
// nobody's word goes through here against that.
func (l *links) appendAges(to []byte, told *membership.Roster) ([]byte, *membership.Roster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, at := l.layoutNow(), l.now()
	if told == now.roster {
		to = binary.BigEndian.AppendUint16(to, 0)
	} else {
		to = binary.BigEndian.AppendUint16(to, uint16(len(now.ids)))
		for _, id := range now.ids {
			name := nameOnWire(id)
			to = append(to, name[:]...)
		}
	}
	for _, id := range now.ids {
		age, ok := time.Duration(0), false
		if k := l.members[id]; k != nil {
			age, ok = k.silence(at)
		}
		to = append(to, ageOnWire(age, ok))
	}
	return to, now.roster
}

// ageOnWire rounds up: on its way an age only grows.
func ageOnWire(age time.Duration, ok bool) byte {
	if units := (age + liveness.AgeUnit - 1) / liveness.AgeUnit; ok && units < untold {
		return byte(units)
	}
	return untold
}

var errAges = errors.New("an answer tells of more members than there may be")

// readAges reads what appendAges wrote; names are those that were told last.
func readAges(r io.Reader, names []memberName) (told []memberName, ages []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, err
	}
	if n := int(binary.BigEndian.Uint16(head[:])); n > maxTold {
		return nil, nil, errAges
	} else if n > 0 {
		raw := make([]byte, n*len(memberName{}))
		if _, err := io.ReadFull(r, raw); err != nil {
			return nil, nil, err
		}
		names = names[:0]
		for name := range slices.Chunk(raw, len(memberName{})) {
			names = append(names, memberName(name))
		}
	}
	ages = make([]byte, len(names))
	_, err = io.ReadFull(r, ages)
	return names, ages, err
}

// hearAges takes what a member tells, which took a time to ask for and to come.
func (l *links) hearAges(names []memberName, ages []byte, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, at := l.layoutNow(), l.now()
	for i, units := range ages {
		if units == untold {
			continue
		}
		if k := l.members[now.names[names[i]]]; k != nil {
			k.told.Hear(at, time.Duration(units)*liveness.AgeUnit+took)
		}
	}
}
