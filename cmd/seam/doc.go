// Package seam cuts streamed answers in the middle, as machines do that die, freeze, are
// cut off or are drained, and judges what the client was given: token by token, against
// what an engine says of the same tokens that is asked without relay. It is for the
// figures of unbroken streams and for the test that has a few of each; it runs on Linux
// alone, and promises to leave no process behind.
package seam
