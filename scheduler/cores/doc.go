// Package cores decides whose turn it is on the processor cores that one peer
// lends.
//
// Two engines that compute on the same cores at once are together slower than
// one alone: their threads wait for each other. So the names that are busy never
// count for more cores than are lent, whoever waits comes in in the order of
// asking, and a name that others wait for ends its turn.
//
// It starts nothing and stops nothing: whoever entered leaves by itself.
package cores
