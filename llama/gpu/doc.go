// Package gpu knows what the machine's own tools say of its GPUs (nvidia-smi,
// amd-smi, rocm-smi), and fits that to the GPUs that the engine lists.
//
// The engine's list says what can be computed on. The tools add what it cannot
// tell: which memory others hold, which GPU has which UUID, which are there and
// cannot be used. Whatever is not known for sure is said to be unknown; it is
// never zero. The package changes nothing on any GPU, and starts no program but
// by the function that it is given for that.
package gpu
