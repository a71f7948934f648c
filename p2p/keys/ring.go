package keys

import (
	"crypto/subtle"
	"fmt"
	"time"

	"relay/p2p/record"
)

// maxSecret bounds what is hashed of a secret that somebody sent, in bytes.
const maxSecret = 256

// MinLocal is how long RELAY_API_KEY should be at least, in bytes: who can guess it
// may use the mesh.
const MinLocal = 16

// LocalID is the id under which requests with the environment's key are counted,
// LocalName what it is called.
const (
	LocalID   = "env"
	LocalName = "RELAY_API_KEY"
)

// Ring says which secrets open one peer's door: those of the mesh's key
// records, and the one that the environment of this peer gives. It keeps nothing
// of a secret that opens nothing.
type Ring struct {
	table *record.Table
	local []byte // Hash of the environment's key; nil without one.
	weak  bool   // It is shorter than MinLocal.
	now   func() time.Time
}

// NewRing makes the ring of a peer; local is the value of RELAY_API_KEY or "".
func NewRing(table *record.Table, local string) *Ring {
	r := &Ring{table: table, now: time.Now}
	if local != "" {
		r.local, r.weak = Hash(local), len(local) < MinLocal
	}
	return r
}

// Check says what a secret may do. It takes the same time whatever of a known
// key's secret is wrong. Expiry is judged by this machine's clock. Errors:
// ErrUnknown, ErrExpired, ErrReplaced.
func (r *Ring) Check(secret string) (Grant, error) {
	if len(secret) > maxSecret {
		return Grant{}, ErrUnknown
	}
	hash := Hash(secret)
	if r.local != nil && subtle.ConstantTimeCompare(hash, r.local) == 1 {
		return Grant{ID: LocalID, Name: LocalName}, nil
	}
	id, ok := IDOf(secret)
	if !ok {
		return Grant{}, ErrUnknown
	}
	rec, ok := r.table.Get(Kind, id)
	if !ok {
		return Grant{}, ErrUnknown
	}
	var k Key
	if err := record.Unmarshal(rec.Payload, &k); err != nil {
		return Grant{}, ErrUnknown
	}
	current, former := subtle.ConstantTimeCompare(hash, k.Hash), subtle.ConstantTimeCompare(hash, k.Former)
	now := r.now().Unix()
	switch {
	case current|former == 0:
		return Grant{}, ErrUnknown
	case k.Expires != 0 && now >= k.Expires:
		return Grant{}, ErrExpired
	case current == 0 && now >= k.FormerUntil:
		return Grant{}, ErrReplaced
	}
	return k.grant(id), nil
}

// Any says whether there is any key with which the door could be opened.
func (r *Ring) Any() bool { return r.local != nil || r.table.Live(Kind) > 0 }

// Local says whether the environment of this peer gives a key.
func (r *Ring) Local() bool { return r.local != nil }

// Warning is the sentence about an environment's key that is easily guessed, or "".
func (r *Ring) Warning() string {
	if !r.weak {
		return ""
	}
	return fmt.Sprintf("the key in RELAY_API_KEY has fewer than %d characters and can be guessed: set a longer one, or none, and start again", MinLocal)
}

// good is how many keys of the mesh have not expired.
func (r *Ring) good() (n int) {
	now := r.now().Unix()
	for _, rec := range r.table.List(Kind) {
		var k Key
		if record.Unmarshal(rec.Payload, &k) == nil && (k.Expires == 0 || now < k.Expires) {
			n++
		}
	}
	return n
}

// Text says for people how the door is secured.
func (r *Ring) Text() string {
	n := r.good()
	switch {
	case r.local != nil && n == 0:
		return "the key in RELAY_API_KEY"
	case r.local != nil:
		return fmt.Sprintf("the key in RELAY_API_KEY and %d of the mesh", n)
	case n == 0:
		return "no key opens it: an admin can make one (relay key add)"
	case n == 1:
		return "1 key of the mesh"
	}
	return fmt.Sprintf("%d keys of the mesh", n)
}
