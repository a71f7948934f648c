// Package residency decides which of the models that are loaded on one peer are
// unloaded: for another one that needs their memory, or because nobody used them
// for long.
//
// It promises: none in use is chosen, none that was only just loaded, none that
// somebody waits for; the least recently used go first, and no more than are
// needed; none go where that would not be enough.
//
// It is pure: no clock, no engine, no memory between calls.
package residency
