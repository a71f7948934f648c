package main

import (
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"rsc.io/qr"

	"relay/p2p/membership"
)

// The longest invite makes a code that fits a terminal of 80 columns, and what is
// drawn is the code, module for module, with white around it.
func TestQRCode(t *testing.T) {
	invite, err := membership.NewInvite("aaaaaaaaaaaaaaaa")
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.Decode("12D3KooWQgmNLoZYvGmMVHtVYhYUBUsTpGKJ8RqVxGvFz2sYT1jw")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		invite.Peers = append(invite.Peers, peer.AddrInfo{ID: id, Addrs: []ma.Multiaddr{
			ma.StringCast("/ip4/198.51.100.7/tcp/8421"), ma.StringCast("/ip4/198.51.100.7/udp/8421/quic-v1")}})
	}
	text := strings.ToUpper(invite.String())
	if len(text) < 400 {
		t.Fatalf("an invite of %d characters is no long one", len(text))
	}
	if again, err := membership.ParseInvite(text); err != nil || again.String() != invite.String() {
		t.Errorf("read back: %v", err)
	}
	drawn, err := qrCode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(drawn, "\n"), "\n")
	size := code.Size + 2*quietZone
	if size > 80 || len(lines) != (size+1)/2 {
		t.Fatalf("%d modules, %d lines", size, len(lines))
	}
	black := 0
	for y := range size {
		line := []rune(lines[y/2])
		if len(line) != size {
			t.Fatalf("line %d has %d characters, not %d", y/2, len(line), size)
		}
		for x, r := range line {
			light := r == '█' || r == '▀' && y%2 == 0 || r == '▄' && y%2 == 1
			if want := !code.Black(x-quietZone, y-quietZone); light != want {
				t.Fatalf("module %d, %d: light %v, want %v", x, y, light, want)
			}
			if !light {
				black++
			}
		}
	}
	if black < size*size/5 {
		t.Errorf("only %d modules are black", black)
	}

	coloured, err := qrCode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer("\x1b[38;5;231m\x1b[48;5;16m", "", "\x1b[0m", "").Replace(coloured)
	if plain != drawn || strings.Count(coloured, "\x1b[38;5;231m\x1b[48;5;16m") != len(lines) || strings.Count(coloured, "\x1b[0m\n") != len(lines) {
		t.Error("the coloured one is not the same in white and black, line by line")
	}
}
