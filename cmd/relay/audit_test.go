package main

import (
	"bytes"
	"testing"
	"time"

	"relay/api"
	"relay/store/audit"
)

// sampleRequests are one that went on elsewhere, one that was refused, and one by a
// key and a peer that are there no more.
func sampleRequests() (rows []api.AuditRow, now time.Time) {
	now = time.Date(2026, 5, 4, 15, 30, 0, 0, time.Local)
	return []api.AuditRow{
		{Row: audit.Row{ID: "req-0123456789abcdef01234567", Time: now.Add(-30 * time.Hour), Method: "POST", Route: "/v1/chat/completions", Key: "abcdefgh", Model: "best", Served: "qwen3-8b",
			Peer: "12D3KooWden0000000", Path: "direct", Attempts: 2, Continued: 1, Stream: true, Status: 200, Prompt: 1200, Completion: 345, Cached: 1000, QueueMS: 3.2, FirstMS: 420, TotalMS: 12345},
			EntranceName: "attic", KeyName: "laptop", PeerName: "den"},
		{Row: audit.Row{ID: "mine", Time: now.Add(-time.Minute), Method: "GET", Route: "/v1/models", Status: 401, Reason: "invalid_api_key", TotalMS: 0.2}, EntranceName: "den"},
		{Row: audit.Row{ID: "mine", Time: now, Method: "POST", Route: "/v1/embeddings", Key: "abcdefgh", Model: "bge", Served: "bge", Peer: "12D3KooWcellar0000", Path: "relay", Attempts: 1,
			Status: 499, Prompt: 7, TotalMS: 999}, EntranceName: "den"},
	}, now
}

func TestAuditIsShown(t *testing.T) {
	rows, now := sampleRequests()
	var out bytes.Buffer
	printAuditHeader(&out)
	for _, r := range rows {
		printAuditRow(&out, r, now)
	}
	printUnanswered(&out, []api.Unanswered{{PeerName: api.PeerName{ID: "12D3KooWshed000000", Name: "shed"}, Why: "it is gone"}})
	golden(t, "audit.golden", out.String())
	out.Reset()
	for _, r := range rows {
		printRequest(&out, r)
	}
	golden(t, "request.golden", out.String())
	out.Reset()
	if err := printJSON(&out, api.AuditAnswer{Rows: rows[1:2], Next: map[string]uint64{"12D3KooWden0000000": 7},
		Unanswered: []api.Unanswered{{PeerName: api.PeerName{ID: "12D3KooWshed000000", Name: "shed"}, Why: "it is gone"}}}); err != nil {
		t.Fatal(err)
	}
	// The time of a row is that of the machine which shows it.
	golden(t, "audit_json.golden", string(bytes.ReplaceAll(out.Bytes(), []byte(rows[1].Time.Format(time.RFC3339Nano)), []byte("TIME"))))
}
