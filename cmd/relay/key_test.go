package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"relay/api"
	"relay/p2p/keys"
)

func TestWhenAKeyExpires(t *testing.T) {
	now := time.Date(2026, 5, 4, 15, 30, 0, 0, time.FixedZone("here", 2*60*60))
	for text, want := range map[string]time.Time{
		"30d": now.AddDate(0, 0, 30), "90m": now.Add(90 * time.Minute), "1h30m": now.Add(90 * time.Minute),
		"2027-01-31": time.Date(2027, 1, 31, 0, 0, 0, 0, now.Location()), "2027-01-31 18:00": time.Date(2027, 1, 31, 18, 0, 0, 0, now.Location()),
		"2027-01-31T18:00:00Z": time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC),
	} {
		if got, err := parseExpires(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0d", "-3d", "d", "1.5d", "999999999d", "-1h", "0s", "30", "soon", "31.01.2027", "2027-13-01"} {
		if got, err := parseExpires(text, now); !errors.As(err, new(*usageError)) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestGoldenKeys(t *testing.T) {
	now := time.Date(2026, 5, 4, 15, 30, 0, 0, time.Local)
	until, past, later := now.Add(90*time.Minute), now.Add(-time.Hour), now.AddDate(0, 1, 0)
	l := api.KeyList{
		Keys: []api.KeyShown{
			{ID: "abcdefgh", Name: "batches", Created: past, Models: []string{"qwen", "tiny"}, Expires: &later, State: "good", RequestsPerMinute: 60,
				TokensPerDay: 1_000_000, Concurrency: 4, Priority: keys.Batch, Today: api.KeyUse{Requests: 1, Prompt: 20, Completion: 300}, Total: api.KeyUse{Requests: 5, Prompt: 90, Completion: 900}, Running: 1},
			{ID: "ijklmnop", Name: "default", Default: true, Created: past, Models: []string{}, State: "good", Priority: keys.Normal, FormerUntil: &until,
				Today: api.KeyUse{Requests: 12, Prompt: 3456, Completion: 789}, Total: api.KeyUse{Requests: 12, Prompt: 3456, Completion: 789}},
			{ID: "qrstuvwx", Name: "guest", Created: past, Models: []string{}, Expires: &past, State: "expired", Priority: keys.Normal},
		},
		Environment: &api.KeyUse{}, Away: []api.PeerName{{ID: "12D3KooWden0000000", Name: "den"}},
	}
	var b bytes.Buffer
	printKeys(&b, l, now)
	golden(t, "keys.golden", b.String())
	for _, k := range []*api.KeyShown{&l.Keys[0], &l.Keys[1], &l.Keys[2]} { // Not in the zone of whoever runs this.
		for _, at := range []*time.Time{&k.Created, k.Expires, k.FormerUntil} {
			if at != nil {
				*at = time.Date(2026, 5, 4, 15, 30, 0, 0, time.UTC)
			}
		}
	}
	b.Reset()
	if err := printJSON(&b, l); err != nil {
		t.Fatal(err)
	}
	golden(t, "keys_json.golden", b.String())
}
