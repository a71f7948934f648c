// Package ledger keeps the account of the memory that one peer lends, device by
// device.
//
// It promises that what is reserved is never more than what was lent when it
// was reserved: whoever orders something, the ledger of the peer that is to run
// it has the last word. Only what a thing turned out to take may be more.
//
// It measures nothing and starts nothing; how much is lent is told to it.
package ledger
