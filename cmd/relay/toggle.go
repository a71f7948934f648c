package main

import "strconv"

// toggle is a setting that is on, off, or not said. As a flag it is on without a
// value, and takes =false.
type toggle string

const (
	toggleOn  toggle = "on"
	toggleOff toggle = "off"
)

// Set reads the value of a flag.
func (t *toggle) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return err
	}
	if *t = toggleOff; on {
		*t = toggleOn
	}
	return nil
}

// String is the value as Set reads it; "" where nothing was said.
func (t *toggle) String() string {
	if *t == "" {
		return ""
	}
	return strconv.FormatBool(*t == toggleOn)
}

// Type is what the help of the command calls it.
func (t *toggle) Type() string { return "bool" }
