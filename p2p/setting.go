package p2p

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// KindSetting is one thing that an admin has said of a member. There is a record
// for each, so that two changes on two sides of a cut both live; what is taken
// away is a deleted record. Ids are the peer's id and one of name, label/KEY,
// cordon and drain.
const KindSetting = "setting"

// Setting is the payload of a setting record.
type Setting struct {
	Value string `cbor:"1,keyasint"`
}

const (
	// MaxLabels bounds the labels of one peer, MaxLabelLength their keys and
	// their values in bytes.
	MaxLabels      = 32
	MaxLabelLength = 63
	// maxSetting bounds the value of any setting, in bytes.
	maxSetting = 256

	settingName   = "name"
	settingCordon = "cordon"
	settingDrain  = "drain"
	labelPrefix   = "label/"
	// settingOn is the value of what is either there or not.
	settingOn = "yes"
)

// ErrNameTaken: names tell machines apart.
var ErrNameTaken = fault("name_taken", "another machine of the mesh is called that")

func settingKind() record.Kind {
	return record.Kind{Name: KindSetting, Rule: record.Shared, Check: checkSetting}
}

func settingID(id peer.ID, what string) string { return id.String() + "/" + what }

// checkSetting lets settings of a newer release pass that are short and printable.
func checkSetting(r record.Record) error {
	owner, what, _ := strings.Cut(r.ID, "/")
	if _, err := record.OwnerIsID(owner); err != nil || what == "" {
		return errors.New("a setting is about a peer and one thing")
	}
	var s Setting
	if err := record.Unmarshal(r.Payload, &s); err != nil {
		return err
	}
	if key, is := strings.CutPrefix(what, labelPrefix); is {
		return CheckLabel(key, s.Value)
	}
	if what == settingName {
		return membership.CheckName(s.Value)
	}
	return checkPrintable("a setting", s.Value, maxSetting)
}

// CheckLabel says whether a peer may have that label: a key of 1 to
// MaxLabelLength characters of a-z, 0-9 and . _ -, and a printable value of up to
// as many bytes.
func CheckLabel(key, value string) error {
	if key == "" || len(key) > MaxLabelLength || strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || 'z' < r) && (r < '0' || '9' < r) && !strings.ContainsRune("._-", r)
	}) {
		return fault("invalid_request", fmt.Sprintf("the key of a label has 1 to %d lower-case letters, digits and . _ -", MaxLabelLength))
	}
	return checkPrintable("the value of a label", value, MaxLabelLength)
}

func checkPrintable(what, text string, most int) error {
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fault("invalid_request", fmt.Sprintf("%s has up to %d bytes of printable text", what, most))
	}
	return nil
}

// settings are those of one peer.
type settings struct {
	name     string
	labels   map[string]string
	cordoned bool
	draining bool
}

// settingsCache keeps what the setting records say until one changes.
type settingsCache struct {
	mu   sync.Mutex
	from uint64
	of   map[peer.ID]*settings // Not changed once made.
}

// settingsOf is what admins have said of a peer.
func (n *Node) settingsOf(id peer.ID) settings {
	c := &n.settings
	c.mu.Lock()
	defer c.mu.Unlock()
	if from := n.table.Revision(KindSetting); c.of == nil || c.from != from {
		c.of, c.from = readSettings(n.table.List(KindSetting)), from
	}
	if s := c.of[id]; s != nil {
		return *s
	}
	return settings{}
}

func readSettings(records []record.Signed) map[peer.ID]*settings {
	of := map[peer.ID]*settings{}
	for _, r := range records {
		owner, what, _ := strings.Cut(r.ID, "/")
		id, err := peer.Decode(owner)
		var v Setting
		if err != nil || record.Unmarshal(r.Payload, &v) != nil {
			continue
		}
		s := of[id]
		if s == nil {
			s = &settings{labels: map[string]string{}}
			of[id] = s
		}
		switch key, label := strings.CutPrefix(what, labelPrefix); {
		case label:
			s.labels[key] = v.Value
		case what == settingName:
			s.name = v.Value
		case what == settingCordon:
			s.cordoned = true
		case what == settingDrain:
			s.draining = true
		}
	}
	return of
}

// CheckSettings says whether SetName (where name is not nil) and SetLabel (for
// each of labels) would be refused: to settle several at once or none.
func (n *Node) CheckSettings(target peer.ID, name *string, labels map[string]string) error {
	if err := n.maySet(target); err != nil {
		return err
	}
	if name != nil && *name != "" {
		if err := membership.CheckName(*name); err != nil {
			return fault("invalid_request", err.Error())
		}
		for _, m := range n.Roster().Members() {
			if m.ID != target && n.NameOf(m.ID) == *name {
				return ErrNameTaken
			}
		}
	}
	after := maps.Clone(n.settingsOf(target).labels)
	if after == nil {
		after = map[string]string{}
	}
	for key, value := range labels {
		if err := CheckLabel(key, value); err != nil {
			return err
		}
		if after[key] = value; value == "" {
			delete(after, key)
		}
	}
	if len(after) > MaxLabels {
		return fault("invalid_request", fmt.Sprintf("a machine has %d labels at most", MaxLabels))
	}
	return nil
}

func (n *Node) maySet(target peer.ID) error {
	roster := n.Roster()
	if me, _ := roster.Member(n.self); me.Role != membership.RoleAdmin {
		return fmt.Errorf("machines are named, labelled, cordoned and drained on an admin's machine (relay peer ls shows which): %w", membership.ErrNotAllowed)
	}
	if _, in := roster.Member(target); !in {
		return membership.ErrNotMember
	}
	return nil
}

// SetName gives a member another name than the one that it calls itself by; an
// empty one takes the given name away again. Only an admin's machine may, and no
// name that another member bears.
func (n *Node) SetName(target peer.ID, name string) error {
	if err := n.CheckSettings(target, &name, nil); err != nil {
		return err
	}
	return n.putSetting(target, settingName, name)
}

// KeepName notes what a machine that was taken out of the mesh was called: nothing
// that it wrote itself stands, and it may still have to erase itself.
func (n *Node) KeepName(out peer.ID, name string) error {
	if err := membership.CheckName(name); err != nil {
		return err
	}
	return n.putSetting(out, settingName, name)
}

// SetLabel gives a member a label; an empty value takes it away.
func (n *Node) SetLabel(target peer.ID, key, value string) error {
	if err := n.CheckSettings(target, nil, map[string]string{key: value}); err != nil {
		return err
	}
	return n.putSetting(target, labelPrefix+key, value)
}

// Cordon has no model placed on a member that does not run there already.
func (n *Node) Cordon(target peer.ID, on bool) error { return n.putSwitch(target, settingCordon, on) }

// Drain has what runs on a member moved away, and nothing placed there.
func (n *Node) Drain(target peer.ID, on bool) error { return n.putSwitch(target, settingDrain, on) }

func (n *Node) putSwitch(target peer.ID, what string, on bool) error {
	if err := n.maySet(target); err != nil {
		return err
	}
	value := ""
	if on {
		value = settingOn
	}
	return n.putSetting(target, what, value)
}

// putSetting writes a setting, or takes it away where the value is empty; what
// is so already is not written again.
func (n *Node) putSetting(target peer.ID, what, value string) error {
	id := settingID(target, what)
	kept, is := n.table.Get(KindSetting, id)
	if value == "" {
		if !is {
			return nil
		}
		_, err := n.table.DeleteShared(KindSetting, id)
		return err
	}
	var old Setting
	if is && record.Unmarshal(kept.Payload, &old) == nil && old.Value == value {
		return nil
	}
	return n.PutShared(KindSetting, id, Setting{Value: value})
}
