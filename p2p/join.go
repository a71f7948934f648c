package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	msmux "github.com/multiformats/go-multistream"

	"relay/p2p/membership"
	"relay/p2p/record"
)

const (
	// joinPatience bounds one conversation of the join protocol.
	joinPatience = 10 * time.Second
	// ownPatience is how long an admitted joiner may take to send its own record.
	ownPatience = 3 * time.Second
	// triedPatience is how long one peer of an invite is tried.
	triedPatience = 5 * time.Second
	// maxContacts bounds the contact records that a joiner is given.
	maxContacts = 16
)

// greeting opens every stream of the join protocol, in both its uses. Links
// records follow it.
type greeting struct {
	Version int               `cbor:"1,keyasint"`
	Mesh    membership.MeshID `cbor:"2,keyasint"`
	Name    string            `cbor:"3,keyasint,omitempty"`
	// Links is how many records follow: those that prove a member.
	Links int `cbor:"4,keyasint,omitempty"`
	// Invite and InviteSig are of a machine that is not a member yet.
	Invite    string `cbor:"5,keyasint,omitempty"`
	InviteSig []byte `cbor:"6,keyasint,omitempty"`
	// Erased: the machine was taken out of the mesh, and has erased itself as it
	// was told to.
	Erased bool `cbor:"7,keyasint,omitempty"`
}

// answer is what a member says to a greeting and to a joiner's record. Links
// records follow it.
type answer struct {
	Version int    `cbor:"1,keyasint"`
	Name    string `cbor:"2,keyasint,omitempty"`
	// Reason is of a refusal.
	Reason string `cbor:"3,keyasint,omitempty"`
	// Links is how many records follow: those that prove the peer that answers
	// and who issued the invite, and where members can be dialled.
	Links int `cbor:"4,keyasint,omitempty"`
	// Invite is the invite's record; Stamp and AdmitSig admit a joiner by it.
	// They are missing where the joiner is a member already, whose own records
	// are among those that follow.
	Invite   []byte `cbor:"5,keyasint,omitempty"`
	Stamp    int64  `cbor:"6,keyasint,omitempty"`
	AdmitSig []byte `cbor:"7,keyasint,omitempty"`
}

// refusal is a peer's no, with the reason that it gave.
type refusal struct{ reason, text string }

func (r *refusal) Error() string  { return r.text }
func (r *refusal) Reason() string { return r.reason }

func (a answer) refusal() error {
	if a.Reason == "" {
		return nil
	}
	// The words come from outside: only reasons that are known keep their own.
	for _, known := range []error{membership.ErrInviteExpired, membership.ErrInviteSpent, membership.ErrInviteRevoked,
		membership.ErrInviteInvalid, membership.ErrInviteUnknown, membership.ErrInviteForeign, membership.ErrNeedsAdmin,
		ErrProtocol, ErrNotMember} {
		if known.(interface{ Reason() string }).Reason() == a.Reason {
			return &refusal{a.Reason, known.Error()}
		}
	}
	return ErrRefused
}

// hello proves this peer on a connection that it dialled.
func (n *Node) hello(ctx context.Context, c network.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	s, err := openRaw(ctx, c, ProtocolJoin)
	if err != nil {
		return err
	}
	defer s.Close()
	chain := n.chain(n.self)
	if err := writeFrame(s, greeting{Version: Version, Mesh: n.Mesh, Name: n.Name, Links: len(chain)}); err != nil {
		_ = s.Reset()
		return err
	}
	if err := writeChain(s, chain); err != nil {
		_ = s.Reset()
		return err
	}
	_, proof, err := readAnswer(s)
	n.offer(proof)
	if err != nil {
		_ = s.Reset()
	}
	return err
}

// readAnswer takes an answer and what follows it; a refusal is an error.
func readAnswer(s network.Stream) (answer, [][]byte, error) {
	var a answer
	if err := readFrame(s, &a); err != nil {
		return a, nil, err
	}
	if a.Version != Version {
		return a, nil, protocolMismatch(a.Name, a.Version)
	}
	chain, err := readChain(s, a.Links)
	if refused := a.refusal(); refused != nil {
		return a, chain, refused
	}
	return a, chain, err
}

// openRaw opens a stream without waiting for identify, which the other side
// answers only once it knows who asks.
func openRaw(ctx context.Context, c network.Conn, id protocol.ID) (network.Stream, error) {
	s, err := c.NewStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream to %s: %w", short(c.RemotePeer()), err)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(joinPatience)
	}
	_ = s.SetDeadline(deadline)
	if err := msmux.SelectProtoOrFail(id, s); err != nil {
		_ = s.Reset()
		var other msmux.ErrNotSupported[protocol.ID]
		if errors.As(err, &other) {
			return nil, ErrProtocol
		}
		return nil, fmt.Errorf("speak %s to %s: %w", id, short(c.RemotePeer()), err)
	}
	if err := s.SetProtocol(id); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return s, nil
}

// chain is what proves members to a machine that knows nothing.
func (n *Node) chain(ids ...peer.ID) [][]byte {
	var chain [][]byte
	for _, key := range n.Roster().Chain(ids...) {
		if raw, ok := n.table.Raw(key); ok && len(chain) < maxChain {
			chain = append(chain, raw)
		}
	}
	return chain
}

// isProof says whether records of a kind are taken from the join protocol.
func isProof(kind string) bool {
	switch kind {
	case membership.KindMember, membership.KindRevocation, membership.KindPolicy, KindContact:
		return true
	}
	return false
}

// offer takes the records that a member showed. One that is wrong is dropped.
func (n *Node) offer(chain [][]byte) {
	for _, raw := range chain {
		s, err := record.Open(raw)
		if err != nil || !isProof(s.Kind) {
			continue
		}
		switch outcome, err := n.table.Offer(s); {
		case outcome == record.Fresh:
			n.gossip.spread(s)
		case err != nil:
			n.log.Debug("record in a proof refused", "key", s.Key(), "error", err)
		}
	}
}

// believe takes the records with which somebody who is not a member yet wants
// to prove itself: all of them if they do, none if they do not.
func (n *Node) believe(remote peer.ID, chain [][]byte) bool {
	if n.isMember(remote) {
		n.offer(chain)
		return true
	}
	records := n.membershipRecords()
	for _, raw := range chain {
		if s, err := record.Open(raw); err == nil && (s.Kind == membership.KindMember || isJudgement(s.Kind)) {
			records = append(records, s.Record)
		}
	}
	if _, in := n.judge.Roster(records).Member(remote); !in {
		return false
	}
	n.offer(chain)
	return n.isMember(remote)
}

// handleJoin answers strangers and members alike: whoever shows the proof of a
// membership is let in, whoever shows an invite is admitted by it.
func (n *Node) handleJoin(s network.Stream) {
	defer s.Close()
	_ = s.SetDeadline(time.Now().Add(joinPatience))
	remote := s.Conn().RemotePeer()
	var g greeting
	if err := readFrame(s, &g); err != nil {
		_ = s.Reset()
		return
	}
	if err := n.answerGreeting(s, remote, g); err != nil {
		n.log.Info("not admitted", "peer", short(remote), "error", err)
		reason := "not_allowed"
		var r interface{ Reason() string }
		if errors.As(err, &r) {
			reason = r.Reason()
		}
		why := n.revocation(remote)
		if writeFrame(s, answer{Version: Version, Name: n.Name, Reason: reason, Links: len(why)}) == nil {
			_ = writeChain(s, why)
		}
	}
}

// revocation is what tells a peer that it was revoked; empty if it was not.
func (n *Node) revocation(id peer.ID) [][]byte {
	var records [][]byte
	for _, key := range n.Roster().Revocations(id) {
		if s, ok := n.table.Get(membership.KindRevocation, strings.TrimPrefix(key, membership.KindRevocation+"/")); ok {
			records = append(append(records, n.chain(s.Author)...), s.Raw)
		}
	}
	return records[:min(len(records), maxChain)]
}

func (n *Node) answerGreeting(s network.Stream, remote peer.ID, g greeting) error {
	switch {
	case g.Version != Version:
		return protocolMismatch(g.Name, g.Version)
	case g.Mesh != n.Mesh:
		return membership.ErrInviteForeign
	case g.Erased:
		if err := n.noteErased(remote); err != nil {
			return err
		}
		_ = writeFrame(s, answer{Version: Version, Name: n.Name})
		return nil
	case g.Invite != "" && n.Roster().Revoked(remote): // Before a use of the invite is spent.
		return ErrNotMember
	case g.Invite != "":
		return n.admit(s, remote, g)
	}
	chain, err := readChain(s, g.Links)
	if err != nil {
		return err
	}
	if !n.believe(remote, chain) {
		return ErrNotMember
	}
	own := n.chain(n.self)
	if err := writeFrame(s, answer{Version: Version, Name: n.Name, Links: len(own)}); err != nil {
		return nil // Nobody listens any more.
	}
	_ = writeChain(s, own)
	return nil
}

func protocolMismatch(name string, version int) error {
	if name == "" || membership.CheckName(name) != nil {
		name = "the other peer"
	}
	return fmt.Errorf("%w (%s speaks version %d, this one %d)", ErrProtocol, name, version, Version)
}

// admit honours an invite: check, countersign, take the joiner's own record.
// A member that shows an invite is given what proves it, and spends nothing.
func (n *Node) admit(s network.Stream, joiner peer.ID, g greeting) error {
	if n.isMember(joiner) {
		return n.welcome(s, answer{}, n.chain(n.self, joiner))
	}
	issued, stamp, err := n.promise(joiner, g)
	if err != nil {
		return err
	}
	sig, err := membership.Admit(n.Identity, n.Mesh, joiner, g.Invite, stamp)
	if err != nil {
		return err
	}
	if err := n.welcome(s, answer{Invite: issued.Raw, Stamp: stamp, AdmitSig: sig}, n.chain(n.self, issued.Author)); err != nil {
		return nil // Nobody listens any more; the promise stands.
	}
	_ = s.SetReadDeadline(time.Now().Add(ownPatience))
	own, err := readBytes(s, maxFrame)
	if err != nil {
		n.log.Info("joiner went away", "peer", short(joiner), "error", err)
		return nil
	}
	if !n.believe(joiner, [][]byte{own}) {
		return fmt.Errorf("%w: its own record does not say what was agreed", ErrNotMember)
	}
	n.log.Info("admitted", "peer", short(joiner), "name", g.Name)
	_ = writeFrame(s, answer{Version: Version, Name: n.Name})
	return nil
}

// promise checks an invite and writes down that the joiner is admitted by it,
// before anything is signed: the record counts as a use, on every peer and for
// as long as the mesh lives, whether or not the joiner is heard of again.
func (n *Node) promise(joiner peer.ID, g greeting) (issued record.Signed, stamp int64, err error) {
	n.admitting.Lock() // So that two joiners never share the last use of an invite here.
	defer n.admitting.Unlock()
	issue, deleted, used, ok := n.Roster().Issue(g.Invite, joiner)
	if !ok {
		return issued, 0, membership.ErrInviteUnknown
	}
	if !issue.SignedByInvite(n.Mesh, joiner, g.InviteSig) {
		return issued, 0, membership.ErrInviteInvalid
	}
	if me, _ := n.Member(n.self); issue.Role == membership.RoleAdmin && me.Role != membership.RoleAdmin {
		return issued, 0, membership.ErrNeedsAdmin
	}
	now := time.Now()
	if err := issue.Usable(deleted, used, now); err != nil {
		return issued, 0, err
	}
	if issued, ok = n.table.Get(membership.KindInvite, g.Invite); !ok {
		return issued, 0, membership.ErrInviteRevoked
	}
	stamp = now.UnixMilli()
	err = n.PutOwned(membership.KindAdmission, membership.AdmissionID(n.self, g.Invite, joiner), membership.Countersign{Stamp: stamp, InviteSig: g.InviteSig})
	return issued, stamp, err
}

// welcome answers a joiner with what proves this peer, and where members are.
func (n *Node) welcome(s network.Stream, a answer, chain [][]byte) error {
	members := append([]peer.ID{n.self}, n.links.alive()...)
	for _, id := range members[:min(len(members), maxContacts)] {
		if raw, ok := n.table.Raw(record.Key(KindContact, id.String())); ok && len(chain) < maxChain {
			chain = append(chain, raw)
		}
	}
	a.Version, a.Name, a.Links = Version, n.Name, len(chain)
	if err := writeFrame(s, a); err != nil {
		return err
	}
	return writeChain(s, chain)
}

// Admission is what a machine takes home from joining: enough to start a Node
// in that mesh.
type Admission struct {
	Mesh membership.MeshID
	// Admitter is the name of the peer that honoured the invite.
	Admitter string
	// Records prove those by whom this machine was admitted, in an order in
	// which each is proven by those before it, and say where members are.
	Records [][]byte
	// Own is this machine's membership record; empty where it was a member
	// already, and its records are among the others.
	Own []byte
	// Peers are where the mesh was reached.
	Peers []peer.AddrInfo
}

// Join asks the peers named in an invite to let this machine in. It keeps
// nothing: a failure changes nothing on either side.
func Join(ctx context.Context, identity crypto.PrivKey, invite membership.Invite, name, agent string) (Admission, error) {
	if err := membership.CheckName(name); err != nil {
		return Admission{}, err
	}
	if len(invite.Peers) == 0 {
		return Admission{}, fmt.Errorf("%w (it names no peer)", membership.ErrInviteInvalid)
	}
	h, err := newHost(identity, agent, nil, nil)
	if err != nil {
		return Admission{}, err
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*joinPatience)
	defer cancel()

	// All are dialled at once, and asked in the order in which they answer.
	reached := make(chan peer.AddrInfo, len(invite.Peers))
	var dials sync.WaitGroup
	for _, info := range invite.Peers {
		if info.ID == h.ID() {
			continue
		}
		dials.Go(func() {
			// Not Connect, which would wait for an identify that strangers get late.
			h.Peerstore().AddAddrs(info.ID, info.Addrs, time.Minute)
			if _, err := h.Network().DialPeer(ctx, info.ID); err == nil {
				reached <- info
			}
		})
	}
	go func() {
		dials.Wait()
		close(reached)
	}()
	defer func() {
		cancel()
		for range reached { // Until the last dial is over.
		}
	}()
	failure := error(ErrUnreachable)
	for info := range reached {
		one, done := context.WithTimeout(ctx, triedPatience)
		admission, err := joinThrough(one, h, info, identity, invite, name)
		done()
		if err == nil {
			return admission, nil
		}
		failure = err
	}
	return Admission{}, failure
}

func joinThrough(ctx context.Context, h host.Host, info peer.AddrInfo, identity crypto.PrivKey, invite membership.Invite, name string) (Admission, error) {
	conns := h.Network().ConnsToPeer(info.ID)
	if len(conns) == 0 {
		return Admission{}, ErrUnreachable
	}
	s, err := openRaw(ctx, conns[0], ProtocolJoin)
	if err != nil {
		return Admission{}, err
	}
	defer s.Close()
	hello := greeting{Version: Version, Mesh: invite.Mesh, Name: name, Invite: invite.ID(), InviteSig: invite.Sign(h.ID())}
	if err := writeFrame(s, hello); err != nil {
		return Admission{}, err
	}
	a, chain, err := readAnswer(s)
	var refused interface{ Reason() string }
	if err != nil && !errors.As(err, &refused) {
		return Admission{}, fmt.Errorf("%w (%s was reached, but gave no answer: %v)", ErrUnreachable, short(info.ID), err)
	}
	if err != nil {
		return Admission{}, err
	}
	admission := Admission{Mesh: invite.Mesh, Admitter: a.Name, Records: chain, Peers: invite.Peers}
	if len(a.Invite) == 0 { // A member already.
		return admission, provesMember(invite.Mesh, h.ID(), chain)
	}
	own, err := proveMembership(identity, h.ID(), info.ID, invite, name, a, chain)
	if err != nil {
		return Admission{}, err
	}
	if err := writeBytes(s, own); err != nil {
		return Admission{}, err
	}
	if _, _, err := readAnswer(s); err != nil {
		return Admission{}, fmt.Errorf("the invite was taken, but the peer did not confirm it (join again): %w", err)
	}
	admission.Own = own
	return admission, nil
}

// provesMember checks that records reach from the mesh key to a peer.
func provesMember(mesh membership.MeshID, id peer.ID, chain [][]byte) error {
	var records []record.Record
	for _, raw := range chain {
		if s, err := record.Open(raw); err == nil {
			records = append(records, s.Record)
		}
	}
	if _, ok := membership.NewRoster(mesh, records).Member(id); !ok {
		return fmt.Errorf("%w (the peer that answered cannot prove that it belongs to it)", membership.ErrInviteForeign)
	}
	return nil
}

// proveMembership makes the joiner's own record, and checks that the chain that
// it was given reaches from the mesh key to itself.
func proveMembership(identity crypto.PrivKey, self, admitter peer.ID, invite membership.Invite, name string, a answer, chain [][]byte) ([]byte, error) {
	g := membership.Grant{
		Mesh: invite.Mesh, Name: name, Invite: a.Invite, InviteSig: invite.Sign(self),
		Admitter: admitter.String(), Stamp: a.Stamp, AdmitSig: a.AdmitSig,
	}
	id, err := membership.GrantID(self, g)
	if err != nil {
		return nil, err
	}
	payload, err := record.Marshal(g)
	if err != nil {
		return nil, err
	}
	own, err := record.Seal(record.Record{Kind: membership.KindMember, ID: id, Version: record.Version{1, 0, 0}, Payload: payload}, identity)
	if err != nil {
		return nil, err
	}
	return own.Raw, provesMember(invite.Mesh, self, append(slices.Clone(chain), own.Raw))
}

// Adopt takes the records of an Admission.
func (n *Node) Adopt(a Admission) error {
	n.offer(a.Records)
	if len(a.Own) > 0 && !n.isMember(n.self) {
		own, err := record.Open(a.Own)
		if err != nil {
			return err
		}
		var g membership.Grant
		if err := record.Unmarshal(own.Payload, &g); err != nil {
			return err
		}
		// Written anew under this life's own version, which is above the one shown.
		if err := n.putGrant(g); err != nil {
			return err
		}
	}
	if !n.isMember(n.self) {
		return fmt.Errorf("%w: the records of the admission do not prove it", ErrNotMember)
	}
	n.Remember(a.Peers)
	return nil
}

// Remember notes where members may be found, beside what they say themselves.
func (n *Node) Remember(peers []peer.AddrInfo) {
	for _, info := range peers {
		n.host.Peerstore().AddAddrs(info.ID, info.Addrs, 24*time.Hour)
	}
}

func (n *Node) putGrant(g membership.Grant) error {
	id, err := membership.GrantID(n.self, g)
	if err != nil {
		return err
	}
	return n.PutOwned(membership.KindMember, id, g)
}

// Found makes this peer the first admin of a mesh, by the mesh key.
func (n *Node) Found(key membership.MeshKey, meshName string) error {
	if key.ID() != n.Mesh {
		return fmt.Errorf("the key is of mesh %s, not of %s", key.ID(), n.Mesh)
	}
	if err := n.putGrant(key.GrantAdmin(n.self, n.Name)); err != nil {
		return err
	}
	return n.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: meshName})
}

// InviteOptions say what an invite allows.
type InviteOptions struct {
	Role  membership.Role
	Trust membership.Trust
	// Uses is how many machines may join with it, 1 to 1000.
	Uses int
	// TTL is how long it holds, up to a year.
	TTL   time.Duration
	Label string
}

// Invite makes an invite and tells the mesh of it. lanOnly says that none of
// the addresses in it can be reached from the internet.
func (n *Node) Invite(o InviteOptions) (invite membership.Invite, lanOnly bool, err error) {
	if m, _ := n.Member(n.self); m.Role != membership.RoleAdmin {
		return invite, false, fmt.Errorf("an invite is made on an admin's machine: %w", membership.ErrNotAllowed)
	}
	if o.Uses < 1 || o.Uses > 1000 || o.TTL <= 0 || o.TTL > 366*24*time.Hour {
		return invite, false, fault("invalid_request", "an invite has 1 to 1000 uses and holds for up to a year")
	}
	if invite, err = membership.NewInvite(n.Mesh); err != nil {
		return invite, false, err
	}
	own := n.host.Addrs()
	invite.Peers = []peer.AddrInfo{{ID: n.self, Addrs: own}}
	for _, p := range n.links.alive() {
		if c, ok := n.contact(p); ok && len(invite.Peers) < membership.MaxInvitePeers {
			invite.Peers = append(invite.Peers, peer.AddrInfo{ID: p, Addrs: c})
		}
	}
	err = n.PutShared(membership.KindInvite, invite.ID(), membership.Issue{
		Public: invite.Public(), Role: o.Role, Trust: o.Trust, Uses: o.Uses,
		Expires: time.Now().Add(o.TTL).UnixMilli(), Label: o.Label,
	})
	return invite, localOnly(own), err
}
