// Package llama runs llama.cpp on this machine: it finds a build, sees the
// devices, and starts, watches, sandboxes and stops one llama-server process
// per model, and the RPC servers that compute some layers for another machine's.
//
// It promises that an engine never outlives the relay process that started it,
// that a process it calls ready has produced a real token, that it says who else
// can reach an RPC server, and that no model record can make an engine open a file,
// a port or a program of its choosing.
// It never downloads anything, never decides what runs where, and keeps no
// prompt or answer text, the engine's log included.
package llama
