package main

import "testing"

// TestReleased: the commit is named once.
func TestReleased(t *testing.T) {
	for _, c := range [][3]string{
		{"v1.2.0", "0123456789ab", "v1.2.0 (0123456789ab)"},
		{"v1.2.0-3-g0123456", "0123456789ab", "v1.2.0-3-g0123456"},
		{"0123456-dirty", "0123456789ab", "0123456-dirty"},
		{"dev", "0123456789ab", "dev (0123456789ab)"},
		{"dev", "", "dev"},
	} {
		if got := released(c[0], c[1]); got != c[2] {
			t.Errorf("%s of %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
