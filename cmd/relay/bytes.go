package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// sizeForm is a number and a unit; bare numbers are bytes.
var sizeForm = regexp.MustCompile(`^([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)$`)

// unitSizes are the units of sizes: decimal ones, and binary ones with an i.
var unitSizes = map[string]float64{
	"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50,
}

// maxSize bounds sizes, in bytes, so that sums of them can be counted.
const maxSize = 1 << 60

// parseSize reads a size such as 500MB or 1.5TiB, in bytes; 0 only where it is
// said that none is wanted. what is the setting or the flag, for the sentence
// that refuses it.
func parseSize(what, text string) (uint64, error) {
	var bound string
	m := sizeForm.FindStringSubmatch(strings.TrimSpace(text))
	if m != nil {
		unit, known := unitSizes[strings.ToLower(m[2])]
		n, err := strconv.ParseFloat(m[1], 64)
		bytes := math.Round(n * unit)
		switch {
		case !known || err != nil:
		case bytes > maxSize:
			bound = ", and 1024PiB at most"
		case bytes >= 1 || n == 0:
			return uint64(bytes), nil
		}
	}
	return 0, &usageError{fmt.Sprintf("%s %q: it takes a size such as 500MB or 1.5TiB%s", what, text, bound)}
}

// parseCap is parseSize for what cannot be 0.
func parseCap(what, text string) (uint64, error) {
	n, err := parseSize(what, text)
	if err == nil && n == 0 {
		err = &usageError{fmt.Sprintf("%s %q: it takes a size of more than 0, such as 500MB or 1.5TiB", what, text)}
	}
	return n, err
}

// parseRate reads how much a second, such as 20MB or 1.5MiB/s, in bytes.
func parseRate(what, text string) (int64, error) {
	n, err := parseSize(what, strings.TrimSuffix(strings.TrimSpace(text), "/s"))
	if err != nil || n == 0 {
		return 0, &usageError{fmt.Sprintf("%s %q: it takes how much a second, such as 20MB or 1.5MiB", what, text)}
	}
	return int64(n), nil
}
