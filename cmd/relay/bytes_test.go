package main

import (
	"strings"
	"testing"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "0MB": 0, "1": 1, "512B": 512, "1.5": 2, "500MB": 500_000_000, "1.5TiB": 3 << 39, "1.5MiB": 3 << 19, "20mb": 20_000_000,
		"2 GiB": 2 << 30, " 1KiB ": 1024, "1kB": 1000, "0.5KiB": 512, "1024PiB": 1 << 60, "1152921504606846976": 1 << 60, "3PB": 3_000_000_000_000_000,
	} {
		if got, err := parseSize("--max-size", text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "MB", "-1MB", "+1MB", "1e3MB", "0x10", "1_000", "NaN", "Inf", "1.MB", ".5GB", "5G", "5Mi", "5 mega", "1MB/s", "1,5GB",
		"1025PiB", "999999999999999999PB", "9999999999999999999", "0.1B", "1MB 2MB", "1MB\n2", "５MB"} {
		if got, err := parseSize("--max-size", text); err == nil || !strings.HasPrefix(err.Error(), "--max-size ") || !strings.Contains(err.Error(), "500MB") {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]bool{"1025PiB": true, "9999999999999999999": true, "5G": false} {
		if _, err := parseSize("--max-size", text); err == nil || strings.Contains(err.Error(), "1024PiB at most") != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got, err := parseRate("--limit", "20MB/s"); err != nil || got != 20_000_000 {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"0", "0MB", "fast", "20MB/h", "20MB/s/s", ""} {
		if got, err := parseRate("--limit", text); err == nil || !strings.HasPrefix(err.Error(), "--limit ") {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if _, err := parseCap("RELAY_CACHE_MAX", "0"); err == nil {
		t.Error("a cap of nothing was taken")
	}
}
