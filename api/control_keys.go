package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/p2p/keys"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler"
)

// ControlKeys is what the control API needs to know of keys beside their records.
type ControlKeys interface {
	// Text says how the door is secured, Warning what is wrong with that, or "".
	Text() string
	Warning() string
	// Local says whether the environment of this peer gives a key.
	Local() bool
	// Sum is what a key has used in the mesh, as far as is known here.
	Sum(key string) keys.Used
	// DefaultSecret is the text of the default key where it was made on this machine,
	// KeepDefault keeps another one.
	DefaultSecret() (secret string, made bool)
	KeepDefault(secret string) error
}

// MaxOverlap bounds for how long the secret from before a rotation is still good.
const MaxOverlap = 366 * 24 * time.Hour

// AddKeyRequest asks for a key. The zero limits are none.
type AddKeyRequest struct {
	Name   string   `json:"name"`
	Models []string `json:"models,omitempty"`
	// Expires is in Unix seconds; 0 is never.
	Expires           int64         `json:"expires,omitempty"`
	RequestsPerMinute int           `json:"requests_per_minute,omitempty"`
	TokensPerDay      int64         `json:"tokens_per_day,omitempty"`
	Concurrency       int           `json:"max_concurrency,omitempty"`
	Priority          keys.Priority `json:"priority,omitempty"`
}

// RotateKeyRequest asks for another secret of a key. Until OverlapSeconds have passed
// the present one is good as well.
type RotateKeyRequest struct {
	Name           string `json:"name"`
	OverlapSeconds int64  `json:"overlap_s,omitempty"`
}

// KeyShown is one key in a listing. A limit that is 0 is none.
type KeyShown struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Default: it is the key that founding the mesh made.
	Default bool      `json:"default"`
	Created time.Time `json:"created"`
	// Models are those that it is for; none is all.
	Models []string `json:"models"`
	// Expires is null where it never does; State is good or expired, as this peer
	// would judge it now.
	Expires           *time.Time    `json:"expires"`
	State             string        `json:"state"`
	RequestsPerMinute int           `json:"requests_per_minute"`
	TokensPerDay      int64         `json:"tokens_per_day"`
	Concurrency       int           `json:"max_concurrency"`
	Priority          keys.Priority `json:"priority"`
	// FormerUntil is until when the secret from before the last rotation is good; null
	// where it is not.
	FormerUntil *time.Time `json:"former_until"`
	// Today is since midnight UTC, Total since the key is in use; both of all peers, as
	// far as is known here.
	Today   KeyUse `json:"today"`
	Total   KeyUse `json:"total"`
	Running int64  `json:"running"`
}

// KeyUse is what a key has used.
type KeyUse struct {
	Requests   int64 `json:"requests"`
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// KeyList is the answer of /v0/keys.
type KeyList struct {
	Keys []KeyShown `json:"keys"`
	// Environment is what the key in RELAY_API_KEY of the peers has used today; it is
	// null where this peer's environment gives none.
	Environment *KeyUse `json:"environment"`
	// Away are the peers of whose use only what they told last is known.
	Away []PeerName `json:"away"`
}

// KeyMade is a key with its secret, which nobody is shown again.
type KeyMade struct {
	KeyShown
	Secret   string   `json:"secret"`
	Warnings []string `json:"warnings"`
}

// DefaultKey is the answer about the default key.
type DefaultKey struct {
	KeyShown
	// Secret is empty where it is not kept on this machine; KeptOn is then the name of the
	// machine on which it was made.
	Secret string `json:"secret,omitempty"`
	KeptOn string `json:"kept_on,omitempty"`
	// Environment: RELAY_API_KEY opens this peer's door as well.
	Environment bool `json:"environment"`
}

func (c *Control) routeKeys(mux *http.ServeMux) {
	mux.HandleFunc("GET /v0/keys", atOnce(c, func(*http.Request) (KeyList, error) { return c.listKeys(), nil }))
	mux.HandleFunc("POST /v0/keys/add", atOnce(c, c.addKey))
	mux.HandleFunc("POST /v0/keys/rm", atOnce(c, c.removeKey))
	mux.HandleFunc("POST /v0/keys/rotate", atOnce(c, c.rotateKey))
	mux.HandleFunc("GET /v0/keys/default", atOnce(c, func(*http.Request) (DefaultKey, error) { return c.defaultKey() }))
}

// knownKey is a key of the mesh.
type knownKey struct {
	keys.Key
	id     string
	author string // Name of the peer that wrote it last.
}

func (k knownKey) shown(used keys.Used, now time.Time) KeyShown {
	s := KeyShown{
		ID: k.id, Name: k.Name, Default: k.Name == keys.DefaultName, Created: time.Unix(k.Created, 0).UTC(), Models: k.Models, State: "good",
		RequestsPerMinute: k.RequestsPerMinute, TokensPerDay: k.TokensPerDay, Concurrency: k.Concurrency, Priority: k.Priority,
		Today: KeyUse{used.Requests, used.Prompt, used.Completion}, Total: KeyUse{used.TotalRequests, used.TotalPrompt, used.TotalCompletion}, Running: used.Running,
	}
	if s.Models == nil {
		s.Models = []string{}
	}
	if s.Priority == "" {
		s.Priority = keys.Normal
	}
	if k.Expires != 0 {
		at := time.Unix(k.Expires, 0).UTC()
		if s.Expires = &at; !now.Before(at) {
			s.State = "expired"
		}
	}
	if until := time.Unix(k.FormerUntil, 0).UTC(); len(k.Former) > 0 && now.Before(until) {
		s.FormerUntil = &until
	}
	return s
}

// knownKeys are the keys of the mesh, by name.
func (c *Control) knownKeys() (list []knownKey) {
	for _, r := range c.Mesh.Table().List(keys.Kind) {
		k := knownKey{id: r.ID, author: c.Members.NameOf(r.Author)}
		if record.Unmarshal(r.Payload, &k.Key) == nil {
			list = append(list, k)
		}
	}
	slices.SortStableFunc(list, func(a, b knownKey) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (c *Control) listKeys() KeyList {
	l := KeyList{Keys: []KeyShown{}, Away: []PeerName{}}
	now := time.Now()
	for _, k := range c.knownKeys() {
		l.Keys = append(l.Keys, k.shown(c.Keys.Sum(k.id), now))
	}
	if c.Keys.Local() {
		used := c.Keys.Sum(keys.LocalID)
		l.Environment = &KeyUse{used.Requests, used.Prompt, used.Completion}
	}
	for _, p := range c.Scheduler.Peers() {
		if p.State == string(liveness.Gone) {
			l.Away = append(l.Away, PeerName{p.ID, p.Name})
		}
	}
	return l
}

// findKey names one key by its whole name, its id, or a unique beginning of that.
// Of a name no part is enough: what is asked for cannot be taken back.
func (c *Control) findKey(name string) (knownKey, error) {
	var exact, begin []knownKey
	near := ""
	for _, k := range c.knownKeys() {
		switch {
		case name == "":
		case k.id == name, k.Name == name:
			exact = append(exact, k)
		case strings.HasPrefix(k.id, name):
			begin = append(begin, k)
		case strings.HasPrefix(k.Name, name):
			near = fmt.Sprintf("; the whole name of a key is wanted, such as %q", k.Name)
		}
	}
	found := exact
	if len(found) == 0 {
		found = begin
	}
	switch len(found) {
	case 0:
		return knownKey{}, scheduler.Errorf(scheduler.NotFound, "no key %.80q in this mesh (relay key ls)%s", name, near)
	case 1:
		return found[0], nil
	}
	var list []string
	for _, k := range found {
		list = append(list, k.Name+" ("+k.id+")")
	}
	return knownKey{}, scheduler.Errorf(scheduler.InvalidRequest, "%q could mean %s: say which by its id", name, strings.Join(list, ", "))
}

func (c *Control) mayChangeKeys() error {
	if me, _ := c.Mesh.Roster().Member(c.Mesh.Self()); me.Role != membership.RoleAdmin {
		return scheduler.Errorf(scheduler.NotAllowed, "keys are made, rotated and taken back on an admin's machine (relay peer ls shows which): %w", membership.ErrNotAllowed)
	}
	return nil
}

func (c *Control) addKey(r *http.Request) (KeyMade, error) {
	var q AddKeyRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return KeyMade{}, err
	}
	if err := c.mayChangeKeys(); err != nil {
		return KeyMade{}, err
	}
	now := time.Now()
	secret, id, err := keys.New()
	if err != nil {
		return KeyMade{}, err
	}
	k := keys.Key{Name: q.Name, Hash: keys.Hash(secret), Created: now.Unix(), Models: q.Models, Expires: q.Expires,
		RequestsPerMinute: q.RequestsPerMinute, TokensPerDay: q.TokensPerDay, Concurrency: q.Concurrency}
	if q.Priority != keys.Normal {
		k.Priority = q.Priority
	}
	if err := c.mayMake(k, now); err != nil {
		return KeyMade{}, err
	}
	if err := c.trueNames(k.Models); err != nil {
		return KeyMade{}, err
	}
	return c.writeKey(knownKey{Key: k, id: id}, secret)
}

// mayMake names what a new key cannot be.
func (c *Control) mayMake(k keys.Key, now time.Time) error {
	if err := k.Check(); err != nil {
		return scheduler.Errorf(scheduler.InvalidRequest, "%w", err)
	}
	if k.Expires != 0 && k.Expires <= now.Unix() {
		return scheduler.Errorf(scheduler.InvalidRequest, "the key would have expired on %s already", time.Unix(k.Expires, 0).UTC().Format(time.RFC3339))
	}
	if k.Priority != "" && k.Priority != keys.Batch {
		return scheduler.Errorf(scheduler.InvalidRequest, "%q is no priority: %s or %s", k.Priority, keys.Normal, keys.Batch)
	}
	known := c.knownKeys()
	switch {
	case k.Name == keys.LocalID || k.Name == keys.LocalName:
		return scheduler.Errorf(scheduler.NameTaken, "%q is what the key of a peer's environment is called", k.Name)
	case slices.ContainsFunc(known, func(other knownKey) bool { return other.Name == k.Name }):
		return scheduler.Errorf(scheduler.NameTaken, "there is a key %q already: give this one another name, or have that one rotated (relay key rotate)", k.Name)
	case slices.ContainsFunc(known, func(other knownKey) bool { return other.id == k.Name }):
		return scheduler.Errorf(scheduler.NameTaken, "%q is the id of another key", k.Name)
	case len(known) >= keys.MaxKeys:
		return scheduler.Errorf(scheduler.NoCapacity, "there are %d keys, and no more are possible: take some back first (relay key rm)", len(known))
	}
	return nil
}

// trueNames refuses what means a model and is not its name: a key is for models by name.
func (c *Control) trueNames(models []string) error {
	for _, name := range models {
		if m, err := c.Scheduler.Model(name); err == nil && m.Name != name {
			return scheduler.Errorf(scheduler.InvalidRequest, "%q is another name of the model %q: keys are for models by their own names, so say --models %s", name, m.Name, m.Name)
		}
	}
	return nil
}

// writeKey writes a key with a secret that was made now.
func (c *Control) writeKey(k knownKey, secret string) (KeyMade, error) {
	kept, _ := c.Mesh.Table().Get(keys.Kind, k.id)
	payload, err := record.MarshalOver(k.Key, kept.Payload)
	if err != nil {
		return KeyMade{}, err
	}
	if _, err := c.Mesh.Table().PutShared(keys.Kind, k.id, payload); err != nil {
		return KeyMade{}, err
	}
	made := KeyMade{KeyShown: k.shown(c.Keys.Sum(k.id), time.Now()), Secret: secret, Warnings: []string{}}
	if k.Name == keys.DefaultName {
		if err := c.Keys.KeepDefault(secret); err != nil {
			made.Warnings = append(made.Warnings, fmt.Sprintf("this machine could not keep the secret for `relay token --api`: %v", err))
		}
	}
	models := c.Scheduler.ModelStates()
	for _, name := range k.Models {
		if !slices.ContainsFunc(models, func(m scheduler.ModelState) bool { return m.Name == name }) {
			made.Warnings = append(made.Warnings, fmt.Sprintf("there is no model %q in the mesh now; the key is for it once there is", name))
		}
	}
	return made, nil
}

func (c *Control) removeKey(r *http.Request) (KeyShown, error) {
	var q NameRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return KeyShown{}, err
	}
	if err := c.mayChangeKeys(); err != nil {
		return KeyShown{}, err
	}
	k, err := c.findKey(q.Name)
	if err != nil {
		return KeyShown{}, err
	}
	used := c.Keys.Sum(k.id) // What others tell of it is forgotten with it.
	_, err = c.Mesh.Table().DeleteShared(keys.Kind, k.id)
	return k.shown(used, time.Now()), err
}

func (c *Control) rotateKey(r *http.Request) (KeyMade, error) {
	var q RotateKeyRequest
	if err := decodeBody(r.Body, &q); err != nil {
		return KeyMade{}, err
	}
	if q.OverlapSeconds < 0 || q.OverlapSeconds > int64(MaxOverlap/time.Second) {
		return KeyMade{}, scheduler.Errorf(scheduler.InvalidRequest, "an overlap of %d seconds: 0 to %d are possible", q.OverlapSeconds, MaxOverlap/time.Second)
	}
	if err := c.mayChangeKeys(); err != nil {
		return KeyMade{}, err
	}
	k, err := c.findKey(q.Name)
	if err != nil {
		return KeyMade{}, err
	}
	now := time.Now()
	if k.shown(keys.Used{}, now).State == "expired" {
		return KeyMade{}, scheduler.Errorf(scheduler.InvalidRequest, "the key %q has expired, and so would its new secret: take it back (relay key rm) and make another one", k.Name)
	}
	secret, hash, err := keys.NewSecret(k.id)
	if err != nil {
		return KeyMade{}, err
	}
	former := k.Hash
	if k.Hash, k.Former, k.FormerUntil = hash, nil, 0; q.OverlapSeconds > 0 {
		k.Former, k.FormerUntil = former, now.Unix()+q.OverlapSeconds
	}
	return c.writeKey(k, secret)
}

// defaultKey is the default key, with its secret where this machine has it.
func (c *Control) defaultKey() (DefaultKey, error) {
	known := slices.DeleteFunc(c.knownKeys(), func(k knownKey) bool { return k.Name != keys.DefaultName })
	if len(known) == 0 {
		if c.Keys.Local() {
			return DefaultKey{}, scheduler.Errorf(scheduler.NotFound, "this mesh has no default key: what opens this peer's door is the key in RELAY_API_KEY, and keys that an admin makes (relay key add)")
		}
		return DefaultKey{}, scheduler.Errorf(scheduler.NotFound, "this mesh has no default key: it was founded with RELAY_API_KEY set, or the key was taken back; an admin makes one with relay key add %s", keys.DefaultName)
	}
	secret, made := c.Keys.DefaultSecret()
	of := 0 // Two sides of a cut may have made one each.
	if made {
		of = max(0, slices.IndexFunc(known, func(k knownKey) bool { return slices.Equal(keys.Hash(secret), k.Hash) }))
	}
	k := known[of]
	d := DefaultKey{KeyShown: k.shown(c.Keys.Sum(k.id), time.Now()), Environment: c.Keys.Local()}
	if made && slices.Equal(keys.Hash(secret), k.Hash) {
		d.Secret = secret
	} else {
		d.KeptOn = k.author
	}
	return d, nil
}
