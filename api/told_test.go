package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/scheduler"
)

// hostile is a text that would do something to a terminal, and is long.
const hostile = "\x1b]0;owned\x07\u009b2Jno\u202e\r\n"

func TestTold(t *testing.T) {
	for text, want := range map[string]string{
		"plain: ä 1": "plain: ä 1", "": "", hostile: "]0;owned2Jno", "\xff\xfea": "a",
		strings.Repeat("ä", 300):       strings.Repeat("ä", 256),
		strings.Repeat("x", 511) + "ä": strings.Repeat("x", 511),
	} {
		if got := told(text); got != want {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	var a struct {
		N    int64
		List []map[string]string
	}
	if err := decodeTold([]byte(`{"N":9007199254740993,"List":[{"\u001b[1mk":"a\u0007"}]}`), &a); err != nil || a.N != 9007199254740993 || a.List[0]["[1mk"] != "a" {
		t.Errorf("%+v, %v", a, err)
	}
	if decodeTold([]byte(`{"N":`), &a) == nil {
		t.Error("half an answer was read")
	}
}

// spokesman is a peer that answers everything in one way.
type spokesman struct {
	status, body string
	code         int
}

func (a spokesman) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Status: a.status, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// waysOf is a mesh in which every way leads to the same peer.
type waysOf struct {
	ControlMesh
	to http.RoundTripper
}

func (w waysOf) Control(peer.ID) http.RoundTripper { return w.to }

// TestWhatAPeerSaysDoesNothingToATerminal, whatever it was asked, and whether it
// refuses or not.
func TestWhatAPeerSaysDoesNothingToATerminal(t *testing.T) {
	long := hostile + strings.Repeat("x", 1<<16)
	quoted := func(format string) string {
		text, err := json.Marshal(long)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(format, "TEXT", string(text)) + "\n"
	}
	plain := func(from, text string) {
		t.Helper()
		if text != told(text) || text == "" || len(text) > 600 {
			t.Errorf("%s: %d bytes, %.80q", from, len(text), text)
		}
	}
	den := scheduler.PeerState{ID: testPeerID(t).String(), Name: "den", State: "alive"}
	refusals := map[string]spokesman{
		"a refusal": {code: 403, body: quoted(`{"error":{"reason":TEXT,"message":TEXT}}`)},
		"a status":  {code: 500, status: "500 " + long, body: "<html>"},
	}
	for name, a := range refusals {
		client := peerClient{waysOf{to: a}}
		_, err := client.pull(t.Context(), den, PullRequest{}, nil)
		plain(name+" of a pull", err.Error())
		_, err = client.stop(t.Context(), den, StopRequest{})
		plain(name+" of a stop", err.Error())
		_, err = client.rows(t.Context(), den, url.Values{}.Encode())
		plain(name+" of rows", err.Error())
	}
	a := spokesman{code: http.StatusOK, body: quoted(`{"progress":{"phase":TEXT,"why":TEXT,"from":[{"name":TEXT}]}}`) + quoted(`{"result":{"name":TEXT,"warnings":[TEXT]}}`)}
	out, err := peerClient{waysOf{to: a}}.pull(t.Context(), den, PullRequest{}, func(l ProgressLine) {
		plain("a phase", l.Phase)
		plain("a reason to wait", l.Why)
		plain("a source", l.From[0].Name)
	})
	if err != nil {
		t.Fatal(err)
	}
	plain("a name", out.Name)
	plain("a warning", out.Warnings[0])
	a = spokesman{code: 200, body: quoted(`{"error":{"reason":"disk_full","message":TEXT}}`)}
	_, err = peerClient{waysOf{to: a}}.pull(t.Context(), den, PullRequest{}, nil)
	plain("a failure", err.Error())
	a = spokesman{code: 200, body: quoted(`{"name":TEXT,"kept":[{"why":TEXT}]}`)}
	stopped, err := peerClient{waysOf{to: a}}.stop(t.Context(), den, StopRequest{})
	if err != nil {
		t.Fatal(err)
	}
	plain("what is stopped", stopped.Name)
}
