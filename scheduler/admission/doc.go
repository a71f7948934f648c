// Package admission decides which requests have the slots of one engine, and which wait
// for them.
//
// It never gives more slots than there are, nor lets more wait than it was told. Normal
// requests come before those of batch, which leave the last free slot to them. Among
// requests of one kind the key comes first that has the fewest slots, then the one whose
// last turn is the longest ago, and of one key whoever came first. Who is next waits for
// as many slots as it takes, and nobody overtakes it.
//
// It reads no clock, starts nothing and ends nothing. Whoever owns a queue holds a lock
// around it and tells it the time.
package admission
