package p2p

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	msmux "github.com/multiformats/go-multistream"
	"golang.org/x/sync/errgroup"

	"relay/p2p/membership"
	"relay/p2p/record"
)

const (
	// joinPatience bounds one conversation of the join protocol.
	joinPatience = 10 * time.Second
	// maxChain bounds the records that prove a member.
	maxChain = 256
)

// greeting opens every stream of the join protocol, in both its uses.
type greeting struct {
	Version int               `cbor:"1,keyasint"`
	Mesh    membership.MeshID `cbor:"2,keyasint"`
	Name    string            `cbor:"3,keyasint,omitempty"`
	// Chain proves a member: the records from the mesh key's grant to its own.
	Chain [][]byte `cbor:"4,keyasint,omitempty"`
	// Invite and InviteSig are of a machine that is not a member yet.
	Invite    string `cbor:"5,keyasint,omitempty"`
	InviteSig []byte `cbor:"6,keyasint,omitempty"`
}

// answer is what a member says to a greeting and to a joiner's record.
type answer struct {
	Version int    `cbor:"1,keyasint"`
	Name    string `cbor:"2,keyasint,omitempty"`
	// Reason and Message are of a refusal.
	Reason  string `cbor:"3,keyasint,omitempty"`
	Message string `cbor:"4,keyasint,omitempty"`
	// Chain proves the peer that answers, and who issued the invite.
	Chain [][]byte `cbor:"5,keyasint,omitempty"`
	// Invite is the invite's record; Stamp and AdmitSig admit a joiner by it.
	Invite   []byte `cbor:"6,keyasint,omitempty"`
	Stamp    int64  `cbor:"7,keyasint,omitempty"`
	AdmitSig []byte `cbor:"8,keyasint,omitempty"`
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
		membership.ErrInviteInvalid, membership.ErrInviteForeign, ErrProtocol, ErrNotMember, ErrBusy} {
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
	if err := writeFrame(s, greeting{Version: Version, Mesh: n.Mesh, Name: n.Name, Chain: n.chain(n.self)}); err != nil {
		_ = s.Reset()
		return err
	}
	var a answer
	if err := readFrame(s, maxFrame, &a); err != nil {
		_ = s.Reset()
		return err
	}
	if a.Version != Version {
		return protocolMismatch(a.Name, a.Version)
	}
	if err := a.refusal(); err != nil {
		return err
	}
	n.offerChain(a.Chain)
	return nil
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
	seen := map[peer.ID]bool{}
	for _, id := range ids {
		for _, link := range membership.Chain(id, n.grant) {
			raw, ok := n.table.Raw(record.Key(membership.KindMember, link.String()))
			if ok && !seen[link] {
				seen[link] = true
				chain = append(chain, raw)
			}
		}
	}
	return chain
}

// grant looks a membership up, also of a peer that has left.
func (n *Node) grant(id peer.ID) (g membership.Grant, ok bool) {
	r, ok := n.table.Latest(membership.KindMember, id.String())
	return g, ok && record.Unmarshal(r.Payload, &g) == nil
}

// offerChain takes the records that somebody showed as proof, in their order.
// A record that is wrong proves nothing and is dropped.
func (n *Node) offerChain(chain [][]byte) {
	for _, raw := range chain[:min(len(chain), maxChain)] {
		s, err := record.Open(raw)
		if err != nil || s.Kind != membership.KindMember {
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

// handleJoin answers strangers and members alike: whoever shows the proof of a
// membership is let in, whoever shows an invite is admitted by it.
func (n *Node) handleJoin(s network.Stream) {
	defer s.Close()
	_ = s.SetDeadline(time.Now().Add(joinPatience))
	remote := s.Conn().RemotePeer()
	var g greeting
	if err := readFrame(s, maxFrame, &g); err != nil {
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
		_ = writeFrame(s, answer{Version: Version, Name: n.Name, Reason: reason, Message: err.Error()})
	}
}

func (n *Node) answerGreeting(s network.Stream, remote peer.ID, g greeting) error {
	switch {
	case g.Version != Version:
		return protocolMismatch(g.Name, g.Version)
	case g.Mesh != n.Mesh:
		return membership.ErrInviteForeign
	case g.Invite != "":
		return n.admit(s, remote, g)
	}
	n.offerChain(g.Chain)
	if !n.isMember(remote) {
		return ErrNotMember
	}
	return writeFrame(s, answer{Version: Version, Name: n.Name, Chain: n.chain(n.self)})
}

func protocolMismatch(name string, version int) error {
	if name == "" || membership.CheckName(name) != nil {
		name = "the other peer"
	}
	return fmt.Errorf("%w (%s speaks version %d, this one %d)", ErrProtocol, name, version, Version)
}

// admit honours an invite: check, countersign, take the joiner's own record.
// One at a time, so that two joiners never share the last use of an invite here.
func (n *Node) admit(s network.Stream, joiner peer.ID, g greeting) error {
	n.admitting.Lock()
	defer n.admitting.Unlock()
	roster := n.Roster()
	if m, ok := roster.Member(joiner); ok && m.Invite == g.Invite { // Joined before and lost the answer.
		return n.welcome(s, joiner, g)
	}
	issue, deleted, used, ok := roster.Issue(g.Invite)
	if !ok {
		return fmt.Errorf("%w, and no peer that was asked knows it", membership.ErrInviteInvalid)
	}
	if !issue.SignedByInvite(n.Mesh, joiner, g.InviteSig) {
		return membership.ErrInviteInvalid
	}
	now := time.Now()
	if err := issue.Usable(deleted, used+n.outstanding(g.Invite, joiner, now), now); err != nil {
		return err
	}
	return n.welcome(s, joiner, g)
}

// outstanding counts the peers that were countersigned here lately and whose
// own records have not come yet.
func (n *Node) outstanding(invite string, but peer.ID, now time.Time) int {
	count := 0
	for id, at := range n.promised[invite] {
		switch {
		case n.isMember(id) || now.Sub(at) > 10*joinPatience:
			delete(n.promised[invite], id)
		case id != but:
			count++
		}
	}
	return count
}

func (n *Node) welcome(s network.Stream, joiner peer.ID, g greeting) error {
	stamp, sig, err := membership.Admit(n.Identity, n.Mesh, joiner, g.Invite, time.Now())
	if err != nil {
		return err
	}
	if n.promised[g.Invite] == nil {
		n.promised[g.Invite] = map[peer.ID]time.Time{}
	}
	n.promised[g.Invite][joiner] = time.Now()
	issued, ok := n.table.Get(membership.KindInvite, g.Invite)
	if !ok {
		return membership.ErrInviteRevoked
	}
	chain := n.chain(n.self, issued.Author)
	if len(chain) > maxChain {
		return fmt.Errorf("the proof of this peer's membership has %d records, above the limit of %d", len(chain), maxChain)
	}
	if err := writeFrame(s, answer{Version: Version, Name: n.Name, Chain: chain, Invite: issued.Raw, Stamp: stamp, AdmitSig: sig}); err != nil {
		return nil // Nobody listens any more.
	}
	var own [1][]byte
	if err := readFrame(s, maxFrame, &own); err != nil {
		n.log.Info("joiner went away", "peer", short(joiner), "error", err)
		return nil
	}
	n.offerChain(own[:])
	if !n.isMember(joiner) {
		return fmt.Errorf("%w: its own record does not say what was agreed", ErrNotMember)
	}
	delete(n.promised[g.Invite], joiner)
	n.log.Info("admitted", "peer", short(joiner), "name", g.Name)
	return writeFrame(s, answer{Version: Version, Name: n.Name})
}

// Admission is what a machine takes home from joining: enough to start a Node
// in that mesh.
type Admission struct {
	Mesh membership.MeshID
	// Admitter is the name of the peer that honoured the invite.
	Admitter string
	// Records prove those by whom this machine was admitted, in an order in
	// which each is proven by those before it.
	Records [][]byte
	// Own is this machine's membership record.
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
	h, err := newHost(identity, agent, nil)
	if err != nil {
		return Admission{}, err
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*joinPatience)
	defer cancel()

	var group errgroup.Group
	reached := make([]bool, len(invite.Peers))
	for i, info := range invite.Peers {
		if info.ID == h.ID() {
			continue
		}
		group.Go(func() error {
			// Not Connect, which would wait for an identify that strangers get late.
			h.Peerstore().AddAddrs(info.ID, info.Addrs, time.Minute)
			_, err := h.Network().DialPeer(ctx, info.ID)
			reached[i] = err == nil
			return nil
		})
	}
	_ = group.Wait()

	failure := error(ErrUnreachable)
	for i, info := range invite.Peers {
		if !reached[i] {
			continue
		}
		admission, err := joinThrough(ctx, h, info, identity, invite, name)
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
	var a answer
	if err := readFrame(s, maxFrame, &a); err != nil {
		return Admission{}, fmt.Errorf("no answer to the invite: %w", err)
	}
	if a.Version != Version {
		return Admission{}, protocolMismatch(a.Name, a.Version)
	}
	if err := a.refusal(); err != nil {
		return Admission{}, err
	}
	own, err := proveMembership(identity, h.ID(), info.ID, invite, name, a)
	if err != nil {
		return Admission{}, err
	}
	if err := writeFrame(s, [1][]byte{own.Raw}); err != nil {
		return Admission{}, err
	}
	var done answer
	if err := readFrame(s, maxFrame, &done); err != nil {
		return Admission{}, fmt.Errorf("the invite was taken, but the peer did not confirm it (join again): %w", err)
	}
	if err := done.refusal(); err != nil {
		return Admission{}, err
	}
	return Admission{Mesh: invite.Mesh, Admitter: a.Name, Records: a.Chain, Own: own.Raw, Peers: invite.Peers}, nil
}

// proveMembership makes the joiner's own record, and checks that the chain that
// it was given reaches from the mesh key to itself.
func proveMembership(identity crypto.PrivKey, self, admitter peer.ID, invite membership.Invite, name string, a answer) (record.Signed, error) {
	payload, err := record.Marshal(membership.Grant{
		Mesh: invite.Mesh, Name: name, Invite: a.Invite, InviteSig: invite.Sign(self),
		Admitter: admitter.String(), Stamp: a.Stamp, AdmitSig: a.AdmitSig,
	})
	if err != nil {
		return record.Signed{}, err
	}
	own, err := record.Seal(record.Record{
		Kind: membership.KindMember, ID: self.String(), Version: record.Version{1, 0, 0}, Payload: payload,
	}, identity)
	if err != nil {
		return record.Signed{}, err
	}
	records := []record.Record{own.Record}
	for _, raw := range a.Chain[:min(len(a.Chain), maxChain)] {
		if s, err := record.Open(raw); err == nil {
			records = append(records, s.Record)
		}
	}
	if _, ok := membership.NewRoster(invite.Mesh, records).Member(self); !ok {
		return record.Signed{}, fmt.Errorf("%w (the peer that answered cannot prove that it belongs to it)", membership.ErrInviteForeign)
	}
	return own, nil
}

// Adopt takes the records of an Admission.
func (n *Node) Adopt(a Admission) error {
	n.offerChain(a.Records)
	own, err := record.Open(a.Own)
	if err != nil {
		return err
	}
	var g membership.Grant
	if err := record.Unmarshal(own.Payload, &g); err != nil {
		return err
	}
	// Written anew under this life's own version, which is above the one shown.
	if err := n.PutOwned(membership.KindMember, n.self.String(), g); err != nil {
		return err
	}
	if !n.isMember(n.self) {
		return fmt.Errorf("%w: the records of the admission do not prove it", ErrNotMember)
	}
	for _, info := range a.Peers {
		n.host.Peerstore().AddAddrs(info.ID, info.Addrs, time.Hour)
	}
	return nil
}

// Found makes this peer the first admin of a mesh, by the mesh key.
func (n *Node) Found(key membership.MeshKey, meshName string) error {
	if key.ID() != n.Mesh {
		return fmt.Errorf("the key is of mesh %s, not of %s", key.ID(), n.Mesh)
	}
	if err := n.PutOwned(membership.KindMember, n.self.String(), key.GrantAdmin(n.self, n.Name)); err != nil {
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
		return invite, false, errors.New("an invite has 1 to 1000 uses and holds for up to a year")
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
