package p2p

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// seenAs is a member as another one lists it.
func (m *machine) seenAs(id peer.ID) Peer {
	for _, p := range m.Peers() {
		if p.ID == id {
			return p
		}
	}
	return Peer{}
}

// TestSettings: what an admin says of a member is known to all, one record for
// each thing, and can be taken away again.
func TestSettings(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, inviteAs(t, attic, membership.RoleMember), "den")
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(attic.SetName(den.Self(), "cellar"))
	must(attic.SetLabel(den.Self(), "room", "below stairs"))
	must(attic.SetLabel(den.Self(), "gpu", "a4000"))
	must(attic.Cordon(den.Self(), true))
	must(attic.Drain(den.Self(), true))
	eventually(t, 5*time.Second, "den knows what is said of it", func() bool {
		p := den.seenAs(den.Self())
		return p.Name == "cellar" && p.Cordoned && p.Draining && maps.Equal(p.Labels, map[string]string{"room": "below stairs", "gpu": "a4000"})
	})
	if p := den.seenAs(attic.Self()); p.Name != "attic" || p.Cordoned || p.Draining || len(p.Labels) > 0 {
		t.Errorf("the other one: %+v", p)
	}

	before := attic.Table().Root()
	must(attic.SetName(den.Self(), "cellar"))
	must(attic.Cordon(den.Self(), true))
	must(attic.SetLabel(den.Self(), "nosuch", ""))
	if attic.Table().Root() != before {
		t.Error("what is so already was written again")
	}

	must(attic.SetName(den.Self(), ""))
	must(attic.SetLabel(den.Self(), "room", ""))
	must(attic.Cordon(den.Self(), false))
	must(attic.Drain(den.Self(), false))
	eventually(t, 5*time.Second, "it is taken away everywhere", func() bool {
		p := den.seenAs(den.Self())
		return p.Name == "den" && !p.Cordoned && !p.Draining && maps.Equal(p.Labels, map[string]string{"gpu": "a4000"})
	})
}

// Only an admin's machine writes settings, about members, in their form.
func TestSettingsRefused(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, inviteAs(t, attic, membership.RoleMember), "den")
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	stranger := newMachine(t)
	other, err := peer.IDFromPrivateKey(stranger.key)
	if err != nil {
		t.Fatal(err)
	}
	id := den.Self()
	for _, tc := range []struct {
		what   string
		err    error
		reason string
	}{
		{"by one who is no admin: name", den.SetName(id, "x"), "not_allowed"},
		{"label", den.SetLabel(id, "a", "b"), "not_allowed"},
		{"cordon", den.Cordon(id, true), "not_allowed"},
		{"drain", den.Drain(id, false), "not_allowed"},
		{"of one who is no member", attic.SetName(other, "x"), "not_member"},
		{"cordon of one who is no member", attic.Cordon(other, true), "not_member"},
		{"a name that is taken", attic.SetName(id, "attic"), "name_taken"},
		{"a name of blanks", attic.SetName(id, "  "), "invalid_request"},
		{"a long name", attic.SetName(id, strings.Repeat("x", 65)), "invalid_request"},
		{"a key of capitals", attic.SetLabel(id, "Room", "x"), "invalid_request"},
		{"an empty key", attic.SetLabel(id, "", "x"), "invalid_request"},
		{"a long key", attic.SetLabel(id, strings.Repeat("k", MaxLabelLength+1), "x"), "invalid_request"},
		{"a long value", attic.SetLabel(id, "k", strings.Repeat("v", MaxLabelLength+1)), "invalid_request"},
		{"a value of two lines", attic.SetLabel(id, "k", "a\nb"), "invalid_request"},
	} {
		if got := reasonOf(tc.err); got != tc.reason {
			t.Errorf("%s: %v (%s), want %s", tc.what, tc.err, got, tc.reason)
		}
	}
	if n := len(attic.Table().History(KindSetting)); n > 0 {
		t.Errorf("%d settings were written all the same", n)
	}
	for i := range MaxLabels {
		if err := attic.SetLabel(id, fmt.Sprint("k", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	if err := attic.SetLabel(id, "more", "v"); reasonOf(err) != "invalid_request" {
		t.Errorf("a label too many: %v", err)
	}
	if err := attic.SetLabel(id, "k0", "another"); err != nil {
		t.Errorf("one of those that are there: %v", err)
	}
}

// What arrives is held to its form; settings of a newer release pass.
func TestSettingForm(t *testing.T) {
	owner := found(t, "attic").Self().String()
	for id, tc := range map[string]struct {
		value string
		ok    bool
	}{
		owner + "/name":                  {"attic", true},
		owner + "/label/room":            {"top", true},
		owner + "/cordon":                {settingOn, true},
		owner + "/colour":                {"of a newer release", true},
		owner:                            {"x", false},
		"nobody/name":                    {"x", false},
		owner + "/label/Room":            {"x", false},
		owner + "/label/a/b":             {"x", false},
		owner + "/drain":                 {strings.Repeat("x", maxSetting+1), false},
		owner + "/label/b":               {"\x1b[2J", false},
		strings.ToUpper(owner) + "/name": {"x", false},
	} {
		payload, err := record.Marshal(Setting{tc.value})
		if err != nil {
			t.Fatal(err)
		}
		if err := checkSetting(record.Record{ID: id, Payload: payload}); (err == nil) != tc.ok {
			t.Errorf("%s = %q: %v", id, tc.value, err)
		}
	}
}
