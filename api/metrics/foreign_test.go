package metrics

import (
	"bytes"
	"strings"
	"testing"
)

// TestForeign: of another peer's metrics comes through what every peer has, and as it is.
func TestForeign(t *testing.T) {
	var text bytes.Buffer
	if err := full().Write(&text); err != nil {
		t.Fatal(err)
	}
	if got, err := Foreign(text.Bytes()); err != nil || string(got) != text.String() {
		t.Errorf("%v:\n%s\nis\n%s", err, text.String(), got)
	}
	got, err := Foreign([]byte("relay_peers{state=\"alive\"} 3 1700000000000\nnode_load1 1\nrelay_made_up 1\ngo_goroutines 5\nup 0\n"))
	if want := "# TYPE go_goroutines untyped\ngo_goroutines 5\n# TYPE relay_peers untyped\nrelay_peers{state=\"alive\"} 3\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Foreign(bytes.Repeat([]byte("go_goroutines 5\n"), MostLines+1)); err == nil || !strings.Contains(err.Error(), "20000 are the most") {
		t.Errorf("too many lines: %v", err)
	}
	for _, text := range []string{"<html>no</html>\n", "relay_peers{state=\"al", "relay_peers many\n", "relay_peers 1\n# TYPE relay_peers gauge\n"} {
		if got, err := Foreign([]byte(text)); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

// FuzzForeign: what comes through can be read again, and says the same then.
func FuzzForeign(f *testing.F) {
	var text bytes.Buffer
	if err := full().Write(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte("go_x{a=\"\\n\\\"\"} NaN 5\n# HELP go_x \\\\\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Foreign(text)
		if err != nil {
			return
		}
		if again, err := Foreign(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%v: %q is %q the next time", err, got, again)
		}
	})
}
