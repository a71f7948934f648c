// Package tensorcache keeps tensors of models in the folder from which llama.cpp's
// rpc-server reads what it is told to load by hash, so that they need not cross
// the link to it: one file for each, rpc/<16 hex digits>, named by the FNV-1a 64
// of its bytes.
//
// It promises that a file under its name is whole, whatever ended the process
// that wrote it, and that nothing is deleted that a lease holds. The folder is
// the cache's alone, one process opens it at a time, and what else lies in rpc/
// is deleted: rpc-server reads a file of any length as the tensor. It never knows
// what a tensor is of, never fetches one, and reads none again to know that it is
// there.
package tensorcache
