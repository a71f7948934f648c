// Package ways works out how one peer could run one whole model: on one GPU, on
// several, on GPU and RAM, or on its CPU, with the memory that each device gives
// to it and the speed to expect. Of a group of peers it knows what each of them takes,
// and how fast they are together; who is in one is for package shards to plan.
//
// It promises: the same shape and the same machine give the same ladder; a way
// that is said to fit asks no device for more than is free there, and host memory is
// not promised a second time to a GPU that has none of its own; memory that is
// not known is used by no way, and is never taken for none; and every way that
// cannot be gone comes with its reason.
//
// It is pure: no clock, no network, no goroutine, no memory between calls. What
// a model takes (Shape) and what a machine has (Machine) are told to it.
package ways
