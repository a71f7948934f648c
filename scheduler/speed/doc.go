// Package speed learns how fast devices are from what engines report of their
// requests.
//
// It promises: a speed is one of the device, in bytes of weights per second, so
// that what one model taught holds for others; samples that are too short to say
// anything, or are nonsense, change nothing; what is not known is 0.
//
// It is pure: no clock, no memory between calls.
package speed
