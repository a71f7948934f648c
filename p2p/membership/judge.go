package membership

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// maxRemembered bounds the grants whose signatures a Judge remembers.
const maxRemembered = 8192

// Judge checks the signatures of grants, each once: they do not depend on what
// else is known, and a roster is worked out anew at every change of one record.
type Judge struct {
	mesh MeshID

	mu sync.Mutex
	// The last maxRemembered at least, and twice that at most.
	known, before map[[sha256.Size]byte]facts
}

// NewJudge makes a judge of one mesh's grants.
func NewJudge(mesh MeshID) *Judge {
	return &Judge{mesh: mesh, known: map[[sha256.Size]byte]facts{}}
}

// facts are what a grant says by itself, its signatures checked.
type facts struct {
	good   bool
	member Member
	// leans are the invite's author and the admitter, in that order; none for
	// the mesh key's own grants.
	leans []peer.ID
	// admission is the id of the admitter's record, stamp that of its clock, and
	// uses how many the invite allows.
	admission string
	stamp     int64
	uses      int
}

// leanAuthor is where the author of the invite stands among the leans.
const leanAuthor = 0

// facts reads a membership record.
func (j *Judge) facts(rec record.Record) facts {
	key := sha256.Sum256(append([]byte(rec.Author), rec.Payload...)) // Ids of ed25519 peers have one length.
	f, ok := j.remembered(key)
	if ok {
		return f
	}
	var g Grant
	if record.Unmarshal(rec.Payload, &g) == nil && g.Mesh == j.mesh {
		f = j.check(rec.Author, g)
	}
	j.remember(key, f)
	return f
}

func (j *Judge) check(id peer.ID, g Grant) facts {
	if len(g.Root) > 0 {
		if len(g.Root) != ed25519.PublicKeySize || IDOf(g.Root) != j.mesh || !ed25519.Verify(g.Root, rootClaim(j.mesh, id), g.RootSig) {
			return facts{}
		}
		return facts{good: true, member: Member{ID: id, Name: g.Name, Role: RoleAdmin, Trust: TrustReplicas}}
	}
	i, author, err := g.issued()
	if err != nil {
		return facts{}
	}
	invite := InviteID(i.Public)
	admitter, err := peer.Decode(g.Admitter)
	if err != nil || !i.SignedByInvite(j.mesh, id, g.InviteSig) || !verifiedBy(admitter, admitClaim(j.mesh, id, invite, g.Stamp), g.AdmitSig) {
		return facts{}
	}
	return facts{
		good: true, member: Member{ID: id, Name: g.Name, Role: i.Role, Trust: i.Trust, Invite: invite},
		leans: []peer.ID{author, admitter}, admission: AdmissionID(admitter, invite, id), stamp: g.Stamp, uses: i.Uses,
	}
}

// asked says whether a joiner showed an invite: the invite's signature is right.
func (j *Judge) asked(i Issue, joiner peer.ID, sig []byte) bool {
	key := sha256.Sum256(bytes.Join([][]byte{[]byte("asked"), i.Public, []byte(joiner), sig}, []byte{0}))
	f, ok := j.remembered(key)
	if !ok {
		f = facts{good: len(sig) == ed25519.SignatureSize && i.SignedByInvite(j.mesh, joiner, sig)}
		j.remember(key, f)
	}
	return f.good
}

func (j *Judge) remember(key [sha256.Size]byte, f facts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.known) >= maxRemembered {
		j.before, j.known = j.known, map[[sha256.Size]byte]facts{}
	}
	j.known[key] = f
}

func (j *Judge) remembered(key [sha256.Size]byte) (facts, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, ok := j.known[key]
	if !ok {
		f, ok = j.before[key]
	}
	return f, ok
}
